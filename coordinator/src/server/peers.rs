//! Links to the other coordinators, one each: dialled when there is something to say, and kept.
//!
//! What cannot be sent is dropped: to raft it is a lost message.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ephesus_wire::handshake::LinkRole;

use super::met::{Met, OpenLink, Side, Stranger};
use crate::command::RaftId;
use crate::link::{Backoff, Dialer, Link, LinkError};
use crate::protocol::kind;

/// Messages that may wait for one coordinator.
pub const LETTERS_MAX: usize = 256;

/// A link that was closed sooner was not let in.
const LASTING: Duration = Duration::from_secs(1);

/// Something is said at least so often, which is more often than links put up with silence.
const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// When an end of a link has to say that it is there: what it hears does not count, since both ends of a
/// link watch for silence, and between coordinators each link carries the messages of one end only.
pub(super) struct Voice {
    spoke: Instant,
}

impl Voice {
    /// Of an end that has just spoken.
    pub(super) fn new() -> Voice {
        Voice { spoke: now() }
    }

    /// Waits until something has to be said.
    pub(super) async fn is_due(&self) {
        glommio::timer::sleep(ALIVE_EVERY.saturating_sub(self.spoke.elapsed())).await;
    }

    /// Something is being said.
    pub(super) fn speaks(&mut self) {
        self.spoke = now();
    }
}

/// Wakes whoever waits before it dials a coordinator again: that one is there, it has dialled.
#[derive(Default)]
pub(super) struct Doorbells(RefCell<BTreeMap<RaftId, flume::Sender<()>>>);

impl Doorbells {
    /// A coordinator has opened a link.
    pub(super) fn ring(&self, at: RaftId) {
        if let Some(bell) = self.0.borrow().get(&at) {
            // Full: it has been rung before.
            let _ = bell.try_send(());
        }
    }
}

struct Letter {
    address: String,
    kind: u16,
    payload: Vec<u8>,
}

/// The other coordinators.
pub(super) struct Peers {
    dialer: Rc<Dialer>,
    seed: u64,
    met: Rc<Met>,
    doorbells: Rc<Doorbells>,
    queues: BTreeMap<RaftId, flume::Sender<Letter>>,
}

impl Peers {
    /// `seed` is different for every coordinator.
    pub(super) fn new(
        dialer: Rc<Dialer>,
        seed: u64,
        met: Rc<Met>,
        doorbells: Rc<Doorbells>,
    ) -> Peers {
        Peers {
            dialer,
            seed,
            met,
            doorbells,
            queues: BTreeMap::new(),
        }
    }

    /// Sends a message of this kind to a coordinator, or drops it.
    pub(super) fn send(&mut self, to: RaftId, address: String, kind: u16, payload: Vec<u8>) {
        let (dialer, seed, doorbells) = (&self.dialer, self.seed, &self.doorbells);
        let queue = self.queues.entry(to).or_insert_with(|| {
            let (queue, letters) = flume::bounded(LETTERS_MAX);
            let backoff = Backoff::new(seed ^ to.0);
            let (bell, rung) = flume::bounded(1);
            doorbells.0.borrow_mut().insert(to, bell);
            let delivery = Delivery {
                to,
                dialer: Rc::clone(dialer),
                letters,
                rung,
                backoff,
                met: Rc::clone(&self.met),
            };
            glommio::spawn_local(delivery.run()).detach();
            queue
        });
        // A full queue is a peer that is not there.
        drop(queue.try_send(Letter {
            address,
            kind,
            payload,
        }));
    }

    /// Forgets those that are no coordinators any more.
    pub(super) fn retain(&mut self, is_peer: impl Fn(RaftId) -> bool) {
        self.queues.retain(|id, _| is_peer(*id));
        let mut bells = self.doorbells.0.borrow_mut();
        bells.retain(|id, _| is_peer(*id));
    }
}

/// What is said to one coordinator.
struct Delivery {
    to: RaftId,
    dialer: Rc<Dialer>,
    letters: flume::Receiver<Letter>,
    rung: flume::Receiver<()>,
    backoff: Backoff,
    met: Rc<Met>,
}

impl Delivery {
    /// Until nothing more will be said.
    async fn run(mut self) {
        let to = self.to;
        let mut is_known_lost = false;
        while let Ok(first) = self.letters.recv_async().await {
            let address = first.address.clone();
            let ended = match self.open(&address).await {
                Ok((link, _open)) => {
                    if !is_known_lost {
                        tracing::info!(coordinator = %to, %address, "connected");
                    }
                    let opened = now();
                    let ended = write(link, first, &self.letters).await;
                    if opened.elapsed() >= LASTING {
                        self.backoff.reset();
                        is_known_lost = false;
                    }
                    ended.into()
                }
                Err(unopened) => unopened,
            };
            if !is_known_lost {
                tracing::warn!(coordinator = %to, %address, error = %ended, "not connected");
                is_known_lost = true;
            }
            let waited = async {
                glommio::timer::sleep(self.backoff.next_wait()).await;
            };
            // Closed: it is no coordinator any more, as the letters tell next.
            let returned = async {
                let _ = self.rung.recv_async().await;
            };
            futures_lite::future::or(waited, returned).await;
            // What has waited meanwhile is old; raft says it again.
            while self.letters.try_recv().is_ok() {}
        }
    }

    async fn open(&self, address: &str) -> Result<(Link, OpenLink), Ended> {
        let link = self.dialer.dial(address).await?;
        let peer = link.opened().peer;
        if peer.role != LinkRole::Coordinator || peer.raft_id != self.to.0 {
            return Err(Ended::Misdirected);
        }
        let open = self.met.meet(&peer, Side::Dialled)?;
        Ok((link, open))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a shell: only the rhythm of its attempts depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

/// Why there is no link to a coordinator, or none any more.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Stranger(#[from] Stranger),
    #[error("somebody else is there")]
    Misdirected,
}

/// Writes until the link ends or the peer has moved.
async fn write(mut link: Link, first: Letter, letters: &flume::Receiver<Letter>) -> LinkError {
    let address = first.address.clone();
    if let Err(error) = link.send(first.kind, &first.payload) {
        return error;
    }
    enum Next {
        Letter(Option<Letter>),
        Heard(Result<(), LinkError>),
        Silent,
    }
    let mut voice = Voice::new();
    loop {
        let sender = link.sender();
        let said = async { Next::Letter(letters.recv_async().await.ok()) };
        let heard = async { Next::Heard(link.recv().await.map(drop)) };
        let silent = async {
            voice.is_due().await;
            Next::Silent
        };
        let next = futures_lite::future::or(silent, futures_lite::future::or(said, heard)).await;
        let sent = match next {
            Next::Letter(Some(letter)) if letter.address == address => {
                voice.speaks();
                sender.send(letter.kind, &letter.payload)
            }
            Next::Letter(_) => Err(LinkError::Local),
            Next::Heard(heard) => heard,
            Next::Silent => {
                voice.speaks();
                sender.send(kind::ALIVE, &[])
            }
        };
        if let Err(error) = sent {
            return error;
        }
    }
}
