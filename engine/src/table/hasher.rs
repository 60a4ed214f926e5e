//! The hash by which tables place keys.

use ahash::RandomState;

/// aHash with seeds fixed for the process: equal in every shard, and never sent. Hashes are never stored:
/// another release of aHash may compute others.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    state: RandomState,
}

impl KeyHasher {
    /// A hasher whose order of keys follows from `seeds`.
    pub fn with_seeds(seeds: [u64; 4]) -> KeyHasher {
        let [a, b, c, d] = seeds;
        KeyHasher {
            state: RandomState::with_seeds(a, b, c, d),
        }
    }

    /// Seeds from the operating system's randomness, so that clients cannot choose colliding keys.
    pub fn random_seeds() -> [u64; 4] {
        let state = RandomState::new();
        std::array::from_fn(|word| state.hash_one(word))
    }

    /// A hasher with such seeds.
    pub fn random() -> KeyHasher {
        KeyHasher::with_seeds(KeyHasher::random_seeds())
    }

    pub fn hash(&self, key: &[u8]) -> u64 {
        self.state.hash_one(key)
    }
}
