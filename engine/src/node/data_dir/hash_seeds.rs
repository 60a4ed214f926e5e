//! The order of keys, which is that of their hashes, kept from start to start.
//!
//! ```text
//! DIR/order   text: the hash's four seeds, 16 hex digits each
//! ```
//!
//! Images are written in this order; a start with the same one makes tables of them without sorting. Any other
//! order is as correct, so a file that is lost or damaged is made anew. Its secrecy keeps clients from
//! choosing keys that collide.

use std::fs;

use ephesus_wal::dir;

use super::{DataDir, DataDirError};
use crate::table::KeyHasher;

const FILE: &str = "order";

impl DataDir {
    /// The hash of this directory's keys.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn key_hasher(&self) -> Result<KeyHasher, DataDirError> {
        let text = fs::read_to_string(self.path.join(FILE)).unwrap_or_default();
        let seeds = match decode(&text) {
            Some(seeds) => seeds,
            None => {
                let seeds = KeyHasher::random_seeds();
                dir::replace(&self.path, FILE, encode(seeds).as_bytes())?;
                seeds
            }
        };
        Ok(KeyHasher::with_seeds(seeds))
    }
}

fn encode(seeds: [u64; 4]) -> String {
    let words = seeds.map(|seed| format!("{seed:016x}"));
    words.join(" ") + "\n"
}

fn decode(text: &str) -> Option<[u64; 4]> {
    let words = text.strip_suffix('\n')?.split(' ');
    let seeds: Option<Vec<u64>> = words
        .map(|word| {
            let is_whole = word.len() == 16;
            u64::from_str_radix(word, 16).ok().filter(|_| is_whole)
        })
        .collect();
    seeds?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_until_the_file_is_lost_or_damaged() {
        let temp = tempfile::tempdir().expect("temp dir");
        let dir = DataDir::lock(&temp.path().join("data")).expect("lock");
        let hash = || dir.key_hasher().expect("a hasher").hash(b"key");
        let first = hash();
        assert_eq!(hash(), first);
        let file = dir.path().join(FILE);
        let text = fs::read_to_string(&file).expect("its seeds");
        for damaged in ["", "\n", &text[1..], &text[..60], &text.repeat(2)] {
            fs::write(&file, damaged).expect("damage");
            let made_anew = hash();
            assert_ne!(made_anew, first, "{damaged:?}");
            assert_eq!(hash(), made_anew, "{damaged:?}");
        }
        fs::write(&file, text).expect("the first ones");
        assert_eq!(hash(), first);
    }
}
