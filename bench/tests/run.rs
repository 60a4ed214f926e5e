//! The program: what it prints, which code it ends with, and what is left of a run that is cut short.

#![expect(clippy::disallowed_methods, reason = "a server and a clock of its own")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use ephesus_wire::resp::value::measure;
use serde_json::Value;

/// Answers every command with `+OK`, as long as some are left.
fn serve(mut stream: TcpStream, left: &AtomicU64) {
    let (mut chunk, mut unread) = ([0; 65536], Vec::new());
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        unread.extend_from_slice(&chunk[..length]);
        let mut replies = String::new();
        while let Some(used) = measure(&unread).expect("command") {
            unread.drain(..used);
            replies += "+OK\r\n";
            // It stays at 0.
            let _ = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        }
        if left.load(Relaxed) == 0 || stream.write_all(replies.as_bytes()).is_err() {
            return;
        }
    }
}

/// A server that is gone after so many commands.
fn server(left: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    let left = Arc::new(AtomicU64::new(left));
    thread::spawn(move || {
        while left.load(Relaxed) > 0 {
            let (stream, _) = listener.accept().expect("a client");
            let left = Arc::clone(&left);
            thread::spawn(move || serve(stream, &left));
        }
    });
    address
}

fn start(address: SocketAddr, flags: &str, dir: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ephesus-bench"));
    command
        .arg("run")
        .arg(address.to_string())
        .args(flags.split(' '));
    command.arg("--json").arg(dir.join("record.json"));
    command.arg("--csv").arg(dir.join("rows.csv"));
    command.arg("--hgrm").arg(dir).arg("--report").arg(dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program")
}

/// Its code, its tables, its complaints and its record.
fn end(program: Child, dir: &Path) -> (Option<i32>, String, String, Value) {
    let output = program.wait_with_output().expect("its end");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let record = std::fs::read_to_string(dir.join("record.json")).expect("a record");
    let record = serde_json::from_str(&record).expect("JSON");
    let (out, err) = (text(output.stdout), text(output.stderr));
    (output.status.code(), out, err, record)
}

const FLAGS: &str = "--connections 1 --rate 500 --warmup 0 --keys 10";

#[test]
fn a_run_that_ends_well_says_nothing_but_its_tables_and_writes_every_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = start(
        server(u64::MAX),
        &format!("{FLAGS} --duration 1"),
        dir.path(),
    );
    let (code, out, err, record) = end(program, dir.path());
    assert_eq!((code, &*err), (Some(0), ""));
    assert!(
        out.contains("p99.9 us") && out.contains("| server | read "),
        "{out}"
    );
    assert!(record["truncated"].is_null());
    let rows = std::fs::read_to_string(dir.path().join("rows.csv")).expect("rows");
    assert_eq!(rows.lines().count(), 2, "a head and a second: {rows}");
    for file in ["run.html", "run-server-read.hgrm", "run-server-write.hgrm"] {
        assert!(dir.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn a_signal_leaves_what_was_done_until_then_and_ends_with_code_1() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = start(
        server(u64::MAX),
        &format!("{FLAGS} --duration 60"),
        dir.path(),
    );
    thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(program.id() as i32, libc::SIGINT) };
    let (code, out, err, record) = end(program, dir.path());
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert_eq!((code, &*err), (Some(1), "ephesus-bench: interrupted\n"));
    assert!(out.contains("interrupted"), "{out}");
    assert_eq!(record["truncated"], "interrupted");
    let run = &record["cases"][0]["runs"][0];
    let done = |op: &str| run["operations"][op]["count"].as_u64().unwrap_or(0);
    assert!(done("read") + done("write") > 100, "{run}");
    let elapsed_s = run["elapsed_s"].as_f64().expect("seconds");
    assert!((0.5..30.0).contains(&elapsed_s), "{elapsed_s}");
}

#[test]
fn a_server_that_is_gone_is_one_line_and_what_was_done_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = start(server(300), &format!("{FLAGS} --duration 60"), dir.path());
    let (code, _, err, record) = end(program, dir.path());
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("connecting to 127.0.0.1:"), "{err}");
    assert!(record["truncated"].to_string().contains("connecting to"));
    let run = &record["cases"][0]["runs"][0];
    assert!(
        run["operations"]["read"]["count"].as_u64() > Some(50),
        "{run}"
    );
}

#[test]
fn what_this_machine_has_too_few_cpus_for_is_a_row_that_says_so() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on a disk");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ephesus-bench"));
    command.args(["compare", "--cases", "get-p16-cores", "--shards", "1000"]);
    command.arg("--dir").arg(dir.path());
    let output = command.output().expect("its end");
    let out = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{out}");
    let row = out
        .lines()
        .find(|line| line.starts_with("| get-p16-cores | all "));
    assert!(
        row.is_some_and(|row| row.contains("| unmeasured |")),
        "{out}"
    );
    for part in ["valkey-cluster", "servers need 1000 CPUs and clients 1000"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}
