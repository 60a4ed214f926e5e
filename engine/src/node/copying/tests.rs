use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;
use crate::net::Waker;

fn job(port: u16, timeout_ms: u64, keys: usize) -> (Job, flume::Receiver<Message>) {
    let (inbox, messages) = flume::unbounded();
    let waker = Arc::new(Waker::new().expect("a waker"));
    let copied = |n: usize| Copied {
        key: n.to_string().into_bytes().into(),
        dump: vec![0; 1000],
        ttl_ms: 5,
    };
    let job = Job {
        id: 7,
        peer: Peer::new(inbox, waker),
        host: b"127.0.0.1".to_vec(),
        port,
        timeout: Duration::from_millis(timeout_ms),
        database: 3,
        user: None,
        password: Some(Zeroizing::new(b"secret".to_vec())),
        replaces: true,
        keys: (0..keys).map(copied).collect(),
    };
    (job, messages)
}

/// Answers whoever comes with that, and then waits until it has gone.
fn target(says: &'static str) -> (u16, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let thread = std::thread::Builder::new().spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.write_all(says.as_bytes()).expect("written");
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        all
    });
    (port, thread.expect("started"))
}

fn outcome(says: &'static str, keys: usize) -> (Outcome, Vec<u8>) {
    let (port, thread) = target(says);
    let (job, messages) = job(port, 300, keys);
    let copying = Copying::default();
    assert!(copying.reserve(&job) && copying.ask(job));
    let message = messages.recv().expect("an outcome");
    let Message::Copied(7, outcome) = message else {
        panic!("{message:?}");
    };
    (outcome, thread.join().expect("ended"))
}

#[test]
fn what_a_target_takes_is_told() {
    let (all, said) = outcome("+OK\r\n+OK\r\n+OK\r\n+OK\r\n", 2);
    assert_eq!((all.taken, all.error), (vec![0, 1], None));
    let said = String::from_utf8_lossy(&said);
    let head = "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*5\r\n$7\r\nRESTORE\r\n$1\r\n0\r\n";
    assert!(said.starts_with(head), "{said}");

    let (some, _) = outcome("+OK\r\n+OK\r\n-BUSYKEY x\r\n+OK\r\n-ERR y\r\n", 3);
    assert_eq!(some.taken, [1]);
    assert_eq!(some.error, Some(CopyError::Refused("BUSYKEY x".to_owned())));

    let (none, _) = outcome("-WRONGPASS x\r\n+OK\r\n+OK\r\n", 1);
    assert!(none.taken.is_empty());
    assert_eq!(
        none.error.expect("refused").to_string(),
        "ERR Target instance replied with error: WRONGPASS x"
    );
}

#[test]
fn a_target_that_says_nothing_or_garbage_is_left_in_time() {
    for says in ["", "+OK\r\n", "+OK\r\n+OK\r\n+OK"] {
        let (nothing, _) = outcome(says, 1);
        assert_eq!(
            (nothing.taken, nothing.error),
            (vec![], Some(CopyError::Reading))
        );
    }
    let garbage: &'static str = "x".repeat(100_000).leak();
    let (nothing, _) = outcome(garbage, 1);
    assert!(nothing.taken.is_empty());
    let (job, messages) = job(1, 300, 1);
    let copying = Copying::default();
    assert!(copying.reserve(&job) && copying.ask(job));
    let expected = Outcome {
        error: Some(CopyError::Writing),
        ..Outcome::default()
    };
    assert!(matches!(messages.recv(), Ok(Message::Copied(7, outcome)) if outcome == expected));
}

#[test]
fn jobs_are_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let copying = Copying::default();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let (mut job, messages) = job(port, 100, 1);
        let big = Copied {
            dump: vec![0; 40 << 20],
            ..job.keys[0].clone()
        };
        job.keys = [big].into();
        let has_room = copying.reserve(&job);
        waiting.push((has_room && copying.ask(job), messages));
    }
    let taken: Vec<bool> = waiting.iter().map(|(is_taken, _)| *is_taken).collect();
    assert_eq!(taken, [true, true, true, false]);
    for (_, messages) in waiting.iter().filter(|(is_taken, _)| *is_taken) {
        assert!(messages.recv().is_ok());
    }
}

#[test]
fn all_that_a_job_keeps_takes_room_until_it_is_over() {
    let big = || Some(vec![b'x'; 40 << 20]);
    for field in 0..3 {
        let copying = Copying::default();
        let (mut job, _messages) = job(1, 100, 1);
        match field {
            0 => job.host = big().expect("bytes"),
            1 => job.user = big(),
            _ => job.password = big().map(Zeroizing::new),
        }
        let taken = [(); 4].map(|()| copying.reserve(&job));
        assert_eq!(taken, [true, true, true, false]);
        let bytes = copying.bytes.load(Ordering::Relaxed);
        assert!((120 << 20..=BYTES_MAX).contains(&bytes), "{bytes}");
    }
    let copying = Copying::default();
    let (mut job, messages) = job(1, 100, 1);
    // A name that nobody has, of bytes that are no text.
    job.host = vec![0xff; 1 << 20];
    assert!(copying.reserve(&job) && copying.ask(job));
    let message = messages.recv();
    let Ok(Message::Copied(7, outcome)) = message else {
        panic!("{message:?}");
    };
    assert_eq!(outcome.error, Some(CopyError::Connecting));
    assert_eq!(copying.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_target_that_answers_or_takes_a_byte_at_a_time_is_left_in_time() {
    // Each of them does something well within the time, and is not done after many times that.
    for reads in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let (left, is_left) = flume::bounded::<()>(0);
        let target = std::thread::Builder::new().spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut piece = [0; 1 << 10];
            loop {
                let done = match reads {
                    true => stream.read(&mut piece).is_ok_and(|read| read > 0),
                    false => stream.write_all(b"x").is_ok(),
                };
                let waited = is_left.recv_timeout(Duration::from_millis(50));
                if !done || waited == Err(flume::RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        });
        let target = target.expect("started");
        let (mut job, messages) = job(port, 400, 1);
        if reads {
            let mut copied = job.keys[0].clone();
            copied.dump = vec![0; 32 << 20];
            job.keys = [copied].into();
        }
        let copying = Copying::default();
        let began = clock();
        assert!(copying.reserve(&job) && copying.ask(job));
        let message = messages.recv();
        let Ok(Message::Copied(7, outcome)) = message else {
            panic!("{message:?}");
        };
        let error = match reads {
            true => CopyError::Writing,
            false => CopyError::Reading,
        };
        assert_eq!(outcome.error, Some(error));
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        drop(left);
        target.join().expect("ended");
    }
}
