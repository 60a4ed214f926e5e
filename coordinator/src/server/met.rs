//! The coordinators that this one has met, each by its number and the UUID of its directory, and how
//! many links to each are open.
//!
//! ```text
//! DIR/met    a number and a UUID per line
//! ```
//!
//! A coordinator that comes back with an emptied directory has forgotten how it voted. It has another
//! UUID then, and nobody who has met the one before lets it in under its number.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ephesus_wal::dir::{self, DirError};
use ephesus_wire::NodeId;
use ephesus_wire::handshake::Identity;

use super::error::ServerError;
use crate::command::RaftId;
use crate::coordinator::Event;

pub(super) const FILE: &str = "met";

/// Why a coordinator is not let in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stranger {
    /// Its directory was emptied or replaced.
    #[error(
        "coordinator {0} is not the one that was met before, its directory is new: remove it with \
         `ephesus coordinator-member remove {0}` and add another; where no cluster was founded yet, \
         empty the directories of all"
    )]
    Another(RaftId),
    /// No coordinator of this cluster has this number: `--peers` and `coordinator-member add` say which do.
    #[error("there is no coordinator {0}, as far as this one knows")]
    Unknown(RaftId),
    /// It could not be noted.
    #[error(transparent)]
    Io(#[from] DirError),
}

/// How a link to a coordinator came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This one has dialled the address that the cluster gives.
    Dialled,
    /// Somebody says to be it.
    Accepted,
}

/// Who was met.
#[derive(Debug)]
pub(super) struct Met {
    home: PathBuf,
    uuids: RefCell<BTreeMap<RaftId, NodeId>>,
    /// Numbers that are coordinators', as far as this one knows.
    known: RefCell<BTreeSet<RaftId>>,
    links: RefCell<BTreeMap<RaftId, usize>>,
    /// What was said on new links, and not taken yet.
    introduced: RefCell<Vec<Event>>,
    events: flume::Sender<Event>,
}

/// An open link to a coordinator; the end of the last one is an event.
#[derive(Debug)]
pub(super) struct OpenLink {
    met: Rc<Met>,
    id: RaftId,
}

