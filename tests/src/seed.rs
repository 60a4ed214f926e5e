//! The seed of a run, so that every random test can be repeated.

/// `EPHESUS_SEED`, else one from the clock; printed either way.
pub fn seed_of_run(what: &str) -> u64 {
    let seed = match std::env::var("EPHESUS_SEED") {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("EPHESUS_SEED must be a number, not {text:?}")),
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos() as u64),
    };
    eprintln!("{what}: EPHESUS_SEED={seed}");
    seed
}
