use ephesus_wire::rng::Rng;

use super::*;
use crate::measure::{less, more};

const GOLDEN: &str = include_str!("golden.json");

/// Latencies of a server that answers in about so many us, and seldom much later.
fn latencies(seed: u64, us: f64, count: u64) -> Latencies {
    let mut random = Rng::new(seed);
    let mut latencies = Latencies::default();
    for _ in 0..count {
        let dice = (random.below(1_000_000) as f64 + 1.0) / 1e6;
        latencies.record_ns((us * 1e3 * (0.7 - 0.3 * dice.ln() + 0.02 / dice.sqrt())) as u64);
    }
    latencies
}

fn run(server: &str, label: &str, us: f64) -> Run {
    let seed = us as u64;
    let of = |name: &str, seed, us| (name.to_owned(), latencies(seed, us, 20_000));
    let second = |at: u64| {
        let slow = if (7..10).contains(&at) { 2.5 } else { 1.0 };
        Second::new(
            at as f64,
            &latencies(seed + at, us * slow, 1900 + at * 97 % 200),
            at / 9,
        )
    };
    Run {
        server: server.to_owned(),
        label: label.to_owned(),
        offered_per_s: Some(4000.0),
        elapsed_s: 12.0,
        operations: BTreeMap::from([of("read", seed, us), of("update", seed + 1, us * 1.6)]),
        seconds: (0..12).map(second).collect(),
        events: vec![
            Event {
                at_s: 3.2,
                until_s: None,
                kind: "move".to_owned(),
            },
            Event {
                at_s: 7.0,
                until_s: Some(9.6),
                kind: "image".to_owned(),
            },
        ],
        errors: BTreeMap::from([("CLUSTERDOWN".to_owned(), 3)]),
        misses: 1,
        ..Run::default()
    }
}

/// A record with everything that one can have, the same at any time on any machine.
fn sample() -> Record {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut record =
        Record::new("run", here, &serde_json::json!({ "rate": 4000 })).expect("record");
    record.environment = Environment {
        date: "2026-01-02 03:04:05 UTC".to_owned(),
        commit: Some("abc1234".to_owned()),
        version: "0.1.0".to_owned(),
        flags: ["run", "127.0.0.1:7379", "--rate", "4000"]
            .map(str::to_owned)
            .to_vec(),
        cpu: "A CPU".to_owned(),
        cpus: vec![0, 1],
        kernel: "Linux version 6.1".to_owned(),
        memory_bytes: 8 << 30,
        memory_available_bytes: 4 << 30,
        load_average: "0.10 0.20 0.30 1/100 1000".to_owned(),
        data_dir: "/data".to_owned(),
        mount: "/dev/vda / ext4 rw 0 0".to_owned(),
        disk: Some("vda, 100 GiB, not rotating, cache: write back".to_owned()),
        file_system: crate::disk::FileSystem::Disk {
            magic: 0xef53,
            free_bytes: 1 << 30,
        },
        governor: None,
        huge_pages: Some("always [madvise] never".to_owned()),
    };
    for name in ["ephesus", "valkey"] {
        record.add_server(ServerRecord {
            name: name.to_owned(),
            version: format!("{name} 1.2.3"),
            command_line: format!("{name}-server --port 7379"),
            configuration: vec![("appendfsync".to_owned(), "always".to_owned())],
        });
    }
    let mut two = Case {
        name: "two".to_owned(),
        title: "side by side".to_owned(),
        notes: vec!["a <note> & more".to_owned()],
        ..Case::default()
    };
    let scale = more("ops/s").to(Goal::RatioAtLeast(1.5));
    for (ephesus, valkey) in [
        (300_000.0, 150_000.0),
        (310_000.0, 149_000.0),
        (290_000.0, f64::NAN),
    ] {
        two.sample("rate", scale, "ephesus", ephesus);
        two.sample("rate", scale, "valkey", valkey);
    }
    two.sample("server CPU per op", less("us"), "ephesus", 7.5);
    two.judge("ephesus", "valkey", str::to_owned);
    two.rows[0].client_bound.push("ephesus".to_owned());
    let curve = |name: &str, peak: f64| {
        let steps = (1..=9).map(|tenth| f64::from(tenth) / 10.0);
        Series::new(
            name,
            steps.map(move |share| [share * peak, 90.0 / (1.0 - share)]),
        )
    };
    record.put(Case {
        name: "one".to_owned(),
        title: "one server".to_owned(),
        how: "An open loop of 4000 operations per s.".to_owned(),
        runs: vec![run("ephesus", "", 120.0)],
        ..Case::default()
    });
    record.put(Case {
        runs: vec![
            run("ephesus", "relaxed", 100.0),
            run("valkey", "everysec", 180.0),
        ],
        plots: vec![
            Plot::new(
                "Latency as load rises",
                Kind::Curve,
                [Axis::linear("operations per s", ""), Axis::log("p99", "us")],
                vec![curve("ephesus", 300e3), curve("valkey", 150e3)],
            ),
            Plot::new(
                "A bar",
                Kind::Bars,
                [Axis::linear("", ""), Axis::linear("MB/s", "")],
                vec![Series::new("ephesus", [[0.0, 300.0]])],
            ),
        ],
        ..two
    });
    record
}

