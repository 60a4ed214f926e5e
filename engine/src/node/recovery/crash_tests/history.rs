//! What clients were told by one shard, and which states that allows after a crash.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::Lsn;

/// Value and expiry, 0 for never.
pub(super) type Value = (Vec<u8>, u64);
pub(super) type Keys = BTreeMap<Vec<u8>, Value>;

/// One command's effects: keys and what they hold from then on.
pub(super) enum Effect {
    None,
    Keys(Vec<(Vec<u8>, Option<Value>)>),
    Flush,
}

struct Entry {
    effect: Effect,
    lsn: Lsn,
}

/// The commands one shard has executed since it was recovered.
///
/// Whatever is found after a crash has to be the state after a prefix of them: so nothing is torn,
/// reordered, resurrected or invented. How long the prefix is at least follows from what clients
/// have read.
pub(super) struct History {
    base: Keys,
    pub(super) now: Keys,
    /// The keys that this history decides on.
    domain: BTreeSet<Vec<u8>>,
    entries: Vec<Entry>,
    /// Length of the prefix that includes a key's last write.
    last_write: BTreeMap<Vec<u8>, usize>,
    last_flush: usize,
    acknowledged: usize,
    required: usize,
}

impl History {
    pub(super) fn new(base: Keys, domain: BTreeSet<Vec<u8>>) -> History {
        History {
            now: base.clone(),
            base,
            domain,
            entries: Vec::new(),
            last_write: BTreeMap::new(),
            last_flush: 0,
            acknowledged: 0,
            required: 0,
        }
    }

    pub(super) fn domain(&self) -> &BTreeSet<Vec<u8>> {
        &self.domain
    }

    /// Adds a command; returns what a client knows once it has the reply.
    pub(super) fn execute(&mut self, effect: Effect, lsn: Lsn, looked_at: &[Vec<u8>]) -> usize {
        let before = looked_at
            .iter()
            .filter_map(|key| self.last_write.get(key).copied())
            .max();
        let mut knows = before.unwrap_or(0).max(self.last_flush);
        let length = self.entries.len() + 1;
        match &effect {
            Effect::None => return knows,
            Effect::Keys(keys) => {
                for (key, _) in keys {
                    self.last_write.insert(key.clone(), length);
                }
            }
            Effect::Flush => self.last_flush = length,
        }
        knows = knows.max(length);
        apply(&effect, &mut self.now);
        self.entries.push(Entry { effect, lsn });
        knows
    }

    /// Decides on these keys no more: their partition belongs to another shard.
    pub(super) fn release(&mut self, keys: &BTreeSet<Vec<u8>>) {
        self.domain.retain(|key| !keys.contains(key));
        for state in [&mut self.base, &mut self.now] {
            state.retain(|key, _| !keys.contains(key));
        }
        for entry in &mut self.entries {
            if let Effect::Keys(changed) = &mut entry.effect {
                changed.retain(|(key, _)| !keys.contains(key));
            }
        }
    }

    /// Decides on these keys from now on, which hold `content`; that is durable, as everything before it.
    pub(super) fn adopt(&mut self, keys: BTreeSet<Vec<u8>>, content: &Keys, lsn: Lsn) {
        self.domain.extend(keys);
        let effects = content.iter().map(|(k, v)| (k.clone(), Some(v.clone())));
        let effect = Effect::Keys(effects.collect());
        apply(&effect, &mut self.now);
        self.entries.push(Entry { effect, lsn });
        self.required = self.entries.len();
    }

    /// Everything so far.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A client has read a reply.
    pub(super) fn acknowledge(&mut self, knows: usize) {
        self.acknowledged = self.acknowledged.max(knows);
    }

    /// The shard ends; `promised` is the LSN that has to survive. With `reads`, everything that
    /// clients know has to survive as well.
    pub(super) fn end(&mut self, promised: Lsn, reads: bool) {
        let reached = self.entries.iter().take_while(|e| e.lsn <= promised);
        self.required = self.required.max(reached.count());
        if reads {
            self.required = self.required.max(self.acknowledged);
        }
    }

    /// Whether `found`, of which only this history's keys count, is the state after a long enough
    /// prefix.
    pub(super) fn check(&self, found: &Keys, now_ms: u64) -> Result<(), String> {
        self.check_least(found, self.required, now_ms)
    }

    /// As [`History::check`] when everything from the LSN `cut` on may be lost.
    pub(super) fn check_cut(&self, found: &Keys, cut: Lsn, now_ms: u64) -> Result<(), String> {
        let before = self.entries.iter().take_while(|entry| entry.lsn < cut);
        self.check_least(found, before.count(), now_ms)
    }

    fn check_least(&self, found: &Keys, required: usize, now_ms: u64) -> Result<(), String> {
        let own = found.iter().filter(|(key, _)| self.domain.contains(*key));
        let found = &own.map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut state = self.base.clone();
        let mut too_short = None;
        for length in 0..=self.entries.len() {
            if let Some(last) = length.checked_sub(1) {
                apply(&self.entries[last].effect, &mut state);
            }
            if !is_same(&state, found, now_ms) {
                continue;
            }
            if length >= required {
                return Ok(());
            }
            too_short = Some(length);
        }
        let executed = self.entries.len();
        Err(match too_short {
            Some(length) => format!(
                "the state after {length} of {executed} commands is back, {required} were promised"
            ),
            None => format!(
                "no state there ever was ({executed} commands, {required} promised): {}",
                difference(&self.now, found)
            ),
        })
    }
}

pub(super) fn apply(effect: &Effect, state: &mut Keys) {
    match effect {
        Effect::None => {}
        Effect::Flush => state.clear(),
        Effect::Keys(keys) => {
            for (key, value) in keys {
                match value {
                    Some(value) => drop(state.insert(key.clone(), value.clone())),
                    None => drop(state.remove(key)),
                }
            }
        }
    }
}

pub(super) fn is_live(expire_at_ms: u64, now_ms: u64) -> bool {
    expire_at_ms == 0 || expire_at_ms > now_ms
}

fn is_same(state: &Keys, found: &Keys, now_ms: u64) -> bool {
    let live = |(_, (_, at)): &(&Vec<u8>, &(Vec<u8>, u64))| is_live(*at, now_ms);
    state.iter().filter(live).eq(found.iter().filter(live))
}

fn difference(newest: &Keys, found: &Keys) -> String {
    let text = |value: Option<&(Vec<u8>, u64)>| match value {
        None => "absent".to_owned(),
        Some((value, at)) => format!("{:.12} until {at}", String::from_utf8_lossy(value)),
    };
    let keys: BTreeSet<&Vec<u8>> = newest.keys().chain(found.keys()).collect();
    let differ = keys.iter().filter(|k| newest.get(**k) != found.get(**k));
    differ
        .map(|key| {
            format!(
                "{}: newest {}, found {}; ",
                String::from_utf8_lossy(key),
                text(newest.get(*key)),
                text(found.get(*key))
            )
        })
        .collect()
}
