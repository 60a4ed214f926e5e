use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use ephesus_wire::resp::value::measure;

use super::generator::{Answer, answers};
use super::schedule::Schedule;
use super::*;

#[test]
fn schedule_is_due_by_time_alone() {
    let mut schedule = Schedule::new(1000, 10);
    assert_eq!(schedule.take_due(0), Some(0));
    assert_eq!(schedule.take_due(9_999_999), None);
    assert_eq!(schedule.take_due(35_000_000), Some(10_000_000));
    assert_eq!(schedule.take_due(35_000_000), Some(20_000_000));
    assert_eq!(schedule.take_due(35_000_000), Some(30_000_000));
    assert_eq!(schedule.take_due(35_000_000), None);
    assert!(Schedule::new(0, 1).is_closed());
}

#[test]
fn schedule_does_not_drift() {
    let mut schedule = Schedule::new(30_000, 7);
    let sent = (0..)
        .take_while(|_| schedule.take_due(10_000_000_000 - 1).is_some())
        .count();
    assert_eq!(sent, 42_858);
}

/// Answers every `GET`/`SET` of one connection with `+OK`, pausing once when told to.
fn serve_one(listener: TcpListener, pause_after_ms: u64, pause_ms: u64) {
    let (mut stream, _) = listener.accept().expect("client");
    let started = Instant::now();
    let mut paused = false;
    let mut chunk = [0; 65536];
    let mut unread = Vec::new();
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        unread.extend_from_slice(&chunk[..length]);
        if !paused && started.elapsed() > Duration::from_millis(pause_after_ms) {
            paused = true;
            thread::sleep(Duration::from_millis(pause_ms));
        }
        let mut replies = Vec::new();
        while let Some(used) = measure(&unread).expect("command") {
            unread.drain(..used);
            replies.extend_from_slice(b"+OK\r\n");
        }
        if stream.write_all(&replies).is_err() {
            return;
        }
    }
}

fn config(address: SocketAddr, rate: u64) -> LoadConfig {
    LoadConfig {
        address,
        rate,
        connections: 1,
        pipeline: 2,
        operation: Operation::Mixed,
        get_percent: 50,
        keys: 100,
        value_bytes: 10,
        duration: Duration::from_millis(600),
        warmup: Duration::ZERO,
    }
}

#[test]
fn a_stall_is_charged_to_everything_that_was_due_during_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    let server = thread::spawn(move || serve_one(listener, 200, 200));
    let report = run(&config(address, 1000)).expect("run");
    server.join().expect("server");
    assert_eq!(report.measured.all.count, 600);
    assert_eq!(report.measured.get.count + report.measured.set.count, 600);
    assert!(report.measured.get.count > 200 && report.measured.set.count > 200);
    assert_eq!(report.found.unanswered, 0);
    // A third of all commands fell into the 200 ms stall; waiting spreads evenly from 200 ms to 0,
    // so about a sixth of all waited longer than 100 ms. A closed loop would have seen one.
    assert!(report.measured.all.p99_us > 150_000.0, "{report:?}");
    assert!(report.measured.all.mean_us > 20_000.0, "{report:?}");
    assert!(report.measured.all.p50_us < 60_000.0, "{report:?}");
}

#[test]
fn a_closed_loop_keeps_one_batch_in_flight() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    let server = thread::spawn(move || serve_one(listener, u64::MAX, 0));
    let gets = LoadConfig {
        operation: Operation::Get,
        ..config(address, 0)
    };
    let report = run(&gets).expect("run");
    server.join().expect("server");
    assert!(report.measured.all.count > 600, "{report:?}");
    assert_eq!(
        (report.measured.set.count, report.measured.set.max_us),
        (0, 0.0)
    );
    assert!(report.found.sent - report.measured.all.count <= 2);
    assert!(!report.found.overloaded);
}

