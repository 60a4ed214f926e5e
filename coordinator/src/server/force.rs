//! Recovers a cluster that has lost the majority of its coordinators: makes one that is left the only one.
//!
//! Offline, on the directory of a stopped coordinator. All that its log holds counts as decided, as any of it may
//! have been acknowledged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ephesus_wal::dir::DirError;
use ephesus_wal::{Durability, LogOptions, StdDisk};
use raft::prelude::Snapshot;
use raft::{GetEntriesContext, Storage};

use super::SEGMENT_BYTES;
use super::clock::Clock;
use super::error::ServerError;
use super::home::Home;
use crate::command::{ClusterId, RaftId};
use crate::member::{MemberError, carry_out};
use crate::state::State;
use crate::storage::RaftLog;

/// A stopped coordinator, and what it knows.
pub struct Stopped {
    log: RaftLog<StdDisk>,
    state: State,
    /// Its number.
    pub id: RaftId,
    /// Of the cluster; none: there is none yet.
    pub cluster: Option<ClusterId>,
    /// The last entry that it has, and its term: the lost ones may have decided more.
    pub entry: u64,
    /// See [`Stopped::entry`].
    pub term: u64,
    /// The other coordinators, which are given up.
    pub others: BTreeMap<RaftId, String>,
    clock: Clock,
    home: Home,
}

impl std::fmt::Debug for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopped")
            .field("home", &self.home)
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

impl Stopped {
    /// Reads a directory, and keeps it from being started.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn open(data_dir: &Path) -> Result<Stopped, ServerError> {
        let clock = Clock::start();
        let home = Home::existing(data_dir)?;
        let log_dir: PathBuf = home.path().join("log");
        let is_there = fs::exists(&log_dir).map_err(DirError::of("look for", &log_dir))?;
        if !is_there {
            return Err(ServerError::NoLog(log_dir));
        }
        let disk = StdDisk::new(&log_dir, Durability::Strict);
        let disk = disk.map_err(DirError::of("read", &log_dir))?;
        let log_options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            ..LogOptions::new(home.log)
        };
        let log = RaftLog::open(disk, &log_options, clock.wall_ms()).await?;
        if log.is_new() {
            return Err(ServerError::NoLog(log_dir));
        }
        let snapshot = log.latest_snapshot();
        let mut state = if snapshot.get_metadata().index == 0 {
            State::default()
        } else {
            State::from_snapshot(&snapshot.data).map_err(MemberError::from)?
        };
        let read = |result: raft::Result<_>| result.map_err(MemberError::from);
        let (first, last) = (read(log.first_index())?, read(log.last_index())?);
        let entries = log.entries(first, last + 1, None, GetEntriesContext::empty(false));
        for entry in &entries.map_err(MemberError::from)? {
            // What was refused had no effect.
            let _ = carry_out(&mut state, entry)?;
        }
        let mut others = state.coordinators().clone();
        others.remove(&home.id);
        Ok(Stopped {
            id: home.id,
            cluster: state.cluster(),
            entry: last,
            term: read(log.term(last))?,
            others,
            log,
            state,
            clock,
            home,
        })
    }

    /// Makes it the only coordinator; it leads when it is started the next time.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn force(mut self) -> Result<(), ServerError> {
        self.state.force(self.id)?;
        let mut snapshot = Snapshot {
            data: self.state.to_snapshot().into(),
            ..Snapshot::default()
        };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.entry, self.term);
        metadata.mut_conf_state().voters = vec![self.id.0];
        self.log.compact(snapshot, self.clock.wall_ms()).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;

    use super::super::Empty;
    use super::*;
    use crate::command::{Command, CoordinatorChange};
    use crate::member::{Input, Member, Ticket, founding};
    use crate::placement::Policy;
    use crate::state::tests::{bootstrap, register};

    fn home(path: &Path) -> Home {
        Home::open(path, RaftId(2), Empty::Founds).expect("a directory")
    }

    fn raft_log(home: &Home) -> RaftLog<StdDisk> {
        let disk = StdDisk::new(home.log_dir().expect("made"), Durability::Relaxed).expect("there");
        let options = LogOptions {
            segment_bytes: 1 << 20,
            ..LogOptions::new(home.log)
        };
        block_on(RaftLog::open(disk, &options, 0)).expect("opens")
    }

    fn entry(index: u64, command: &Command) -> raft::prelude::Entry {
        raft::prelude::Entry {
            index,
            term: 1,
            data: postcard::to_allocvec(command).expect("encodes").into(),
            ..Default::default()
        }
    }

    #[test]
    fn one_of_three_that_is_left_leads_with_all_that_it_has() {
        let directory = tempfile::tempdir().expect("a directory");
        let voters = [1, 2, 3].map(RaftId);
        {
            let home = home(directory.path());
            let mut log = raft_log(&home);
            block_on(log.persist(&founding(&voters), 0)).expect("written");
            let Command::Bootstrap {
                cluster, options, ..
            } = bootstrap(8, 1, Policy::Contiguous)
            else {
                panic!("a bootstrap");
            };
            let bootstrap = Command::Bootstrap {
                cluster,
                options,
                coordinators: voters.iter().map(|id| (*id, format!("c{id}:1"))).collect(),
            };
            let persist = crate::storage::Persist {
                // The last one was acknowledged by nobody yet, as far as this one knows.
                entries: vec![entry(2, &bootstrap), entry(3, &register(1, "athens", 1, 2))],
                ..Default::default()
            };
            block_on(log.persist(&persist, 0)).expect("written");
        }
        let stopped = block_on(Stopped::open(directory.path())).expect("opens");
        assert_eq!((stopped.id, stopped.entry), (RaftId(2), 3));
        assert_eq!(stopped.others.len(), 2);
        let version = stopped.state.table().version;
        assert!(matches!(
            Home::open(directory.path(), RaftId(2), Empty::Refused),
            Err(ServerError::Locked(_))
        ));
        block_on(stopped.force()).expect("forced");

        let home = home(directory.path());
        let mut member = Member::new(RaftId(2), raft_log(&home), None, 1).expect("starts");
        let change = CoordinatorChange::Remove { id: RaftId(1) };
        let inputs = [Input::Tick, Input::Change(Ticket(1), change)];
        for input in inputs {
            block_on(member.turn([input], 0, |_, _| {})).expect("runs");
        }
        assert!(member.is_settled(), "it leads alone");
        assert_eq!(member.voters(), [RaftId(2)]);
        let state = member.state();
        assert_eq!(
            state.coordinators().keys().collect::<Vec<_>>(),
            [&RaftId(2)]
        );
        assert_eq!(state.members().len(), 1, "what it had counts");
        assert!(state.table().version > version + (1 << 30));
    }

    #[test]
    fn a_directory_that_is_none_or_has_no_log_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let foreign = block_on(Stopped::open(directory.path()));
        assert!(matches!(foreign, Err(ServerError::Foreign(_))));
        drop(home(directory.path()));
        let empty = block_on(Stopped::open(directory.path()));
        assert!(matches!(empty, Err(ServerError::NoLog(_))), "{empty:?}");
    }
}
