//! What a test needs of the machine and may not get: mounts, network namespaces, a browser.

/// A test lacks what it needs; it is left out if `EPHESUS_ALLOW_SKIP=1`.
///
/// # Panics
/// If not: a test that does nothing is not to look like one that has passed.
pub fn lacks(reason: &str) {
    let may = std::env::var_os("EPHESUS_ALLOW_SKIP").is_some_and(|value| value == "1");
    assert!(may, "{reason}; EPHESUS_ALLOW_SKIP=1 leaves such tests out");
    eprintln!("skipped: {reason}");
}
