//! The commands by which clients move slots: a thread asks the coordinators, so that no shard waits.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_coordinator::ask::ask;
use ephesus_coordinator::report::{MigrationsReport, Query, Report};
use ephesus_coordinator::view::View;
use ephesus_wire::handshake::Secret;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{NodeId, ShardId};

use super::command::{self, Here, SlotCommand, Wanted};
use crate::by_shard::ByShard;
use crate::shard::mesh::{Message, Origin, Peer};

/// Commands that wait; those beyond are refused.
const QUEUED_MAX: usize = 64;

/// How long the coordinators are asked for one command.
const ASK_LIMIT: Duration = Duration::from_secs(3);

/// A command of a client.
#[derive(Debug)]
pub struct Asked {
    /// Where the reply goes.
    pub origin: Origin,
    /// How it is written.
    pub protocol: Protocol,
    /// What it says.
    pub command: SlotCommand,
    /// The shard at whose port it came in; none: the entry port.
    pub shard: Option<ShardId>,
}

/// The thread, as the node has it.
#[derive(Debug)]
pub struct SlotMigrations {
    queue: flume::Sender<Asked>,
    /// Nothing is ever sent: the thread ends with it.
    running: flume::Sender<()>,
    view: Arc<Mutex<Arc<View>>>,
    thread: JoinHandle<()>,
}

impl SlotMigrations {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread.
    pub fn start(
        node: NodeId,
        secret: Option<Secret>,
        view: Arc<View>,
        peers: ByShard<Peer>,
    ) -> io::Result<SlotMigrations> {
        let (queue, asked) = flume::bounded::<Asked>(QUEUED_MAX);
        let (running, is_over) = flume::bounded::<()>(0);
        let view = Arc::new(Mutex::new(view));
        let handler = SlotMigrationHandler {
            node,
            secret,
            view: Arc::clone(&view),
        };
        let next = move || {
            let first = flume::Selector::new().recv(&asked, Result::ok);
            let first = first.recv(&is_over, |_| None).wait()?;
            Some(std::iter::once(first).chain(asked.try_iter()).collect())
        };
        let thread = std::thread::Builder::new()
            .name("slot-moves".to_owned())
            .spawn(move || {
                let reply = |origin: Origin, bytes| {
                    peers[origin.shard].send(Message::Reply { origin, bytes });
                };
                while let Some(waiting) = next() {
                    handler.reply_all(waiting, reply);
                }
            })?;
        Ok(SlotMigrations {
            queue,
            running,
            view,
            thread,
        })
    }

    /// Where shards put commands.
    #[must_use]
    pub fn queue(&self) -> flume::Sender<Asked> {
        self.queue.clone()
    }

    /// Another table.
    pub fn follow(&self, view: Arc<View>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// Ends the thread; commands that wait get no reply.
    pub fn stop(self) {
        drop(self.running);
        if self.thread.join().is_err() {
            tracing::error!("the thread that moves slots ended in a panic");
        }
    }
}

/// Where clients' commands are carried out.
struct SlotMigrationHandler {
    node: NodeId,
    secret: Option<Secret>,
    view: Arc<Mutex<Arc<View>>>,
}

impl SlotMigrationHandler {
    /// Answers all that wait: those who only look with what one question has found.
    fn reply_all(&self, waiting: Vec<Asked>, reply: impl Fn(Origin, Vec<u8>)) {
        let (looks, changes): (Vec<Asked>, Vec<Asked>) = waiting
            .into_iter()
            .partition(|asked| asked.command == SlotCommand::List);
        if !looks.is_empty() {
            let view = self.view();
            let found = self.migrations(&view);
            for asked in looks {
                reply(asked.origin, self.shown(&asked, &view, found.as_ref()));
            }
        }
        for asked in changes {
            reply(asked.origin, self.changed(&asked));
        }
    }

    fn view(&self) -> Arc<View> {
        let view = self.view.lock();
        Arc::clone(&view.unwrap_or_else(PoisonError::into_inner))
    }

    fn here(&self, asked: &Asked) -> Here {
        Here {
            node: self.node,
            shard: asked.shard,
        }
    }

    fn shown(
        &self,
        asked: &Asked,
        view: &View,
        found: Result<&MigrationsReport, &String>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        match found {
            Ok(report) => command::write(&mut out, asked.protocol, report, view, self.here(asked)),
            Err(text) => reply::error(&mut out, &format!("ERR {text}")),
        }
        out
    }

    fn changed(&self, asked: &Asked) -> Vec<u8> {
        let (view, here) = (self.view(), self.here(asked));
        let mut out = Vec::new();
        let done = match &asked.command {
            SlotCommand::Migrate(wanted) => self.migrate(wanted, &view, here),
            SlotCommand::Cancel => self.cancel(&view, here),
            SlotCommand::List => Ok(()),
        };
        match done {
            Ok(()) => out.extend_from_slice(reply::OK),
            Err(text) => reply::error(&mut out, &format!("ERR {text}")),
        }
        out
    }

    fn migrate(&self, wanted: &[Wanted], view: &View, here: Here) -> Result<(), String> {
        let moves = command::moves(wanted, view, here).map_err(|error| error.to_string())?;
        let moves = moves
            .iter()
            .map(|wanted| {
                let (partition, to) = (wanted.partition.0, wanted.to);
                (partition, to.node.to_string(), to.shard.0)
            })
            .collect();
        let Report::Planned(rows) = self.ask(view, &Query::MoveAll { moves })? else {
            return Err(UNEXPECTED.to_owned());
        };
        let Some(refusal) = rows.iter().find_map(|row| row.refusal.clone()) else {
            return Ok(());
        };
        // All or none.
        let ids: Vec<u64> = rows.iter().filter_map(|row| row.migration).collect();
        if !ids.is_empty() {
            self.ask(view, &Query::CancelMigrations { ids })?;
        }
        Err(refusal)
    }

    fn cancel(&self, view: &View, here: Here) -> Result<(), String> {
        let leaving = command::leaving(&self.migrations(view)?, view, here);
        if leaving.is_empty() {
            return Err("No migrations ongoing".to_owned());
        }
        self.ask(view, &Query::CancelMigrations { ids: leaving })?;
        Ok(())
    }

    fn migrations(&self, view: &View) -> Result<MigrationsReport, String> {
        match self.ask(view, &Query::Migrations)? {
            Report::Migrations(report) => Ok(report),
            _ => Err(UNEXPECTED.to_owned()),
        }
    }

    fn ask(&self, view: &View, query: &Query) -> Result<Report, String> {
        let coordinators: Vec<String> = view.coordinators.values().cloned().collect();
        match ask(&coordinators, self.secret.as_ref(), query, ASK_LIMIT) {
            Ok(Report::Refused(refusal)) => Err(refusal.to_string()),
            Ok(Report::NoSuchNode(name)) => Err(format!("there is no node {name}")),
            Ok(report) => Ok(report),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A coordinator of another release.
const UNEXPECTED: &str = "the coordinator has answered something else";