/// A record without what the compressing library may write in other bytes: the histograms.
fn without_hdr(text: &str) -> String {
    let is_hdr = |line: &&str| line.trim_start().starts_with("\"hdr\"");
    text.lines()
        .filter(|line| !is_hdr(line))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_layout_of_json_is_the_golden_one() {
    let text = serde_json::to_string_pretty(&sample()).expect("json") + "\n";
    if std::env::var_os("EPHESUS_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/record/golden.json");
        std::fs::write(path, &text).expect("write");
        return;
    }
    let is_same = without_hdr(&text) == without_hdr(GOLDEN);
    assert!(
        is_same,
        "a changed layout needs another SCHEMA, and EPHESUS_BLESS=1 cargo test"
    );
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let text = serde_json::to_string_pretty(&sample()).expect("json");
    let read = Record::parse(&text).expect("record");
    assert_eq!(serde_json::to_string_pretty(&read).expect("json"), text);
    let (ours, golden) = (sample(), Record::parse(GOLDEN).expect("golden"));
    let reads = |record: &Record| record.cases[0].runs[0].operations["read"].clone();
    assert_eq!(reads(&ours), reads(&golden));
    let other = text.replace("\"schema\": 1", "\"schema\": 2");
    let error = Record::parse(&other)
        .expect_err("another schema")
        .to_string();
    assert_eq!(error, "a record: has schema 2, not 1");
}

#[test]
fn latencies_that_are_too_long_count_as_the_longest() {
    let mut latencies = Latencies::default();
    latencies.record_ns(0);
    latencies.record_ns(u64::MAX);
    assert_eq!(latencies.count(), 2);
    assert!(
        (600e6..700e6).contains(&latencies.max_us()),
        "{}",
        latencies.max_us()
    );
}

#[test]
fn percentiles_are_written_as_the_plotters_of_hdr_histogram_read_them() {
    let mut latencies = Latencies::default();
    (1..=100).for_each(|ms| latencies.record_ns(ms * 1_000_000));
    let text = latencies.hgrm();
    let mut lines = text.lines();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words(lines.next().expect("head")),
        ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    );
    assert_eq!(lines.next(), Some(""));
    let rows: Vec<Vec<String>> = lines
        .clone()
        .take_while(|line| !line.starts_with('#'))
        .map(words)
        .collect();
    let median = rows
        .iter()
        .find(|row| row[1] == "0.500000000000")
        .expect("median");
    assert_eq!(median[2..], ["50", "2.00"]);
    assert!(
        (50.0..50.1).contains(&median[0].parse::<f64>().expect("ms")),
        "{median:?}"
    );
    let last = rows.last().expect("rows");
    assert_eq!(last[1..], ["1.000000000000", "100"]);
    assert!(text.contains("Total count    =   100.000000]"), "{text}");
}

#[test]
fn each_kind_of_file_is_written() {
    let dir = tempfile::tempdir().expect("dir");
    let at = |name: &str| Some(dir.path().join(name));
    let outputs = Outputs {
        json: at("run.json"),
        csv: at("run.csv"),
        hgrm: at("hgrm"),
        report: at("report"),
    };
    outputs.prepare().expect("writable");
    outputs.save(&sample()).expect("saved");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
    Record::parse(&read("run.json")).expect("record");
    let csv = read("run.csv");
    assert_eq!(csv.lines().count(), 1 + 3 * 12);
    assert_eq!(
        csv.lines().next(),
        Some("case,server,run,at_s,done,errors,p50_us,p99_us,p999_us")
    );
    assert!(
        csv.lines()
            .nth(14)
            .expect("a row")
            .starts_with("two,ephesus,relaxed,1.000,1997,0,"),
        "{csv}"
    );
    assert!(read("hgrm/two-valkey-everysec-read.hgrm").contains("Percentile"));
    assert!(read("report/run.html").starts_with("<!doctype html>"));
}

#[test]
fn what_cannot_be_written_is_one_line_and_costs_no_other_file() {
    let dir = tempfile::tempdir().expect("dir");
    let json = Some(dir.path().join("run.json"));
    let full = Outputs {
        json: json.clone(),
        csv: Some("/dev/full".into()),
        ..Outputs::default()
    };
    let error = full
        .publish(sample(), Ok(()))
        .expect_err("a full disk")
        .to_string();
    assert!(
        error.starts_with("/dev/full: No space left on device"),
        "{error}"
    );
    assert!(json.is_some_and(|path| path.exists()));
    let nowhere = Outputs {
        report: Some("/proc/nowhere".into()),
        ..Outputs::default()
    };
    let error = nowhere.prepare().expect_err("no directory").to_string();
    assert!(
        error.starts_with("/proc/nowhere: ") && !error.contains('\n'),
        "{error}"
    );
}

#[test]
fn a_run_that_has_failed_keeps_what_it_found_and_says_so() {
    let dir = tempfile::tempdir().expect("dir");
    let json = dir.path().join("run.json");
    let outputs = Outputs {
        json: Some(json.clone()),
        ..Outputs::default()
    };
    let done = outputs.publish(sample(), Err(BenchError::Interrupted));
    assert!(matches!(done, Err(BenchError::Interrupted)));
    let text = std::fs::read_to_string(json).expect("json");
    let record = Record::parse(&text).expect("record");
    assert_eq!(record.truncated.as_deref(), Some("interrupted"));
}
