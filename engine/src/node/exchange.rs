//! Messages of PUBLISH between the nodes of a cluster.
//!
//! ```text
//! a shard's PUBLISH --> Exchange::publish --> queue --> a link to each other node          (peers/messages.rs)
//! another node's link --> Exchange::deliver --> inboxes of the shards that have subscribers
//! ```
//!
//! At most once, in the order of each shard, and nobody waits: what does not fit a bound on its way is dropped and
//! counted. A node sends to all others, as it does not know who has subscribed there.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ephesus_coordinator::link::SharedFrame;
use ephesus_wire::published::{self, Published};

use super::NodeShared;

/// Bytes that wait for the thread of the links.
const QUEUED_BYTES_MAX: usize = 16 << 20;

/// Messages that wait for it, of whatever length.
const QUEUED_MAX: usize = 1 << 16;

/// What has become of messages.
#[derive(Debug, Default)]
pub struct Counts {
    /// Put into the queue of a link.
    pub sent: AtomicU64,
    /// Taken from links.
    pub received: AtomicU64,
    /// Dropped because a link, or something on the way to it or from it, was not there or full.
    pub dropped: AtomicU64,
}

/// What goes to other nodes, and comes from them.
#[derive(Debug)]
pub struct Exchange {
    queue: flume::Sender<SharedFrame>,
    queued_bytes: AtomicUsize,
    has_others: AtomicBool,
    /// Whose shards get what comes, once there are any.
    node: OnceLock<Weak<NodeShared>>,
    pub counts: Counts,
}

impl Default for Exchange {
    fn default() -> Exchange {
        Exchange::new().0
    }
}

impl Exchange {
    /// With what takes from the queue.
    #[must_use]
    pub fn new() -> (Exchange, flume::Receiver<SharedFrame>) {
        let (queue, queued) = flume::bounded(QUEUED_MAX);
        let exchange = Exchange {
            queue,
            queued_bytes: AtomicUsize::new(0),
            has_others: AtomicBool::new(false),
            node: OnceLock::new(),
            counts: Counts::default(),
        };
        (exchange, queued)
    }

    /// From now on what comes is for the shards of that node.
    pub fn serve(&self, node: &Arc<NodeShared>) {
        // Once for each start.
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// Whether there are other nodes.
    pub fn set_has_others(&self, has_others: bool) {
        self.has_others.store(has_others, Ordering::Relaxed);
    }

    /// Sends a message to all other nodes.
    #[inline]
    pub fn publish(&self, channel: &[u8], message: &[u8]) {
        if self.has_others.load(Ordering::Relaxed) {
            self.enqueue(Published { channel, message });
        }
    }

    fn enqueue(&self, published: Published<'_>) {
        let has_room = self.queued_bytes.load(Ordering::Relaxed) < QUEUED_BYTES_MAX;
        let payload = has_room.then(|| published.encode()).flatten();
        let is_queued = payload.is_some_and(|payload| {
            let frame = SharedFrame::new(published::MESSAGE, &payload);
            let bytes = frame.len();
            self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
            let is_queued = self.queue.try_send(frame).is_ok();
            if !is_queued {
                self.taken(bytes);
            }
            is_queued
        });
        if !is_queued {
            self.dropped();
        }
    }

    /// So many bytes have left the queue.
    pub fn taken(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A message did not go on.
    pub fn dropped(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a message of another node to the shards that have subscribers.
    pub fn deliver(&self, published: Published<'_>) {
        self.counts.received.fetch_add(1, Ordering::Relaxed);
        let Some(node) = self.node.get().and_then(Weak::upgrade) else {
            return self.dropped();
        };
        let mut shared: Option<Arc<Incoming>> = None;
        for (peer, stats) in node.peers.iter().zip(node.stats.iter()) {
            if stats.subscriptions.get() == 0 {
                continue;
            }
            let incoming = shared.get_or_insert_with(|| Arc::new(Incoming::of(published)));
            if !peer.publish(incoming) {
                self.dropped();
            }
        }
    }
}

/// A message of another node, on its way to shards.
#[derive(Debug)]
pub struct Incoming {
    pub channel: Box<[u8]>,
    pub message: Box<[u8]>,
}

impl Incoming {
    fn of(published: Published<'_>) -> Incoming {
        Incoming {
            channel: published.channel.into(),
            message: published.message.into(),
        }
    }

    /// Memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Incoming>() + self.channel.len() + self.message.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: Published<'static> = Published {
        channel: b"c",
        message: &[7; 1 << 20],
    };

    #[test]
    fn what_nobody_takes_is_dropped_beyond_a_bound_and_counted() {
        let (exchange, queued) = Exchange::new();
        exchange.publish(MESSAGE.channel, MESSAGE.message);
        assert_eq!(queued.len(), 0, "there is no other node");
        exchange.set_has_others(true);
        for _ in 0..20 {
            exchange.publish(MESSAGE.channel, MESSAGE.message);
        }
        assert_eq!(queued.len(), 16);
        assert_eq!(exchange.counts.dropped.load(Ordering::Relaxed), 4);
        exchange.taken(queued.recv().expect("queued").len());
        exchange.publish(b"c", b"");
        assert_eq!(queued.len(), 16);
        exchange.publish(b"c", &vec![0; 17 << 20]);
        assert_eq!(
            exchange.counts.dropped.load(Ordering::Relaxed),
            5,
            "too long for a frame"
        );
    }

    #[test]
    fn what_comes_before_there_are_shards_is_dropped() {
        let exchange = Exchange::default();
        exchange.deliver(MESSAGE);
        let Counts {
            received, dropped, ..
        } = &exchange.counts;
        assert_eq!(received.load(Ordering::Relaxed), 1);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
}
