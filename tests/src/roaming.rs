//! A cluster client as small as one can be: it knows who serves a slot, and follows MOVED.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::resp::{Client, Reply};
use crate::slots::{SLOTS, slot};

/// Redirections in a row that one command may take.
const HOPS_MAX: usize = 5;

/// Between two attempts of a command that waits for its node.
const RETRY: Duration = Duration::from_millis(10);

/// Connections to every shard that owns a key asked for.
#[derive(Debug)]
pub struct Roaming {
    seeds: Vec<SocketAddr>,
    owners: Vec<Option<SocketAddr>>,
    clients: BTreeMap<SocketAddr, Client>,
    /// Redirections followed so far.
    pub moved: u64,
}

impl Roaming {
    /// A client that knows nothing but where to begin.
    pub fn new(seeds: Vec<SocketAddr>) -> Self {
        assert!(!seeds.is_empty(), "an address to begin at");
        Self {
            seeds,
            owners: vec![None; usize::from(SLOTS)],
            clients: BTreeMap::new(),
            moved: 0,
        }
    }

    /// Sends a command to whoever serves its first key, the word behind its name.
    ///
    /// # Errors
    /// When a connection cannot be made or breaks; whether the command was executed is not known.
    /// The next call begins elsewhere.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Reply> {
        let slot = usize::from(slot(words[1].as_ref()));
        for _ in 0..HOPS_MAX {
            let at = self.owners[slot].unwrap_or(self.seeds[slot % self.seeds.len()]);
            let reply = match self.ask(at, words) {
                Ok(reply) => reply,
                Err(error) => {
                    self.forget(at);
                    return Err(error);
                }
            };
            let Some(owner) = moved(&reply) else {
                return Ok(reply);
            };
            self.moved += 1;
            self.owners[slot] = Some(owner);
        }
        panic!("slot {slot} leads in circles");
    }

    /// Nobody is sent there any more, unless others say so.
    fn forget(&mut self, lost: SocketAddr) {
        for owner in &mut self.owners {
            owner.take_if(|owner| *owner == lost);
        }
        self.seeds.rotate_left(1);
    }

    fn ask<A: AsRef<[u8]>>(&mut self, at: SocketAddr, words: &[A]) -> io::Result<Reply> {
        let mut client = match self.clients.remove(&at) {
            Some(client) => client,
            None => Client::connect_to(at)?,
        };
        let reply = client.try_call(words)?;
        self.clients.insert(at, client);
        Ok(reply)
    }

    /// The same.
    ///
    /// # Panics
    /// When a connection breaks.
    pub fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        self.try_call(words).unwrap_or_else(|error| {
            let words = words.iter().map(|word| word.as_ref().escape_ascii());
            let words: Vec<String> = words.map(|word| word.to_string()).collect();
            panic!("{}: {error}", words.join(" "))
        })
    }

    /// The same, again and again until it is neither an error nor a broken connection: only for
    /// what may be executed twice.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn insist<A: AsRef<[u8]>>(&mut self, words: &[A], at_most: Duration) -> Reply {
        let deadline = Instant::now() + at_most;
        loop {
            let last = match self.try_call(words) {
                Ok(reply) if reply.error().is_none() => return reply,
                Ok(reply) => format!("{reply:?}"),
                Err(error) => error.to_string(),
            };
            assert!(Instant::now() < deadline, "not within {at_most:?}: {last}");
            std::thread::sleep(RETRY);
        }
    }
}

/// Where `-MOVED slot host:port` leads.
pub fn moved(reply: &Reply) -> Option<SocketAddr> {
    let mut words = reply.error()?.strip_prefix("MOVED ")?.split(' ');
    let address = words.nth(1).expect("MOVED has a slot and an address");
    Some(address.parse().expect("MOVED names host:port"))
}
