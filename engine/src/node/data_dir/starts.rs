//! By what the starts of a node are known to its cluster, so that an older copy of its directory is recognised.
//!
//! ```text
//! DIR/starts   text: "accepted NONCE\n" if a start was, "proposed NONCE\n" while it is not known whether this one was;
//!              NONCE is 32 hex digits
//! ```
//!
//! 1. A start draws a nonce and notes it as proposed, durably, before it registers; the coordinators note it with
//!    the registration, and accept it if they have last noted what the directory says to be accepted or proposed.
//! 2. Once the node hears that it is noted, it is accepted, and nothing is proposed any more; it serves only then.
//! 3. A start that finds a proposed nonce does not know what became of it, and proposes the same again: whether the
//!    coordinators have noted that one or the accepted one, they take it. So no crash locks the node out.
//!
//! A copy of the directory from before the last accepted start is refused. One from during that start is not told
//! apart.

use std::fs;
use std::io;
use std::path::Path;

use ephesus_coordinator::command::{Nonce, StartProof};
use ephesus_wal::dir::{self, DirError};
use ephesus_wire::NodeId;

use super::DataDirError;

const FILE: &str = "starts";

/// What the file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Starts {
    accepted: Option<Nonce>,
    proposed: Option<Nonce>,
}

/// Notes a start that is about to register.
///
/// # Errors
/// A damaged file, or what the operating system says.
pub fn propose(data_dir: &Path, accepts_old: bool) -> Result<StartProof, DataDirError> {
    let starts = read(data_dir)?;
    let nonce = match starts.proposed {
        Some(nonce) => nonce,
        None => {
            let nonce = Nonce(uuid::Uuid::new_v4().into_bytes());
            let proposed = Some(nonce);
            write(data_dir, Starts { proposed, ..starts })?;
            nonce
        }
    };
    Ok(StartProof {
        previous: starts.accepted,
        nonce,
        accepts_old,
    })
}

/// Whether any start was noted: none of a release that does not do so.
///
/// # Errors
/// What the operating system says.
pub fn is_noted(data_dir: &Path) -> Result<bool, DataDirError> {
    let file = data_dir.join(FILE);
    Ok(file.try_exists().map_err(DirError::of("look for", &file))?)
}

/// Notes that a start was accepted.
///
/// # Errors
/// What the operating system says.
pub fn accepted(data_dir: &Path, nonce: Nonce) -> Result<(), DataDirError> {
    let starts = Starts {
        accepted: Some(nonce),
        proposed: None,
    };
    if read(data_dir)? == starts {
        return Ok(());
    }
    write(data_dir, starts)
}

fn read(data_dir: &Path) -> Result<Starts, DataDirError> {
    let file = data_dir.join(FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(DirError::of("read", &file)(error).into()),
    };
    parse(&text).ok_or_else(|| DataDirError::Damaged {
        file,
        reason: "a line is not `accepted` or `proposed` and 32 hex digits".to_owned(),
    })
}

fn write(data_dir: &Path, starts: Starts) -> Result<(), DataDirError> {
    let named = [("accepted", starts.accepted), ("proposed", starts.proposed)];
    let lines = named
        .iter()
        .filter_map(|(name, nonce)| Some((name, (*nonce)?)));
    let text: String = lines
        .map(|(name, nonce)| format!("{name} {nonce}\n"))
        .collect();
    Ok(dir::replace(data_dir, FILE, text.as_bytes())?)
}

