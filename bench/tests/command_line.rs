//! The program from outside: what it prints, writes and leaves behind, and with which exit code it ends.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ephesus_bench::record::Record;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ephesus-bench"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on a disk")
}

fn record(path: &Path) -> Record {
    Record::parse(&std::fs::read_to_string(path).expect("a file")).expect("a record")
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("dir").count()
}

#[test]
fn a_disk_is_measured_in_the_time_given_and_left_as_it_was() {
    let (dir, results) = (scratch(), scratch());
    let json = results.path().join("disk.json");
    let [disk, file, report] =
        [dir.path(), &json, results.path()].map(|path| path.display().to_string());
    let output = bench(&[
        "disk",
        &disk,
        "--seconds",
        "1",
        "--json",
        &file,
        "--report",
        &report,
    ])
    .output()
    .expect("bench");
    let [shown, errors] = texts(&output);
    assert!(output.status.success(), "{errors}");
    assert!(
        shown.contains("A reply under strict waits for one durable write."),
        "{shown}"
    );
    let record = record(&json);
    let [strict, sequential] = &*record.cases else {
        panic!("{shown}")
    };
    assert_eq!((strict.rows.len(), strict.runs.len()), (3, 2));
    let cells = sequential.rows.iter().flat_map(|row| row.medians.values());
    let rates: Vec<f64> = cells.copied().flatten().collect();
    assert!(
        rates.len() == 30 && rates.iter().all(|rate| *rate > 0.0),
        "{rates:?}"
    );
    assert_eq!(entries(dir.path()), 0);
    assert_eq!(entries(results.path()), 2);
}

#[test]
fn an_interrupted_run_keeps_what_it_found_and_cleans_up() {
    let (dir, results) = (scratch(), scratch());
    let json = results.path().join("disk.json");
    let [disk, file] = [dir.path(), &json].map(|path| path.display().to_string());
    let running = bench(&["disk", &disk, "--seconds", "60", "--json", &file])
        .spawn()
        .expect("bench");
    for _ in 0..2000 {
        if entries(dir.path()) > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child is not waited for yet, so its id is its own.
    unsafe { libc::kill(running.id() as i32, libc::SIGINT) };
    let output = running.wait_with_output().expect("an end");
    let [shown, errors] = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.ends_with("ephesus-bench: interrupted\n"), "{errors}");
    assert!(shown.contains("Ended with: interrupted."), "{shown}");
    assert_eq!(record(&json).truncated.as_deref(), Some("interrupted"));
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn what_cannot_be_written_is_one_line_before_anything_is_measured() {
    let dir = scratch();
    let disk = dir.path().display().to_string();
    for outputs in [
        ["--report", "/proc/nowhere"],
        ["--json", "/proc/nowhere/a.json"],
        ["--csv", &disk],
    ] {
        let output = bench(&["disk", &disk, "--seconds", "60", outputs[0], outputs[1]])
            .output()
            .expect("bench");
        let [shown, errors] = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            shown.is_empty() && errors.lines().count() == 1,
            "{shown}{errors}"
        );
        assert!(errors.contains(outputs[1]), "{errors}");
    }
    assert_eq!(entries(dir.path()), 0);
    let file = dir.path().join("a.json").display().to_string();
    let output = bench(&["disk", "/dev/shm", "--json", &file])
        .output()
        .expect("bench");
    let [_, errors] = texts(&output);
    assert!(
        errors.starts_with("ephesus-bench: DIR: /dev/shm is in memory"),
        "{errors}"
    );
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn parts_of_a_node_are_shown_beside_their_limits() {
    let (dir, results) = (scratch(), scratch());
    let json = results.path().join("micro.json");
    let [data, file] = [dir.path(), &json].map(|path| path.display().to_string());
    let flags = [
        "micro",
        "--quick",
        "--seconds",
        "1",
        "--dir",
        &data,
        "--json",
        &file,
    ];
    let output = bench(&flags).output().expect("bench");
    let [shown, errors] = texts(&output);
    assert!(output.status.success(), "{errors}");
    assert!(shown.contains("| image, of disk"), "{shown}");
    let record = record(&json);
    assert_eq!(record.cases[0].rows.len(), 11);
    for row in &record.cases[0].rows {
        let all = row.samples.values().flatten().flatten();
        assert_eq!(row.samples.keys().collect::<Vec<_>>(), ["ephesus", "limit"]);
        assert!(
            all.clone().count() == 10 && all.clone().all(|value| *value > 0.0),
            "{row:?}"
        );
    }
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn policies_of_placement_are_compared_in_a_table_a_file_and_a_page() {
    let results = scratch();
    let json = results.path().join("placement.json");
    let [file, dir] = [&json, results.path()].map(|path| path.display().to_string());
    let outputs = ["--json", &file, "--report", &dir];
    let small = ["--policy", "sticky", "--policy", "ring:vnodes=4"];
    let flags = [&["placement", "--quick"], &small[..], &outputs].concat();
    let output = bench(&flags).output().expect("bench");
    let [shown, errors] = texts(&output);
    assert!(output.status.success(), "{errors}");
    assert!(shown.contains("| moved / least, 10 nodes"), "{shown}");
    let record = record(&json);
    assert_eq!(record.cases.len(), 8);
    let plots = record.cases.iter().map(|case| case.plots.len());
    assert_eq!(plots.collect::<Vec<_>>(), [0, 8, 8, 8, 8, 9, 0, 6]);
    let moved = |row: &&ephesus_bench::record::Row| row.name == "moved / least, 10 nodes";
    let row = record.cases[1].rows.iter().find(moved).expect("a row");
    let names: Vec<&String> = row.medians.keys().collect();
    assert_eq!(names, ["ring:vnodes=4", "sticky"]);
    assert!(row.median("sticky") < Some(1.01));
    assert_eq!(entries(results.path()), 2);
    let output = bench(&["placement", "--policy", "rings"])
        .output()
        .expect("bench");
    let [_, errors] = texts(&output);
    assert!(
        errors.contains("\"rings\" is no policy; these are: contiguous, round-robin"),
        "{errors}"
    );
}
