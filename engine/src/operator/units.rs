//! Sizes and times for people.

use std::time::Duration;

/// Bytes with a unit of 1024: `512 B`, `1.5 KiB`.
#[must_use]
#[expect(clippy::indexing_slicing, reason = "the last unit is not passed")]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // One decimal is exact enough, and 1023.95 would be rounded to 1024.0.
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// So many bytes per second, as disks and networks are measured: `34.1 MB/s`.
#[must_use]
pub fn rate(bytes_per_s: u64) -> String {
    format!("{:.1} MB/s", bytes_per_s as f64 / 1e6)
}

/// A short time: `850 us`, `1.2 ms`; from 1 s on as [`duration`].
#[must_use]
pub fn short(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => duration(Duration::from_micros(us)),
    }
}

/// A time in its largest unit: `120 ms`, `3.4 s`, `5 min`, `7 h`, `2 days`.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let (ms, s) = (duration.as_millis(), duration.as_secs());
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{}.{} s", s, ms % 1000 / 100),
        60..3_600 => format!("{} min", s / 60),
        3_600..172_800 => format!("{} h", s / 3_600),
        _ => format!("{} days", s / 86_400),
    }
}

/// How long ago something was.
#[must_use]
pub fn ago(ms: u64) -> String {
    format!("{} ago", duration(Duration::from_millis(ms)))
}

/// `1 key`, `2 keys`.
#[must_use]
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests;
