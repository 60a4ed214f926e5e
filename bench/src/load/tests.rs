use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ephesus_wire::resp::value::measure;

use super::schedule::{Schedule, Timetable};
use super::*;
use crate::record::Latencies;

mod draws;
mod replies;
mod verified;

const MS: Duration = Duration::from_millis(1);

#[test]
fn schedule_is_due_by_time_alone() {
    let mut schedule = Schedule::new(1000, 10, (0, 1));
    assert_eq!(schedule.take_due(0), Some(0));
    assert_eq!(schedule.take_due(9_999_999), None);
    assert_eq!(schedule.take_due(35_000_000), Some(10_000_000));
    assert_eq!(schedule.take_due(35_000_000), Some(20_000_000));
    assert_eq!(schedule.take_due(35_000_000), Some(30_000_000));
    assert_eq!(schedule.take_due(35_000_000), None);
    assert_eq!(
        (
            schedule.due_before(40_000_000),
            schedule.due_before(40_000_001)
        ),
        (0, 1)
    );
    assert!(Schedule::new(0, 1, (0, 1)).is_closed());
}

#[test]
fn schedule_does_not_drift_and_executors_take_turns() {
    let mut due: Vec<(u64, usize)> = Vec::new();
    for executor in 0..3 {
        let mut schedule = Schedule::new(30_000, 7, (executor, 3));
        let batches = std::iter::from_fn(|| schedule.take_due(10_000_000_000 - 1));
        due.extend(batches.map(|due_ns| (due_ns, executor)));
    }
    assert_eq!(due.len(), 42_858);
    due.sort_unstable();
    assert!(
        due.iter()
            .enumerate()
            .all(|(place, (_, executor))| place % 3 == *executor)
    );
}

#[test]
fn phases_are_told_apart_by_when_an_operation_was_due() {
    let times = Timetable::of(1000 * MS, Some(2000 * MS));
    let at = |ms: u64| times.phase(ms * 1_000_000);
    assert_eq!(
        [at(0), at(999), at(1000), at(2999)],
        [Phase::WarmUp, Phase::WarmUp, Phase::Before, Phase::Before]
    );
    assert_eq!(times.end_ns(), 3_000_000_000);
    times.enter(Phase::During);
    assert_eq!(times.phase(u64::MAX - 1), Phase::During);
    times.end();
    assert!(times.seconds(Phase::During, times.now_ns()) < 10.0);
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let address = listener.local_addr().expect("address");
    (listener, address)
}

/// Serves connections, each on a thread: `reply` says what a command is answered with, none: the connection ends.
fn serve(listener: TcpListener, reply: impl Fn(&str) -> Option<String> + Clone + Send + 'static) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let reply = reply.clone();
            thread::spawn(move || answer(stream.expect("a connection"), reply));
        }
    });
}

fn answer(mut stream: TcpStream, reply: impl Fn(&str) -> Option<String>) {
    let (mut chunk, mut unread) = ([0; 65536], Vec::new());
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        unread.extend_from_slice(&chunk[..length]);
        let mut replies = String::new();
        while let Some(used) = measure(&unread).expect("command") {
            let command: Vec<u8> = unread.drain(..used).collect();
            match reply(&String::from_utf8_lossy(&command)) {
                Some(text) => replies += &text,
                None => return,
            }
        }
        if stream.write_all(replies.as_bytes()).is_err() {
            return;
        }
    }
}

fn ok(_: &str) -> Option<String> {
    Some("+OK\r\n".to_owned())
}

fn half_and_half(address: SocketAddr, rate: u64) -> Plan {
    let mut plan = Plan::new(address);
    plan.pace.rate = rate;
    plan.pace.connections = 1;
    plan.pace.pipeline = 2;
    plan.workload.mix = "read=50,write=50".parse().expect("a mix");
    plan.workload.keys = Indexes::Below(100);
    plan.workload.sizes = Sizes::fixed(10);
    plan
}

fn of(outcome: &Outcome, op: Op) -> Latencies {
    let mut run = outcome.run("server", "", 0);
    run.operations.remove(&op.to_string()).unwrap_or_default()
}

fn measured(duration: Duration) -> Span {
    Span {
        warmup: Duration::ZERO,
        duration: Some(duration),
    }
}

/// Answers at once, but once in its life, after `at`, only when `pause` is over.
fn stalling(at: Duration, pause: Duration) -> impl Fn(&str) -> Option<String> + Clone + Send {
    let began = Instant::now();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    move |command| {
        if began.elapsed() > at && !is_over.swap(true, std::sync::atomic::Ordering::Relaxed) {
            thread::sleep(pause);
        }
        ok(command)
    }
}