fn parse(text: &str) -> Option<Starts> {
    let mut starts = Starts::default();
    for line in text.lines() {
        let (name, nonce) = line.split_once(' ')?;
        // As UUIDs are written.
        let NodeId(nonce) = nonce.parse().ok()?;
        let place = match name {
            "accepted" => &mut starts.accepted,
            "proposed" => &mut starts.proposed,
            _ => return None,
        };
        *place = Some(Nonce(nonce));
    }
    Some(starts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ephesus_coordinator::State;
    use ephesus_coordinator::command::{
        Addresses, ClusterId, ClusterOptions, Command, RaftId, Registration,
    };
    use ephesus_coordinator::placement::Policy;
    use ephesus_coordinator::protocol::VERSIONS;
    use ephesus_coordinator::state::Refusal;

    use super::*;

    const NODE: NodeId = NodeId([7; 16]);

    /// A cluster of one coordinator, which speaks what this release does.
    fn cluster() -> State {
        let mut state = State::default();
        let bootstrap = Command::Bootstrap {
            cluster: ClusterId([1; 16]),
            options: ClusterOptions {
                partitions: 4,
                min_nodes: 1,
                policy: Policy::Contiguous,
                heartbeat_timeout_ms: 2_000,
            },
            coordinators: BTreeMap::from([(RaftId(1), "c:1".to_owned())]),
        };
        let (id, speaks) = (RaftId(1), VERSIONS);
        for command in [bootstrap, Command::CoordinatorSpeaks { id, speaks }] {
            state.apply(&command).expect("not refused");
        }
        state
    }

    /// A start registers under the number that its directory counts.
    fn register(state: &mut State, incarnation: u64, start: StartProof) -> Result<(), Refusal> {
        let registration = Registration {
            node: NODE,
            cluster: None,
            name: "athens".to_owned(),
            incarnation,
            addresses: Addresses {
                entry: "a:1".to_owned(),
                tls_port: None,
                peer: "a:2".to_owned(),
                rack: String::new(),
            },
            shards: 1,
            capacity: 100,
            speaks: VERSIONS,
        };
        let command = Command::RegisterStart {
            registration,
            start,
        };
        state.apply(&command).map(drop)
    }

    #[test]
    fn no_crash_at_any_step_locks_a_node_out_and_older_copies_are_refused() {
        // Each digit says where a start ends: before it registers, before it hears that it was accepted, or later.
        for ends in 0..3_u32.pow(5) {
            let home = tempfile::tempdir().expect("a directory");
            let mut state = cluster();
            let mut copies = Vec::new();
            for nth in 0..5 {
                let start = propose(home.path(), false).expect("noted");
                let end = ends / 3_u32.pow(nth) % 3;
                if end == 0 {
                    continue;
                }
                let taken = register(&mut state, u64::from(nth) + 1, start);
                assert_eq!(taken, Ok(()), "{ends}: start {nth} is locked out");
                if end == 2 {
                    accepted(home.path(), start.nonce).expect("noted");
                    copies.push(fs::read(home.path().join(FILE)).expect("there"));
                }
            }
            // What was copied before another start was accepted is old.
            let newest = propose(home.path(), false).expect("noted");
            assert_eq!(register(&mut state, 9, newest), Ok(()));
            for copy in copies.iter().rev().skip(1) {
                fs::write(home.path().join(FILE), copy).expect("restored");
                let start = propose(home.path(), false).expect("noted");
                let refused = register(&mut state.clone(), 99, start);
                assert_eq!(refused, Err(Refusal::OldDirectory(NODE)), "{ends}");
                let start = propose(home.path(), true).expect("noted");
                assert_eq!(register(&mut state.clone(), 99, start), Ok(()));
            }
        }
    }

    #[test]
    fn a_directory_without_the_file_is_taken_once_and_then_known() {
        let home = tempfile::tempdir().expect("a directory");
        let mut state = cluster();
        let start = propose(home.path(), false).expect("noted");
        assert_eq!(register(&mut state, 3, start), Ok(()));
        accepted(home.path(), start.nonce).expect("noted");
        accepted(home.path(), start.nonce).expect("heard again");
        // A copy from before the file was there.
        let older = tempfile::tempdir().expect("a directory");
        let start = propose(older.path(), false).expect("noted");
        let refused = register(&mut state, 99, start);
        assert_eq!(refused, Err(Refusal::OldDirectory(NODE)));
        let bytes = state.to_snapshot();
        assert_eq!(State::from_snapshot(&bytes).expect("our own"), state);
    }

    #[test]
    fn a_file_that_is_not_one_is_damage() {
        let home = tempfile::tempdir().expect("a directory");
        fs::write(home.path().join(FILE), "accepted x\n").expect("written");
        let damaged = propose(home.path(), false);
        assert!(matches!(damaged, Err(DataDirError::Damaged { .. })));
    }
}
