//! ACL LOAD and ACL SAVE: a thread reads and writes the file, so that no shard waits.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use ephesus_wire::resp::reply;

use super::shared::{AclFile, SharedUsers};
use super::storage;
use super::users::Users;
use crate::by_shard::ByShard;
use crate::shard::mesh::{Message, Origin, Peer};

/// Commands that wait; those beyond are refused.
const QUEUED_MAX: usize = 16;

const SAVE_FAILED: &str = "ERR There was an error trying to save the ACLs. Please check the server logs for more information";

/// A command of a client.
#[derive(Debug)]
pub struct Asked {
    /// Where the reply goes.
    pub origin: Origin,
    /// ACL SAVE rather than ACL LOAD.
    pub saves: bool,
}

/// The thread, as the node has it.
#[derive(Debug)]
pub struct AclFileThread {
    /// Nothing is ever sent: the thread ends with it.
    running: flume::Sender<()>,
    thread: JoinHandle<()>,
}

impl AclFileThread {
    /// Starts the thread, and answers the users that it shares with the shards.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        path: PathBuf,
        users: Users,
        peers: ByShard<Peer>,
    ) -> io::Result<(AclFileThread, Arc<SharedUsers>)> {
        let (queue, asked) = flume::bounded::<Asked>(QUEUED_MAX);
        let (running, is_over) = flume::bounded::<()>(0);
        let file = AclFile { path, queue };
        let shared = Arc::new(SharedUsers::new(users, Some(file)));
        let users = Arc::clone(&shared);
        let next = move || {
            let next = flume::Selector::new().recv(&asked, Result::ok);
            next.recv(&is_over, |_| None).wait()
        };
        let thread = std::thread::Builder::new()
            .name("acl-file".to_owned())
            .spawn(move || {
                while let Some(asked) = next() {
                    let mut bytes = Vec::new();
                    match carry_out(&users, asked.saves) {
                        Ok(()) => bytes.extend_from_slice(reply::OK),
                        Err(text) => reply::error(&mut bytes, &text),
                    }
                    let origin = asked.origin;
                    // Before the reply, so that it finds nobody who was removed.
                    peers.iter().for_each(|peer| peer.waker().wake());
                    peers[origin.shard].send(Message::Reply { origin, bytes });
                }
            })?;
        Ok((AclFileThread { running, thread }, shared))
    }

    /// Ends the thread; commands that wait get no reply.
    pub fn stop(self) {
        drop(self.running);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the ACL file ended in a panic");
        }
    }
}

fn carry_out(users: &SharedUsers, saves: bool) -> Result<(), String> {
    let Some(path) = users.file_path() else {
        return Ok(());
    };
    if saves {
        return storage::save_users(path, &users.newest()).map_err(|error| {
            tracing::error!(%error, path = %path.display(), "the ACL file was not saved");
            SAVE_FAILED.to_owned()
        });
    }
    let loaded = storage::load_users(path).map_err(|error| format!("ERR {error}"))?;
    users.replace(loaded);
    Ok(())
}
