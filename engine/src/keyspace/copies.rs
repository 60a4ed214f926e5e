//! Values that are given to other servers (MIGRATE): what they were, and whether they still are.

use super::watched::Watcher;
use super::{Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::spec::Cmd;

/// A value as it was when it was copied.
#[derive(Clone, Debug)]
pub struct Copied {
    /// As it is stored.
    pub key: Box<[u8]>,
    /// As DUMP answers it.
    pub dump: Vec<u8>,
    /// What was left to live, 0: for ever.
    pub ttl_ms: u64,
}

impl Copied {
    /// Memory that it takes, also where its key is [watched](Keyspace::watch_copies), in nodes that are half full.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let watched = 2 * size_of::<(u64, Watcher)>();
        size_of::<Copied>() + self.key.len() + self.dump.capacity() + watched
    }
}

impl Keyspace {
    /// Copies a value, if it is there; `reply` waits for what has written it.
    pub fn copied(&mut self, key: &[u8], reply: &mut Reply<'_>) -> Option<Copied> {
        let now_ms = self.now_ms;
        let name = self.key(key);
        let entry = self.read(&name, reply)?;
        let expire_at_ms = entry.expire_at_ms;
        let dump = super::dump::dumped(entry.value);
        self.note_work(dump.len());
        Some(Copied {
            key: key.into(),
            dump,
            ttl_ms: match expire_at_ms {
                0 => 0,
                at => at.saturating_sub(now_ms).max(1),
            },
        })
    }

    fn watcher_of(&self, id: u64, index: usize, key: &[u8]) -> (u64, Watcher) {
        let key = self.key(key);
        let copy = Watcher::Copy {
            id,
            // There is memory for fewer.
            index: u32::try_from(index).unwrap_or(u32::MAX),
            partition: key.partition,
        };
        (key.hash, copy)
    }

    /// From now on writes of these keys are noted, whoever's they are; call this in the turn in which they were copied. `id`
    /// is that of no other such keys.
    pub fn watch_copies(&mut self, id: u64, keys: &[Copied]) {
        for (index, copied) in keys.iter().enumerate() {
            let (hash, copy) = self.watcher_of(id, index, &copied.key);
            self.watched.add_copy(hash, copy);
        }
    }

    /// Ends that; answers which of the keys were not written since, by index: they are as they were copied, or have expired.
    pub fn unwatch_copies(&mut self, id: u64, keys: &[Copied]) -> Vec<bool> {
        let ended = keys.iter().enumerate().map(|(index, copied)| {
            let (hash, copy) = self.watcher_of(id, index, &copied.key);
            self.watched.remove_copy(hash, copy)
        });
        ended.collect()
    }

    /// Removes keys, as DEL does.
    ///
    /// # Errors
    /// Those of DEL.
    pub fn remove_copied(
        &mut self,
        keys: &[&[u8]],
        reply: &mut Reply<'_>,
    ) -> Result<(), ClientError> {
        let args: Vec<&[u8]> = [&b"DEL"[..]]
            .into_iter()
            .chain(keys.iter().copied())
            .collect();
        let Some(first) = keys.first() else {
            return Ok(());
        };
        let slot = ephesus_wire::slot_of(first);
        self.execute(Cmd::Del.spec(), &args[..], slot, reply)
    }
}

#[cfg(test)]
mod tests;
