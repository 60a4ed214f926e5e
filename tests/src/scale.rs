//! How much of something a run does: a little in CI, more where the environment asks for it.

/// Asks for rounds of the tests that kill processes and move partitions.
const ROUNDS: &str = "EPHESUS_CRASH_ROUNDS";

/// Asks for keys of the tests that fill a cluster or a partition.
const KEYS: &str = "EPHESUS_KEYS";

/// Asks for commands of generated sequences.
const COMMANDS: &str = "EPHESUS_COMMANDS";

/// Asks for longer attacks.
const ATTACK_SECONDS: &str = "EPHESUS_ATTACK_SECONDS";

/// Rounds of this run: `EPHESUS_CRASH_ROUNDS`, else so many.
///
/// # Panics
/// When it is no number.
pub fn rounds(default: u64) -> u64 {
    asked(ROUNDS).unwrap_or(default)
}

/// Whether somebody has asked for more rounds than those of CI, or for fewer.
pub fn has_own_rounds() -> bool {
    asked(ROUNDS).is_some()
}

/// Keys of this run: `EPHESUS_KEYS`, else so many.
///
/// # Panics
/// When it is no number.
pub fn keys(default: u64) -> u64 {
    asked(KEYS).unwrap_or(default)
}

/// Commands of each comparison of generated sequences: `EPHESUS_COMMANDS`, else so many.
///
/// # Panics
/// When it is no number.
pub fn commands(default: u64) -> u64 {
    asked(COMMANDS).unwrap_or(default)
}

/// How long each attack lasts: `EPHESUS_ATTACK_SECONDS`, else so long.
///
/// # Panics
/// When it is no number.
pub fn attack_seconds(default: u64) -> u64 {
    asked(ATTACK_SECONDS).unwrap_or(default)
}

fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}