#[test]
fn error_replies_and_bad_shapes_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("client");
        let mut chunk = [0; 1024];
        let _ = stream.read(&mut chunk);
        stream.write_all(b"-OOM full\r\n").expect("write");
    });
    assert!(matches!(
        run(&config(address, 1000)),
        Err(BenchError::Reply { .. })
    ));
    server.join().expect("server");
    let wide = LoadConfig {
        pipeline: 65,
        ..config(address, 1)
    };
    assert!(matches!(run(&wide), Err(BenchError::Flag { .. })));
}

#[test]
fn gets_and_sets_apart_share_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let config = LoadConfig {
        connections: 10,
        pipeline: 1,
        operation: Operation::Apart,
        get_percent: 80,
        ..config(listener.local_addr().expect("address"), 1000)
    };
    let mut generator = generator(&config).expect("connections");
    let mut sent = [0; 10];
    for _ in 0..1000 {
        let lane = generator.next_lane();
        sent[lane] += 1;
        generator
            .send_batch(Turn { due_ns: 0, lane })
            .expect("sent");
        let batch = generator.lanes[lane].unanswered.pop_front();
        let kind = batch.expect("a batch").command.kind;
        assert_eq!(kind == Kind::Get, lane >= 2, "connection {lane}");
    }
    let sets: u64 = sent[..2].iter().sum();
    assert!((140..260).contains(&sets), "{sets}");
    assert!(sent.iter().all(|sent| *sent > 60), "{sent:?}");
}

/// What a stream of replies in these pieces answers, in words.
fn answers_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<String> {
    let (mut unread, mut words) = (Vec::new(), Vec::new());
    for piece in pieces {
        words.extend(
            answers(&mut unread, piece)?
                .into_iter()
                .map(|answer| match answer {
                    Answer::Done => "done".to_owned(),
                    Answer::Missed => "missed".to_owned(),
                    Answer::Refused(text) => text,
                }),
        );
    }
    Ok(words.join(" "))
}

#[test]
fn replies_are_read_wherever_they_are_cut() {
    let stream =
        b"+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n:1\r\n-MOVED 12 127.0.0.1:7000\r\n$0\r\n\r\n_\r\n+OK\r\n";
    let expected = "done done missed done MOVED 12 127.0.0.1:7000 done missed done";
    for size in 1..=stream.len() {
        assert_eq!(
            answers_of(stream.chunks(size)).expect("replies"),
            expected,
            "pieces of {size}"
        );
    }
    for wrong in [&b"*1\r\n:1\r\n"[..], b"?\r\n", b"+OK\rx"] {
        assert!(answers_of([wrong]).is_err());
    }
}

#[test]
fn phases_are_told_apart_by_when_a_command_was_due() {
    let times = Timetable::of(Duration::from_secs(1), Duration::from_secs(2));
    let at = |ms: u64| times.phase(ms * 1_000_000);
    assert_eq!(
        [at(0), at(999), at(1000), at(2999)],
        [Phase::WarmUp, Phase::WarmUp, Phase::Before, Phase::Before]
    );
    assert_eq!(times.end_ns(), 3_000_000_000);
    times.enter(Phase::During);
    assert_eq!(times.phase(u64::MAX - 1), Phase::During);
    times.end();
    assert!(times.seconds(Phase::During) < 10.0);
}

#[test]
fn a_patient_generator_waits_for_the_end_also_when_it_has_stopped_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    let ms = Duration::from_millis;
    for (is_patient, least) in [(true, ms(300)), (false, ms(0))] {
        let traffic = Traffic {
            address,
            rate: 1000,
            connections: 1,
            pipeline: 1,
            value_bytes: 1,
            apart: None,
            spins: false,
            is_patient,
        };
        let mut generator = Generator::open(traffic, |_: &mut Rng, _| None).expect("connected");
        generator.found.overloaded = true;
        let began = Instant::now();
        let found = generator.run(&Timetable::of(ms(0), ms(300))).expect("run");
        assert!(found.overloaded && found.sent == 0);
        assert!(began.elapsed() >= least, "{is_patient}");
    }
}
