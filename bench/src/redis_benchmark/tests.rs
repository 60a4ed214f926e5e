use crate::load::{Indexes, Mix, Sizes};

use super::*;

const REAL: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
\"SET\",\"118343.20\",\"6.163\",\"0.736\",\"5.615\",\"16.175\",\"17.631\",\"18.015\"\n";

#[test]
fn output_of_version_7_is_read() {
    assert_eq!(parse_csv(REAL).expect("csv"), [118_343.20, 5.615, 17.631]);
}

#[test]
fn warnings_before_the_header_are_skipped() {
    let text = format!("WARNING: Could not fetch server CONFIG\n{REAL}");
    assert_eq!(parse_csv(&text).expect("csv")[0], 118_343.20);
}

#[test]
fn columns_may_move_but_not_vanish() {
    let moved = "\"rps\",\"test\",\"max_latency_ms\",\"p99_latency_ms\",\"p50_latency_ms\"\n\
                 \"1.5\",\"GET\",\"4\",\"3\",\"2\"\n";
    assert_eq!(parse_csv(moved).expect("csv"), [1.5, 2.0, 3.0]);
    assert!(parse_csv(&REAL.replace("p99_latency_ms", "p98_latency_ms")).is_err());
    assert!(parse_csv(REAL.lines().next().expect("header")).is_err());
    assert!(parse_csv("-ERR nope").is_err());
}

#[test]
fn flags_say_what_the_plan_says() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 6379));
    let mut plan = Plan::new(address);
    plan.pace.pipeline = 16;
    plan.pace.count = Some(1000);
    plan.workload.keys = Indexes::Below(10);
    plan.workload.sizes = Sizes::fixed(100);
    assert_eq!(
        flags(&plan).join(" "),
        "-h 127.0.0.1 -p 6379 -t get -c 50 -P 16 -n 1000 -r 10 -d 100 --csv"
    );
    plan.workload.mix = Mix::of(&[(Op::Write, 1)]);
    assert!(flags(&plan).join(" ").contains(" -t set "));
}

#[test]
fn client_cpu_and_failure_come_from_the_real_process() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 6379));
    let script = |lines: &str| {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("script");
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).expect("permissions");
        run(&path, &Plan::new(address))
    };
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let found = script(&format!("{busy}; printf '{REAL}'")).expect("a run");
    assert_eq!(found.per_s, 118_343.20);
    assert!((0.2..1.1).contains(&found.client_busy), "{found:?}");
    let failed = script("echo no; exit 3").expect_err("it has failed");
    assert!(failed.to_string().contains("no"), "{failed}");
}
