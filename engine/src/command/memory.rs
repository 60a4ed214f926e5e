//! MEMORY STATS and DOCTOR, from what INFO reports.

use ephesus_wire::resp::reply::{self, Protocol};

use super::info::InfoSnapshot;

/// From this part of a limit on it is worth a word.
const NEAR: f64 = 0.9;

/// The process has more than this many times what it uses.
const FRAGMENTED: f64 = 1.5;

/// Below so many bytes nothing can be said about fragmentation.
const SMALL_BYTES: u64 = 64 << 20;

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Appends the reply to MEMORY STATS: those of Redis's fields that mean something here.
pub fn write_stats(out: &mut Vec<u8>, protocol: Protocol, info: &InfoSnapshot) {
    let memory = &info.memory;
    let keys: u64 = info.keyspace.iter().map(|database| database.keys).sum();
    let overhead = memory.used.saturating_sub(memory.dataset);
    let peak = memory.used_peak.max(memory.used);
    let numbers = [
        ("peak.allocated", peak),
        ("total.allocated", memory.used),
        ("startup.allocated", memory.startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", info.clients.memory),
        ("overhead.total", overhead),
        ("keys.count", keys),
        (
            "keys.bytes-per-key",
            memory.used.checked_div(keys).unwrap_or(0),
        ),
        ("dataset.bytes", memory.dataset),
        ("allocator.resident", memory.resident),
        (
            "fragmentation.bytes",
            memory.anonymous.saturating_sub(memory.counted),
        ),
    ];
    let ratios = [
        (
            "dataset.percentage",
            100.0 * ratio(memory.dataset, memory.used),
        ),
        ("peak.percentage", 100.0 * ratio(memory.used, peak)),
        ("fragmentation", ratio(memory.anonymous, memory.counted)),
    ];
    reply::map(out, protocol, numbers.len() + ratios.len());
    for (name, number) in numbers {
        reply::bulk(out, name.as_bytes());
        reply::integer(out, number.cast_signed());
    }
    for (name, ratio) in ratios {
        reply::bulk(out, name.as_bytes());
        reply::double(out, protocol, ratio);
    }
}

/// What MEMORY DOCTOR says.
#[must_use]
pub fn diagnosis(info: &InfoSnapshot) -> String {
    let (memory, clients) = (&info.memory, &info.clients);
    let mut findings = Vec::new();
    if memory.max > 0 && ratio(memory.used, memory.max) >= NEAR {
        findings.push(format!(
            "High use: keys and clients take {} of the {} bytes of --max-memory. Beyond it writes are refused; nothing is evicted.",
            memory.used, memory.max
        ));
    }
    if ratio(clients.memory, clients.memory_max) >= NEAR {
        findings.push(format!(
            "Large clients: they make the node hold {} of the {} bytes of --max-client-memory. Beyond it the largest one is closed.",
            clients.memory, clients.memory_max
        ));
    }
    if memory.counted >= SMALL_BYTES && ratio(memory.anonymous, memory.counted) >= FRAGMENTED {
        findings.push(format!(
            "High fragmentation: the process has {} bytes, of which {} are known to be used. Stores of images keep some of it; MEMORY PURGE gives back what is free.",
            memory.anonymous, memory.counted
        ));
    }
    if findings.is_empty() {
        return "No issues were found.".to_owned();
    }
    findings.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephesus_wire::resp::value::decode;

    fn info() -> InfoSnapshot {
        let mut info = InfoSnapshot::default();
        info.memory.used = 100 << 20;
        info.memory.anonymous = 120 << 20;
        info.memory.counted = 110 << 20;
        info.memory.max = 200 << 20;
        info.clients.memory_max = 64 << 20;
        info
    }

    #[test]
    fn stats_are_one_map_in_both_protocols() {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let mut out = Vec::new();
            write_stats(&mut out, protocol, &info());
            let (_, len) = decode(&out).expect("valid").expect("complete");
            assert_eq!(len, out.len());
        }
    }

    #[test]
    fn the_doctor_finds_what_is_near_its_limit() {
        assert_eq!(diagnosis(&info()), "No issues were found.");
        let mut full = info();
        full.memory.max = 110 << 20;
        full.clients.memory = 60 << 20;
        full.memory.anonymous = 200 << 20;
        assert_eq!(diagnosis(&full).lines().count(), 3);
        assert!(diagnosis(&full).starts_with("High use"));
    }
}
