//! The hash by which tables place keys.

use ahash::RandomState;

/// aHash with seeds fixed for the process: equal in every shard, never stored and never sent.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    state: RandomState,
}

impl KeyHasher {
    /// A hasher whose order of keys is known in advance (simulation, tests).
    pub fn with_seeds(seeds: [u64; 4]) -> KeyHasher {
        let [a, b, c, d] = seeds;
        KeyHasher {
            state: RandomState::with_seeds(a, b, c, d),
        }
    }

    /// A hasher seeded by the operating system, so that clients cannot choose colliding keys.
    pub fn random() -> KeyHasher {
        KeyHasher {
            state: RandomState::new(),
        }
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        self.state.hash_one(key)
    }
}