#[test]
fn a_stall_of_a_second_shows_in_an_open_loop_and_not_in_a_closed_one() {
    let p99_us = |rate| {
        let (listener, address) = listen();
        serve(listener, stalling(200 * MS, 1000 * MS));
        let outcome = run(&half_and_half(address, rate), measured(2000 * MS)).expect("run");
        let outcome = outcome.flawless().expect("no errors");
        assert_eq!(outcome.all(Phase::Before).count() % 2, 0);
        (outcome.all(Phase::Before), of(&outcome, Op::Read).count())
    };
    let (open, reads) = p99_us(1000);
    // Half of all operations were due in the stall: they waited from a second down to none.
    assert_eq!(open.count(), 2000);
    assert!((800..1200).contains(&reads), "{reads} reads");
    assert!(open.us(0.99) > 800_000.0, "{}", open.us(0.99));
    assert!(open.mean_us() > 150_000.0, "{}", open.mean_us());
    let (closed, _) = p99_us(0);
    assert!(closed.us(0.99) < 100_000.0, "{}", closed.us(0.99));
    assert!(closed.max_us() > 900_000.0, "{}", closed.max_us());
}

#[test]
fn a_closed_loop_keeps_one_batch_in_flight_and_counts_exactly() {
    let (listener, address) = listen();
    serve(listener, ok);
    let mut plan = half_and_half(address, 0);
    plan.pace.count = Some(1001);
    plan.pace.connections = 3;
    plan.pace.cpus = vec![crate::affinity::allowed().expect("CPUs")[0]; 2];
    plan.workload.mix = Mix::of(&[(Op::Read, 1)]);
    let outcome = run(&plan, Span::default()).expect("run");
    let outcome = outcome.flawless().expect("no errors");
    assert_eq!((outcome.sent, of(&outcome, Op::Read).count()), (1001, 1001));
    assert_eq!(of(&outcome, Op::Write).count(), 0);
    let run = outcome.run("server", "", 0);
    assert!(run.elapsed_s > 0.0 && run.offered_per_s.is_none());
}

#[test]
fn the_rate_of_a_server_that_falls_behind_is_its_own_and_not_what_was_offered() {
    let (listener, address) = listen();
    serve(listener, |command| {
        thread::sleep(4 * MS);
        ok(command)
    });
    let outcome = run(&half_and_half(address, 500), measured(500 * MS)).expect("run");
    let outcome = outcome.flawless().expect("no errors");
    assert_eq!(outcome.all(Phase::Before).count(), 250);
    let per_s = outcome.per_s(Phase::Before);
    assert!((20.0..=250.0).contains(&per_s), "{per_s}");
}

#[test]
fn who_is_stopped_by_too_much_that_is_not_answered_does_not_wait_longer_than_for_the_answers() {
    let (listener, address) = listen();
    serve(listener, stalling(Duration::ZERO, 700 * MS));
    let mut plan = half_and_half(address, 1000);
    plan.unanswered_max = 100;
    let began = Instant::now();
    let outcome = run(&plan, measured(500 * MS)).expect("run");
    assert_eq!(
        outcome.run.errors["OVERLOADED"], 1,
        "{:?}",
        outcome.run.errors
    );
    assert!(
        !outcome.run.errors.contains_key("UNANSWERED"),
        "{:?}",
        outcome.run.errors
    );
    assert!(began.elapsed() < 9000 * MS, "{:?}", began.elapsed());
    assert!(
        outcome
            .answered()
            .expect("it is behind")
            .flawless()
            .is_err()
    );
}

#[test]
fn every_second_has_its_row() {
    let (listener, address) = listen();
    serve(listener, ok);
    let plan = half_and_half(address, 1000);
    let mut told = Vec::new();
    let running = Running::start(plan, measured(2000 * MS)).expect("run");
    let outcome = running.finish(|second| told.push(*second));
    let run = outcome
        .flawless()
        .expect("no errors")
        .run("server", "", 1000);
    assert_eq!(run.seconds, told);
    assert_eq!(told.len(), 2);
    assert_eq!([told[0].at_s, told[1].at_s], [0.0, 1.0]);
    let done: u64 = told.iter().map(|second| second.done).sum();
    assert!((1900..=2000).contains(&done), "{told:?}");
}

#[test]
fn errors_are_counted_by_their_code_and_told_by_example() {
    let (listener, address) = listen();
    serve(listener, |_| Some("-OOM full of data\r\n".to_owned()));
    let outcome = run(&half_and_half(address, 1000), measured(100 * MS)).expect("run");
    assert_eq!(outcome.run.errors.keys().collect::<Vec<_>>(), ["OOM"]);
    assert_eq!(outcome.run.errors["OOM"], outcome.sent);
    let text = outcome.flawless().expect_err("errors").to_string();
    assert!(
        text.contains("OOM full of data") && !text.contains('\n'),
        "{text}"
    );
    let mut wide = Plan::new(address);
    wide.pace.pipeline = PIPELINE_MAX + 1;
    assert!(matches!(
        run(&wide, Span::default()),
        Err(BenchError::Failed { .. })
    ));
}

#[test]
fn nobody_there_and_what_is_no_reply_is_one_clear_line() {
    let (listener, address) = listen();
    drop(listener);
    let refused = run(&Plan::new(address), Span::default()).expect_err("nobody is there");
    assert!(
        refused.to_string().contains(&address.to_string()),
        "{refused}"
    );
    let (listener, address) = listen();
    serve(listener, |_| {
        Some("HTTP/1.1 400 Bad Request\r\n".to_owned())
    });
    let outcome = run(&Plan::new(address), Span::default()).expect("it begins");
    let wrong = outcome.complete().expect_err("no reply");
    assert!(wrong.to_string().contains("not a reply"), "{wrong}");
}

