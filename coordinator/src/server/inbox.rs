//! What waits for the coordinator's next turn: what coordinators say apart from what nodes and operators do, so
//! that neither votes nor the log wait behind requests, however many there are.
//!
//! Both are bounded; whoever has more to say waits, and with it its link. Requests that wait, here or at their links,
//! are bounded by their bytes as well: a link whose request is too much ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ephesus_wire::limits::FRAME_PAYLOAD_BYTES_MAX;

use crate::coordinator::Event;

/// What may wait of coordinators, and of nodes and operators.
const COORDINATORS_MAX: usize = 1024;
const REQUESTS_MAX: usize = 4096;

/// Bytes on the wire of requests that may wait: one of the longest is let in beside others. In memory they may be an
/// order of magnitude more.
pub const REQUEST_BYTES_MAX: usize = 2 * FRAME_PAYLOAD_BYTES_MAX;

/// Where events go: of coordinators, and of nodes and operators.
#[derive(Clone, Debug)]
pub struct Senders(pub flume::Sender<Event>, pub Requests);

/// Where events of nodes and operators go.
#[derive(Clone, Debug)]
pub struct Requests {
    waiting: flume::Sender<(Event, Option<Held>)>,
    bytes: Arc<AtomicUsize>,
}

/// Bytes that a request takes of [`REQUEST_BYTES_MAX`] until it is dropped.
#[derive(Debug)]
pub struct Held {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Requests {
    /// Room for a request of so many bytes, if there is some.
    #[must_use]
    pub fn hold(&self, bytes: usize) -> Option<Held> {
        let all = Arc::clone(&self.bytes);
        let held = Held { all, bytes };
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= REQUEST_BYTES_MAX).then_some(held)
    }

    /// Sends an event once there is a place for it, with the room that it takes, if it is a request.
    ///
    /// # Errors
    /// The inbox is gone.
    pub async fn send(&self, event: Event, held: Option<Held>) -> Result<(), Gone> {
        let sent = self.waiting.send_async((event, held)).await;
        sent.map_err(|_| Gone)
    }

    /// The same without waiting; whether it was sent.
    #[must_use]
    pub fn try_send(&self, event: Event, held: Option<Held>) -> bool {
        self.waiting.try_send((event, held)).is_ok()
    }

    /// The same for a thread that may wait.
    ///
    /// # Errors
    /// The inbox is gone.
    pub fn send_blocking(&self, event: Event) -> Result<(), Gone> {
        self.waiting.send((event, None)).map_err(|_| Gone)
    }
}

/// Nobody takes events any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The other end.
#[derive(Debug)]
pub struct Inbox {
    coordinators: flume::Receiver<Event>,
    requests: flume::Receiver<(Event, Option<Held>)>,
}

/// An empty inbox.
#[must_use]
pub fn inbox() -> (Senders, Inbox) {
    let (to_coordinators, coordinators) = flume::bounded(COORDINATORS_MAX);
    let (waiting, requests) = flume::bounded(REQUESTS_MAX);
    let bytes = Arc::default();
    let inbox = Inbox {
        coordinators,
        requests,
    };
    (Senders(to_coordinators, Requests { waiting, bytes }), inbox)
}

impl Inbox {
    /// How much waits that could be taken.
    #[must_use]
    pub fn waiting(&self, room: usize) -> usize {
        self.coordinators.len() + self.requests.len().min(room)
    }

    /// What is there: all of coordinators, then of nodes and operators what there is [room](crate::Coordinator::room)
    /// for, or a little more: a request is taken as a whole.
    #[must_use]
    pub fn take(&self, room: usize) -> Vec<Event> {
        let mut events: Vec<Event> = self.coordinators.try_iter().collect();
        let mut taken = 0;
        while taken < room
            && let Ok((event, _held)) = self.requests.try_recv()
        {
            taken += event.wants();
            events.push(event);
        }
        events
    }

