//! The hottest keys of nodes: told when an operator asks for them, or while a shard of the node has much to do, and kept
//! for a moment.

use std::collections::BTreeMap;
use std::fmt;

use ephesus_wire::NodeId;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::state::State;

/// Keys that one node tells of, at most.
pub const HOT_KEYS_MAX: usize = 32;

/// Bytes of a key that are told.
pub const KEY_BYTES_MAX: usize = 128;

/// Nodes are asked for so long after an operator has, ms.
const WANTED_MS: u64 = 3_000;

/// What was told longer ago is not told any more, ms; it is asked again after half of that.
const FRESH_MS: u64 = 2_000;

/// A key that is used much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKey {
    /// The shard that has it.
    pub shard: u16,
    /// Its database.
    pub database: u8,
    /// Its first bytes.
    pub name: KeyName,
    /// How long it is.
    pub len: u32,
    /// About so many uses per second: few of them are counted.
    pub ops_per_s: u64,
    /// Its part of all uses of keys in its shard, millionths.
    pub share: u32,
}

/// A key, or its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyName(Box<[u8]>);

impl KeyName {
    /// Of a key's first bytes.
    #[must_use]
    pub fn new(key: &[u8]) -> KeyName {
        KeyName(key.get(..KEY_BYTES_MAX).unwrap_or(key).into())
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for KeyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyName, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = KeyName;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "at most {KEY_BYTES_MAX} bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<KeyName, E> {
                match bytes.len() <= KEY_BYTES_MAX {
                    true => Ok(KeyName(bytes.into())),
                    false => Err(E::invalid_length(bytes.len(), &self)),
                }
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// The hottest keys of one node, [`HOT_KEYS_MAX`] at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HotKeys(Vec<HotKey>);

impl HotKeys {
    /// The hottest of these.
    #[must_use]
    pub fn new(mut keys: Vec<HotKey>) -> HotKeys {
        keys.sort_by_key(|key| std::cmp::Reverse(key.ops_per_s));
        keys.truncate(HOT_KEYS_MAX);
        HotKeys(keys)
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[HotKey] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for HotKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HotKeys, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = HotKeys;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "at most {HOT_KEYS_MAX} keys")
            }

            // What is told to come takes no room before it has.
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<HotKeys, A::Error> {
                let mut keys = Vec::new();
                while let Some(key) = seq.next_element()? {
                    if keys.len() == HOT_KEYS_MAX {
                        return Err(de::Error::invalid_length(keys.len() + 1, &self));
                    }
                    keys.push(key);
                }
                Ok(HotKeys(keys))
            }
        }
        deserializer.deserialize_seq(Keys)
    }
}

/// What a leader was told of hot keys.
#[derive(Debug, Default)]
pub(crate) struct ToldKeys {
    wanted_until_ms: u64,
    nodes: BTreeMap<NodeId, (u64, HotKeys)>,
}

impl ToldKeys {
    /// An operator asks for them.
    pub(crate) fn want(&mut self, now_ms: u64) {
        self.wanted_until_ms = now_ms + WANTED_MS;
    }

    /// Whether a node has to tell its keys: one that `is_saturated` does without an operator who asks.
    pub(crate) fn are_wanted_of(&self, node: NodeId, is_saturated: bool, now_ms: u64) -> bool {
        let told_ms = self.nodes.get(&node).map(|(told_ms, _)| *told_ms);
        let is_old = |told_ms| now_ms.saturating_sub(told_ms) >= FRESH_MS / 2;
        (is_saturated || now_ms < self.wanted_until_ms) && told_ms.is_none_or(is_old)
    }

    /// A member has told.
    pub(crate) fn heard(&mut self, node: NodeId, keys: HotKeys, state: &State, now_ms: u64) {
        let members = state.members();
        self.nodes.retain(|node, _| members.contains_key(node));
        if members.contains_key(&node) {
            self.nodes.insert(node, (now_ms, keys));
        }
    }

    /// Whether no node has told anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What a node has told just now.
    pub(crate) fn of(&self, node: NodeId, now_ms: u64) -> Option<&HotKeys> {
        let (told_ms, keys) = self.nodes.get(&node)?;
        (now_ms.saturating_sub(*told_ms) <= FRESH_MS).then_some(keys)
    }

    /// Forgets what a node has told too long ago.
    pub(crate) fn forget(&mut self, node: NodeId, now_ms: u64) {
        if self.of(node, now_ms).is_none() {
            self.nodes.remove(&node);
        }
    }
}
