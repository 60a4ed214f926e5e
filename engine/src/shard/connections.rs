//! The connections of a shard, by token, and the memory that they hold.

use super::connection::Connection;
use crate::net::ConnToken;

/// The connections of a shard, by token.
#[derive(Default)]
pub struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
    held_bytes: usize,
}

struct Slot {
    token: ConnToken,
    /// What the connection held when it was last counted.
    held_bytes: usize,
    connection: Option<Box<Connection>>,
    /// It was taken out, to be put back.
    is_out: bool,
}

impl Connections {
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory of all connections, as last counted.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The connection that holds most, and how much: one that was taken out, too, with what it held before.
    #[must_use]
    pub fn largest(&self) -> Option<(ConnToken, usize)> {
        // Those that asked not to be are closed last.
        let key = |slot: &&Slot| {
            let connection = slot.connection.as_ref();
            let is_spared = connection.is_some_and(|connection| connection.no_evict);
            (slot.held_bytes > 0 && !is_spared, slot.held_bytes)
        };
        let slot = self.slots.iter().max_by_key(key)?;
        (slot.held_bytes > 0).then_some((slot.token, slot.held_bytes))
    }

    /// Adds the connection that `make` returns for its token.
    #[expect(clippy::indexing_slicing, reason = "free places are of the slots")]
    pub fn insert(&mut self, make: impl FnOnce(ConnToken) -> Connection) -> ConnToken {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len() as u32;
            let generation = 0;
            self.slots.push(Slot {
                token: ConnToken { index, generation },
                held_bytes: 0,
                connection: None,
                is_out: false,
            });
            index
        });
        let slot = &mut self.slots[index as usize];
        slot.token = slot.token.next_generation();
        let token = slot.token;
        slot.connection = Some(Box::new(make(token)));
        self.len += 1;
        self.count(token);
        token
    }

    #[must_use]
    pub fn get(&self, token: ConnToken) -> Option<&Connection> {
        let slot = self.slots.get(token.index as usize)?;
        let connection = slot.connection.as_deref();
        connection.filter(|_| slot.token == token)
    }

    pub fn get_mut(&mut self, token: ConnToken) -> Option<&mut Connection> {
        self.slot_mut(token)?.connection.as_deref_mut()
    }

    fn slot_mut(&mut self, token: ConnToken) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.index as usize)?;
        (slot.token == token).then_some(slot)
    }

    /// Takes a connection out, to be put back in the same turn.
    pub fn take(&mut self, token: ConnToken) -> Option<Box<Connection>> {
        let slot = self.slot_mut(token)?;
        let connection = slot.connection.take();
        slot.is_out |= connection.is_some();
        connection
    }

    /// Whether the connection was taken out.
    #[must_use]
    pub fn is_out(&self, token: ConnToken) -> bool {
        let slot = self.slots.get(token.index as usize);
        slot.is_some_and(|slot| slot.token == token && slot.is_out)
    }

    /// Puts a connection back that was taken out, and counts what it holds.
    #[expect(
        clippy::indexing_slicing,
        reason = "a connection goes back to where it was taken"
    )]
    pub fn put_back(&mut self, connection: Box<Connection>) {
        let token = connection.token;
        let slot = &mut self.slots[token.index as usize];
        assert!(
            slot.token == token && slot.is_out,
            "put back where it was taken"
        );
        slot.is_out = false;
        slot.connection = Some(connection);
        self.count(token);
    }

    /// Counts what a connection holds by now.
    pub fn count(&mut self, token: ConnToken) {
        let Some(slot) = self.slot_mut(token) else {
            return;
        };
        let held = slot.connection.as_ref().map_or(0, |c| c.held_bytes());
        let before = std::mem::replace(&mut slot.held_bytes, held);
        self.held_bytes = self.held_bytes + held - before;
    }

    pub fn remove(&mut self, token: ConnToken) {
        let slot = self.slot_mut(token);
        if slot.and_then(|slot| slot.connection.take()).is_some() {
            self.count(token);
            self.free.push(token.index);
            self.len -= 1;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        let connections = self.slots.iter().map(|slot| slot.connection.as_deref());
        connections.flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.connection.as_deref_mut())
    }

    pub fn tokens(&self) -> Vec<ConnToken> {
        self.iter().map(|connection| connection.token).collect()
    }
}