    /// The next event for which there is room, once there is one.
    pub async fn first(&self, room: usize) -> Option<Event> {
        let coordinators = async { self.coordinators.recv_async().await.ok() };
        let requests = async {
            if room == 0 {
                std::future::pending::<()>().await;
            }
            let taken = self.requests.recv_async().await;
            taken.ok().map(|(event, _held)| event)
        };
        futures_lite::future::or(coordinators, requests).await
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::limits::SLOTS;
    use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

    use super::*;
    use crate::command::RaftId;
    use crate::coordinator::{SessionId, UNDECIDED_MAX};
    use crate::migration::Step;
    use crate::protocol::Request;
    use crate::report::Query;

    #[test]
    fn what_coordinators_say_comes_first_however_many_requests_wait() {
        let (Senders(coordinators, requests), inbox) = inbox();
        for n in 0..REQUESTS_MAX as u64 {
            assert!(
                requests.try_send(Event::Closed(SessionId(n)), None),
                "there is room"
            );
        }
        assert!(!requests.try_send(Event::StepAside, None), "bounded");
        for id in 0..COORDINATORS_MAX as u64 {
            coordinators
                .try_send(Event::Lost(RaftId(id)))
                .expect("requests take no room of coordinators");
        }
        let taken = inbox.take(1000);
        assert_eq!(taken.len(), COORDINATORS_MAX + 1000);
        let (first, rest) = taken.split_at(COORDINATORS_MAX);
        assert!(first.iter().all(|event| matches!(event, Event::Lost(_))));
        assert!(rest.iter().all(|event| matches!(event, Event::Closed(_))));
    }

    #[test]
    fn requests_that_wait_are_bounded_by_their_bytes() {
        let (Senders(_coordinators, requests), inbox) = inbox();
        let most = FRAME_PAYLOAD_BYTES_MAX;
        let first = requests.hold(most).expect("room");
        let second = requests.hold(most).expect("room");
        assert!(requests.hold(1).is_none(), "all is held");
        drop(second);
        assert!(requests.hold(most + 1).is_none());
        let again = requests
            .hold(most)
            .expect("a request that was dropped holds nothing");
        let sent = requests.send(Event::Closed(SessionId(1)), Some(first));
        futures_lite::future::block_on(sent).expect("there is room");
        assert!(requests.hold(1).is_none(), "it waits");
        assert_eq!(inbox.take(1).len(), 1);
        drop(requests.hold(most).expect("it was taken"));
        let sent = requests.send(Event::Closed(SessionId(1)), Some(again));
        futures_lite::future::block_on(sent).expect("there is room");
        assert!(futures_lite::future::block_on(inbox.first(1)).is_some());
        assert!(requests.hold(REQUEST_BYTES_MAX).is_some());
    }

    #[test]
    fn requests_wait_while_there_is_no_room_for_what_they_want_to_have_decided() {
        let (Senders(coordinators, requests), inbox) = inbox();
        let steps = |count| Request::Steps {
            node: NodeId([1; 16]),
            incarnation: 1,
            steps: (0..count)
                .map(|id| (MigrationId(id), Step::Begin))
                .collect(),
        };
        for _ in 0..10 {
            let event = Event::Request(SessionId(1), steps(30));
            assert!(requests.try_send(event, None), "there is room");
        }
        assert_eq!(inbox.take(90).len(), 3);
        assert_eq!(inbox.take(91).len(), 4, "a request is taken as a whole");
        assert!(inbox.take(0).is_empty());
        drop(inbox.take(usize::MAX));
        let copies = |count| Request::Hosting {
            node: NodeId([1; 16]),
            copies: (0..count).map(|p| (PartitionId(p), Epoch(1))).collect(),
        };
        for count in [SLOTS, 100, 100, SLOTS, SLOTS] {
            let event = Event::Request(SessionId(1), copies(count));
            assert!(requests.try_send(event, None), "there is room");
        }
        assert_eq!(inbox.take(UNDECIDED_MAX).len(), 1, "all partitions at once");
        assert_eq!(inbox.take(UNDECIDED_MAX).len(), 3);
        drop(inbox.take(usize::MAX));
        for id in 0..100 {
            let query = Query::Partitions;
            let event = Event::Request(SessionId(1), Request::Operator { id, query });
            assert!(requests.try_send(event, None), "there is room");
        }
        let taken = inbox.take(UNDECIDED_MAX);
        assert_eq!(taken.len(), 4, "answers may be large");
        let lost = Event::Lost(RaftId(2));
        coordinators.try_send(lost).expect("there is room");
        let first = futures_lite::future::block_on(inbox.first(0));
        assert!(matches!(first, Some(Event::Lost(_))), "coordinators go on");
    }
}