#[test]
fn operations_on_a_connection_that_breaks_are_lost_and_others_go_on() {
    let (listener, address) = listen();
    let left = Arc::new(std::sync::atomic::AtomicU64::new(20));
    serve(listener, move |command| {
        let left = left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        (left != 10).then(|| ok(command)).flatten()
    });
    let mut plan = half_and_half(address, 0);
    plan.pace.count = Some(1000);
    let outcome = run(&plan, Span::default()).expect("run");
    let outcome = outcome.complete().expect("it goes on");
    let lost = outcome.run.errors["CONNECTION-LOST"];
    assert!((1..=2).contains(&lost), "{lost}");
    assert_eq!(outcome.all(Phase::Before).count() + lost, 1000);
}

#[test]
fn redirects_are_followed_and_learnt() {
    let ((source, first), (target, second)) = (listen(), listen());
    serve(source, move |_| Some(format!("-MOVED 1 {second}\r\n")));
    serve(target, ok);
    let mut plan = half_and_half(first, 0);
    plan.pace.count = Some(1000);
    plan.workload.keys = Indexes::These([7].into());
    let outcome = run(&plan, Span::default()).expect("run");
    let outcome = outcome.flawless().expect("no errors");
    assert_eq!(outcome.all(Phase::Before).count(), 1000);
    assert_eq!(outcome.redirects, 2, "those of the first batch");
}

#[test]
fn a_cluster_is_asked_who_has_what_at_first_and_after_a_redirect() {
    let ((source, first), (target, second)) = (listen(), listen());
    let slots = |last: u16, owner: SocketAddr, then: SocketAddr| {
        let range = |first: u16, last: u16, at: SocketAddr| {
            let host = at.ip();
            format!(
                "*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n{host}\r\n:{}\r\n",
                at.port()
            )
        };
        let ranges = range(0, last, owner) + &range(last + 1, 16_383, then);
        format!("*2\r\n{ranges}")
    };
    let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let before = slots(16_000, first, first);
    let after = slots(16_000, second, second);
    serve(source, move |command| {
        if !command.contains("CLUSTER") {
            return Some(format!("-MOVED 1 {second}\r\n"));
        }
        let is_first = counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        Some(if is_first {
            before.clone()
        } else {
            after.clone()
        })
    });
    serve(target, ok);
    let mut plan = half_and_half(first, 0);
    plan.is_cluster = true;
    plan.pace.count = Some(5000);
    plan.workload.keys = Indexes::Below(1_000_000);
    let outcome = run(&plan, Span::default()).expect("run");
    let outcome = outcome.flawless().expect("no errors");
    assert_eq!(outcome.all(Phase::Before).count(), 5000);
    assert!(asked.load(std::sync::atomic::Ordering::Relaxed) >= 2);
    // Of redirects alone it would learn a key's slot at a time.
    assert!(outcome.redirects < 2000, "{}", outcome.redirects);
}

#[test]
fn operations_on_a_server_of_a_cluster_that_is_gone_wait_for_whoever_gets_its_slots() {
    let ((source, first), (target, second)) = (listen(), listen());
    let range = |from: u16, to: u16, at: SocketAddr| {
        let port = at.port();
        format!("*3\r\n:{from}\r\n:{to}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
    };
    let before = format!(
        "*2\r\n{}{}",
        range(0, 8000, first),
        range(8001, 16_383, second)
    );
    let after = format!("*1\r\n{}", range(0, 16_383, second));
    thread::spawn(move || {
        // The one that asks for the table, and the only connection of the run; then nobody listens any more.
        let accept = || source.accept().expect("a client").0;
        answer(accept(), move |_| Some(before.clone()));
        let load = accept();
        drop(source);
        let left = std::cell::Cell::new(100);
        answer(load, move |command| {
            left.set(left.get() - 1);
            (left.get() > 0).then(|| ok(command)).flatten()
        });
    });
    let began = Instant::now();
    serve(target, move |command| match command.contains("CLUSTER") {
        // A failover takes its time.
        true if began.elapsed() > 700 * MS => Some(after.clone()),
        true => Some("-CLUSTERDOWN wait\r\n".to_owned()),
        false => ok(command),
    });
    let mut plan = half_and_half(first, 500);
    plan.is_cluster = true;
    plan.workload.keys = Indexes::Below(1_000_000);
    let outcome = run(&plan, measured(2000 * MS)).expect("run");
    let outcome = outcome.complete().expect("it goes on");
    let lost = outcome.run.errors["CONNECTION-LOST"];
    assert!((1..=10).contains(&lost), "{:?}", outcome.run.errors);
    assert_eq!(outcome.run.errors.len(), 1, "{:?}", outcome.run.errors);
    let all = outcome.all(Phase::Before);
    assert_eq!(all.count() + lost, 1000);
    assert!(
        all.max_us() > 300_000.0,
        "who waited is charged: {}",
        all.max_us()
    );
}
