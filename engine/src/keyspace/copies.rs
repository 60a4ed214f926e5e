//! Values that are given to other servers (MIGRATE): what they were, and whether they still are.

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
    pub expire_at_ms: u64,
}

impl Copied {
    /// Memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Copied>() + self.key.len() + self.dump.capacity()
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
            expire_at_ms,
        })
    }

    /// Whether a key has the value and the expiry that it had then, or is gone.
    #[must_use]
    pub fn is_as_copied(&self, copied: &Copied) -> bool {
        let name = self.key(&copied.key);
        self.entry(&name).is_none_or(|entry| {
            entry.expire_at_ms == copied.expire_at_ms
                && super::dump::dumped(entry.value) == copied.dump
        })
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
