//! Inputs: seeds that are right, changed a little, joined, cut, or random altogether.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use ephesus_tests::Rng;
use ephesus_tests::coverage::Reached;

/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Words at which text goes wrong.
const WORDS: [&[u8]; 14] = [
    b"\r\n",
    b"*",
    b"$",
    b"-1",
    b"-",
    b"0",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"\"",
    b"\\x",
    b"[",
    b"\0",
];

/// Longest input, bytes.
const BYTES_MAX: usize = 64 << 10;

/// Inputs that are kept because they have reached something new.
const KEPT_MAX: usize = 20_000;

/// A changed copy of one of the seeds, or something random.
pub(crate) fn input(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    if seeds.is_empty() || rng.one_in(20) {
        let len = rng.below(300) as usize;
        return rng.bytes(len);
    }
    let mut bytes = rng.pick(seeds).clone();
    for _ in 0..=rng.below(4) {
        change(rng, &mut bytes, seeds);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    match rng.below(8) {
        0 => bytes.truncate(at),
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.below(256) as u8;
            }
        }
        3 => {
            let width = 1 << rng.below(4);
            let edge = rng.pick(&EDGES).to_le_bytes();
            let end = bytes.len().min(at + width);
            let place = &mut bytes[at..end];
            place.copy_from_slice(&edge[..place.len()]);
        }
        4 => {
            let word = rng.pick(&WORDS);
            bytes.splice(at..at, word.iter().copied());
        }
        5 => {
            let end = at + rng.below((bytes.len() - at) as u64 + 1) as usize;
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        6 => {
            let end = at + rng.below((bytes.len() - at) as u64 + 1) as usize;
            bytes.drain(at..end);
        }
        _ => {
            let other = rng.pick(seeds);
            let from = rng.below(other.len() as u64 + 1) as usize;
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

/// Inputs that are stored for `what`.
fn stored(what: &str) -> Vec<Vec<u8>> {
    let home = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/inputs");
    let Ok(files) = std::fs::read_dir(home.join(what)) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let read = |path| std::fs::read(path).expect("a stored input");
    paths.into_iter().map(read).collect()
}

/// Gives `target` the seeds, what is stored, and changed copies of both; where the build counts what they reach, also
/// changed copies of those that have reached something new.
///
/// # Panics
/// When one of them makes it panic, with the input.
pub(crate) fn fuzz(what: &str, mut seeds: Vec<Vec<u8>>, mut target: impl FnMut(&[u8])) {
    seeds.extend(stored(what));
    let mut rng = Rng::new(ephesus_tests::seed_of_run(what));
    let mut run = |bytes: &[u8]| {
        let outcome = catch_unwind(AssertUnwindSafe(|| target(bytes)));
        assert!(outcome.is_ok(), "{what}: {}", bytes.escape_ascii());
    };
    let mut reached = Reached::default();
    seeds.iter().for_each(|seed| run(seed));
    let first = seeds.len();
    for _ in 0..super::cases() {
        let bytes = input(&mut rng, &seeds);
        reached.begin();
        run(&bytes);
        if reached.is_more() && seeds.len() < KEPT_MAX {
            seeds.push(bytes);
        }
    }
    if seeds.len() > first {
        eprintln!(
            "{what}: {} inputs have reached something new",
            seeds.len() - first
        );
    }
}
