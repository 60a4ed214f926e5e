//! Everything that takes bytes from outside, under stored, mutated and random inputs: no input may panic.
//!
//! Each test names its seed and the input that it died of. `EPHESUS_FUZZ_CASES` says how many inputs a codec gets,
//! which CI leaves alone; `make fuzz` runs many, and keeps those that reach code which none has reached before. What has been found once is stored in `inputs/` for ever.

mod codecs;
mod control;
mod decisions;
mod handshakes;
mod mutations;
mod nodes;
mod raft;
mod stored;

/// What CI has time for.
const CASES: u64 = 20_000;

/// Inputs of each codec.
fn cases() -> u64 {
    std::env::var("EPHESUS_FUZZ_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(CASES)
}