impl Met {
    /// Those that `home` names, and this coordinator itself.
    ///
    /// # Errors
    /// [`ServerError`].
    pub(super) fn read(
        home: &Path,
        own: (RaftId, NodeId),
        events: flume::Sender<Event>,
    ) -> Result<Rc<Met>, ServerError> {
        let path = home.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(DirError::of("read", &path)(error).into()),
        };
        let mut uuids = BTreeMap::from([own]);
        for line in text.lines() {
            let met = line.split_once(' ').and_then(|(id, uuid)| {
                let uuid = uuid.parse::<NodeId>().ok()?;
                Some((RaftId(id.parse().ok()?), uuid))
            });
            let damaged = || ServerError::Stamp {
                path: path.clone(),
                what: "a line is no number and UUID".to_owned(),
            };
            uuids.extend([met.ok_or_else(damaged)?]);
        }
        Ok(Rc::new(Met {
            home: home.to_owned(),
            uuids: RefCell::new(uuids),
            known: RefCell::default(),
            links: RefCell::default(),
            introduced: RefCell::default(),
            events,
        }))
    }

    /// What coordinators have said of themselves on links that are new since the last call.
    pub(super) fn introduced(&self) -> Vec<Event> {
        self.introduced.take()
    }

    /// Notes which numbers are coordinators'.
    pub(super) fn set_known(&self, known: impl Iterator<Item = RaftId>) {
        let mut set = self.known.borrow_mut();
        set.clear();
        set.extend(known);
    }

    /// Lets a coordinator in: one that was met before, or the first under a number that is a coordinator's.
    /// That is noted durably where this one has dialled: who is at the address of a number has it, not who
    /// says so first.
    ///
    /// # Errors
    /// [`Stranger`].
    pub(super) fn meet(self: &Rc<Met>, peer: &Identity, side: Side) -> Result<OpenLink, Stranger> {
        let (id, uuid) = (RaftId(peer.raft_id), peer.node);
        let met = self.uuids.borrow().get(&id).copied();
        match met {
            Some(met) if met != uuid => return Err(Stranger::Another(id)),
            _ if !self.known.borrow().contains(&id) => return Err(Stranger::Unknown(id)),
            Some(_) => {}
            None if side == Side::Accepted => {}
            None => {
                let mut uuids = self.uuids.borrow().clone();
                uuids.insert(id, uuid);
                let lines = uuids.iter().map(|(id, uuid)| format!("{id} {uuid}\n"));
                dir::replace(&self.home, FILE, lines.collect::<String>().as_bytes())?;
                self.uuids.replace(uuids);
            }
        }
        let introduced = Event::Introduced(id, peer.versions);
        self.introduced.borrow_mut().push(introduced);
        *self.links.borrow_mut().entry(id).or_default() += 1;
        Ok(OpenLink {
            met: Rc::clone(self),
            id,
        })
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        let mut links = self.met.links.borrow_mut();
        let open = links.entry(self.id).or_default();
        *open = open.saturating_sub(1);
        if *open == 0 {
            links.remove(&self.id);
            // Full: the silence tells as well.
            let _ = self.met.events.try_send(Event::Lost(self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::handshake::LinkRole;

    use super::*;
    use crate::protocol;

    fn peer(id: u64, uuid: u8) -> Identity {
        Identity {
            raft_id: id,
            ..protocol::identity(LinkRole::Coordinator, NodeId([uuid; 16]))
        }
    }

    fn read(home: &Path) -> (Rc<Met>, flume::Receiver<Event>) {
        let (events, inbox) = flume::unbounded();
        let own = (RaftId(1), NodeId([1; 16]));
        let met = Met::read(home, own, events).expect("reads");
        met.set_known((1..=3).map(RaftId));
        (met, inbox)
    }

    #[test]
    fn a_coordinator_keeps_its_uuid_over_restarts_of_those_who_met_it() {
        let home = tempfile::tempdir().expect("a directory");
        let (met, _inbox) = read(home.path());
        met.meet(&peer(2, 9), Side::Accepted)
            .expect("whoever says so, for now");
        met.meet(&peer(2, 2), Side::Dialled).expect("the first");
        met.meet(&peer(2, 2), Side::Accepted).expect("the same");
        for _ in 0..2 {
            let (met, _inbox) = read(home.path());
            for (id, uuid) in [(2, 9), (1, 9)] {
                let stranger = met.meet(&peer(id, uuid), Side::Accepted);
                assert!(matches!(stranger, Err(Stranger::Another(found)) if found == RaftId(id)));
            }
            met.meet(&peer(2, 2), Side::Dialled).expect("the same");
            met.meet(&peer(3, 3), Side::Dialled)
                .expect("another number");
        }
        fs::write(home.path().join(FILE), "2 x\n").expect("written");
        let (events, _inbox) = flume::unbounded();
        let own = (RaftId(1), NodeId([1; 16]));
        assert!(Met::read(home.path(), own, events).is_err(), "damaged");
    }

    #[test]
    fn only_coordinators_of_the_cluster_are_let_in_and_nothing_is_kept_of_others() {
        let home = tempfile::tempdir().expect("a directory");
        let (met, inbox) = read(home.path());
        for id in 4..1_000 {
            for side in [Side::Accepted, Side::Dialled] {
                let stranger = met.meet(&peer(id, 7), side);
                assert!(matches!(stranger, Err(Stranger::Unknown(found)) if found == RaftId(id)));
            }
        }
        assert!(met.introduced().is_empty() && inbox.is_empty());
        assert!(met.links.borrow().is_empty());
        assert!(!home.path().join(FILE).exists(), "nobody was noted");
    }

    #[test]
    fn only_the_end_of_the_last_link_is_an_event() {
        let home = tempfile::tempdir().expect("a directory");
        let (met, inbox) = read(home.path());
        let meet = || met.meet(&peer(2, 2), Side::Accepted).expect("let in");
        let (first, second) = (meet(), meet());
        drop(first);
        assert!(inbox.is_empty());
        drop(second);
        assert!(matches!(inbox.try_recv(), Ok(Event::Lost(RaftId(2)))));
    }
}
