//! The seed of a run, so that every random test can be repeated.

/// `EPHESUS_SEED`, else one from the clock; printed either way.
pub fn seed_of_run(what: &str) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    seed_or(what, now.map_or(1, |since| since.as_nanos() as u64))
}

/// `EPHESUS_SEED`, else this one; printed either way.
pub fn seed_or(what: &str, usual: u64) -> u64 {
    let seed = match std::env::var("EPHESUS_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("EPHESUS_SEED must be a number, not {text:?}")),
        Err(_) => usual,
    };
    eprintln!("{what}: EPHESUS_SEED={seed}");
    seed
}
