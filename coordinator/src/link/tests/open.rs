//! What an open link does.

use super::*;
use crate::link::connection::held;

#[test]
fn messages_pass_both_ways_in_order_and_whole() {
    run(async {
        let ends = Ends::new(ListenOptions::default(), secret(b"sixteen bytes and more"));
        let (mut dialled, mut accepted) = ends.link().await;
        assert_eq!(dialled.opened().peer, identity(1));
        assert_eq!(accepted.opened().peer, identity(2));
        assert_eq!(dialled.address(), ends.listener.address());
        let large = vec![0xA5; ephesus_wire::limits::FRAME_PAYLOAD_BYTES_MAX];
        for (kind, payload) in [(1, &b""[..]), (2, b"two"), (3, &large)] {
            dialled
                .send_on(kind, u64::from(kind) * 10, payload)
                .unwrap();
            accepted.send(kind, payload).unwrap();
        }
        for (kind, payload) in [(1, &b""[..]), (2, b"two"), (3, &large)] {
            let message = accepted.recv().await.unwrap();
            assert_eq!((message.kind, message.stream), (kind, u64::from(kind) * 10));
            assert!(message.payload == payload);
            let message = dialled.recv().await.unwrap();
            assert_eq!((message.kind, message.stream), (kind, 0));
            assert!(message.payload == payload);
        }
        let too_long = dialled.send(1, &[&large[..], b"x"].concat());
        let bytes = large.len() + 1;
        assert_eq!(too_long, Err(LinkError::TooLong { bytes }));
        dialled.send(1, b"still open").unwrap();
        assert_eq!(accepted.recv().await.unwrap().payload, b"still open");
    });
}

#[test]
fn names_are_looked_up() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let by_name = format!("localhost:{}", ends.listener.address().port());
        ends.dialer.dial(&by_name).await.unwrap();
        let error = ends.dialer.dial("no port").await.unwrap_err();
        assert!(matches!(error, LinkError::Address { .. }), "{error}");
    });
}

#[test]
fn many_messages_pass_both_ways_at_once() {
    const MESSAGES: u64 = 100_000;
    run(async {
        let options = LinkOptions {
            queue_bytes_max: 1 << 20,
            ..LinkOptions::default()
        };
        let ends = Ends::with_link(options);
        let (dialled, accepted) = ends.link().await;
        let pump = |mut link: Link| {
            let sender = link.sender();
            let sending = glommio::spawn_local(async move {
                for number in 0..MESSAGES {
                    while sender.queued_bytes() > 512 << 10 {
                        glommio::timer::sleep(Duration::from_micros(100)).await;
                    }
                    sender.send_on(7, number, &[number as u8; 100]).unwrap();
                    if number % 64 == 0 {
                        glommio::yield_if_needed().await;
                    }
                }
            });
            let receiving = glommio::spawn_local(async move {
                for number in 0..MESSAGES {
                    let message = link.recv().await.unwrap();
                    assert_eq!(message.stream, number);
                    assert_eq!(message.payload, [number as u8; 100]);
                }
                link
            });
            async move {
                sending.await;
                receiving.await
            }
        };
        futures_lite::future::zip(pump(dialled), pump(accepted)).await;
    });
}

#[test]
fn a_dropped_recv_loses_nothing() {
    const MESSAGES: u64 = 2_000;
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (dialled, mut accepted) = ends.link().await;
        glommio::spawn_local(async move {
            for number in 0..MESSAGES {
                dialled.send_on(1, number, &[1; 300]).unwrap();
                if number % 10 == 0 {
                    glommio::timer::sleep(Duration::from_micros(50)).await;
                }
            }
            std::future::pending::<()>().await;
        })
        .detach();
        let (mut received, mut abandoned) = (0, 0);
        while received < MESSAGES {
            match futures_lite::future::poll_once(accepted.recv()).await {
                Some(message) => {
                    assert_eq!(message.unwrap().stream, received);
                    received += 1;
                }
                None => {
                    abandoned += 1;
                    glommio::timer::sleep(Duration::from_micros(30)).await;
                }
            }
        }
        assert!(abandoned > 0, "nothing was tested");
    });
}

#[test]
fn what_was_queued_before_a_link_is_dropped_arrives_and_then_its_end() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (dialled, mut accepted) = ends.link().await;
        let sender = dialled.sender();
        // The peer's unread bytes must not cost it the answer.
        for _ in 0..100 {
            accepted.send(9, &[0; 1000]).unwrap();
        }
        glommio::timer::sleep(Duration::from_millis(20)).await;
        let answer = vec![3; 5 << 20];
        dialled.send(1, &answer).unwrap();
        drop(dialled);
        assert_eq!(sender.send(1, b"late"), Err(LinkError::Local));
        assert!(accepted.recv().await.unwrap().payload == answer);
        assert_eq!(accepted.recv().await, Err(LinkError::Ended));
        assert_eq!(accepted.recv().await, Err(LinkError::Ended));
        assert_eq!(accepted.send(1, b""), Err(LinkError::Ended));
        eventually("both ends are counted", || {
            ends.accepted.count(Reason::Ended) == 1 && ends.dialled.count(Reason::Local) == 1
        })
        .await;
        assert_eq!(ends.listener.links(), 0, "the place is free again");
    });
}

#[test]
fn closing_by_a_sender_ends_a_recv_on_either_side() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (mut dialled, mut accepted) = ends.link().await;
        let sender = dialled.sender();
        let waiting = glommio::spawn_local(async move { dialled.recv().await });
        glommio::timer::sleep(Duration::from_millis(5)).await;
        sender.close();
        assert_eq!(waiting.await, Err(LinkError::Local));
        assert_eq!(accepted.recv().await, Err(LinkError::Ended));
    });
}

#[test]
fn a_peer_that_never_ends_is_left_after_the_linger() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (dialled, accepted) = ends.link().await;
        drop(dialled);
        glommio::timer::sleep(LINGER / 2).await;
        assert_eq!(ends.dialled.count(Reason::Local), 0);
        eventually("given up", || ends.dialled.count(Reason::Local) == 1).await;
        drop(accepted);
    });
}

#[test]
fn silence_ends_a_link_and_chatter_keeps_it() {
    run(async {
        let options = LinkOptions {
            idle_timeout: Duration::from_millis(400),
            ..LinkOptions::default()
        };
        let ends = Ends::with_link(options);
        let (mut silent, mut chatty) = ends.link().await;
        let sender = chatty.sender();
        let talking = glommio::spawn_local(async move {
            for _ in 0..15 {
                glommio::timer::sleep(Duration::from_millis(100)).await;
                if sender.send(1, b"still here").is_err() {
                    break;
                }
            }
        });
        // Who is never answered gives up; who is talked to only when the other has gone.
        let (heard, starved) = futures_lite::future::zip(
            async {
                while silent.recv().await.is_ok() {}
                silent.recv().await
            },
            chatty.recv(),
        )
        .await;
        assert_eq!(starved, Err(LinkError::Idle));
        assert_eq!(heard, Err(LinkError::Ended));
        assert_eq!(ends.accepted.count(Reason::Idle), 1);
        assert_eq!(ends.dialled.count(Reason::Idle), 0);
        talking.await;
    });
}

#[test]
fn a_peer_is_not_silent_because_nobody_reads_what_it_sent() {
    run(async {
        let options = LinkOptions {
            idle_timeout: Duration::from_millis(200),
            ..LinkOptions::default()
        };
        let ends = Ends::with_link(options);
        let (mut dialled, mut accepted) = ends.link().await;
        accepted.send(1, b"unread").unwrap();
        let chatter = accepted.sender();
        let reading = glommio::spawn_local(async move { while accepted.recv().await.is_ok() {} });
        for _ in 0..12 {
            glommio::timer::sleep(Duration::from_millis(50)).await;
            dialled.send(1, b"keeps the other end content").unwrap();
        }
        assert_eq!(dialled.recv().await.unwrap().payload, b"unread");
        assert!(chatter.send(1, b"again").is_ok());
        assert_eq!(dialled.recv().await.unwrap().payload, b"again");
        drop(dialled);
        reading.await;
    });
}

#[test]
fn a_reader_that_is_too_slow_loses_the_link() {
    run(async {
        let options = LinkOptions {
            queue_bytes_max: 1 << 20,
            ..LinkOptions::default()
        };
        let ends = Ends::with_link(options);
        let (mut dialled, accepted) = ends.link().await;
        let mut sent = 0;
        let error = loop {
            match dialled.send(1, &[0; 100_000]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            glommio::timer::sleep(Duration::from_micros(100)).await;
            assert!(sent < 10_000, "the queue has no bound");
        };
        assert_eq!(error, LinkError::Overflow { max: 1 << 20 });
        assert_eq!(dialled.recv().await, Err(error));
        assert_eq!(ends.dialled.count(Reason::Overflow), 1);
        drop(accepted);
    });
}

#[test]
fn links_that_send_half_frames_hold_little_together_and_others_live() {
    use ephesus_wire::frame::Frame;
    use ephesus_wire::handshake::Handshake;
    const MAX: usize = 8 << 20;
    const LINKS: u64 = 32;
    run(async {
        let ends = Ends::with_link(LinkOptions {
            all_bytes_max: MAX,
            ..LinkOptions::default()
        });
        let (mut dialled, mut accepted) = ends.link().await;
        let mut half = Vec::new();
        let frame = Frame {
            kind: 1,
            stream: 0,
            sequence: 0,
            payload: &vec![7; 1 << 20],
        };
        frame.encode(&mut half);
        half.pop();
        let mut sockets = Vec::new();
        let mut most = 0;
        for _ in 0..LINKS {
            let mut socket = socket::Socket::connect(ends.listener.address())
                .await
                .unwrap();
            let (_, hello) = Handshake::connect(opening::hello(identity(2)), None);
            socket.write_all(&hello).await.unwrap();
            let mut link = ends.listener.accept().await;
            glommio::spawn_local(async move { link.recv().await.unwrap_err() }).detach();
            // Whose link is closed cannot write all of it.
            let _ = socket.write_all(&half).await;
            sockets.push(socket);
            most = most.max(held::bytes());
        }
        assert!(most > MAX / 2, "{most} bytes");
        assert!(most <= MAX, "{most} bytes");
        assert!(ends.accepted.count(Reason::Overflow) >= LINKS - 8);
        dialled.send(1, b"lives").unwrap();
        assert_eq!(accepted.recv().await.unwrap().payload, b"lives");
        accepted.send(2, b"too").unwrap();
        assert_eq!(dialled.recv().await.unwrap().payload, b"too");
        drop(sockets);
        drop((dialled, accepted, ends));
        glommio::timer::sleep(Duration::from_millis(100)).await;
        assert_eq!(held::bytes(), 0);
    });
}

#[test]
fn damage_behind_the_handshake_ends_the_link() {
    use ephesus_wire::frame::Frame;
    use ephesus_wire::handshake::{HANDSHAKE_KIND_MIN, Handshake};
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let frame = |kind| {
            let mut bytes = Vec::new();
            let frame = Frame {
                kind,
                stream: 0,
                sequence: 0,
                payload: b"something",
            };
            frame.encode(&mut bytes);
            bytes
        };
        let mut damaged = frame(1);
        damaged[33] ^= 1;
        let mut half = frame(1);
        half.pop();
        for (tail, reason) in [
            (damaged, Reason::Framing),
            (frame(HANDSHAKE_KIND_MIN), Reason::Framing),
            (half, Reason::Broken),
        ] {
            let before = ends.accepted.count(reason);
            let mut socket = socket::Socket::connect(ends.listener.address())
                .await
                .unwrap();
            let (_, hello) = Handshake::connect(opening::hello(identity(2)), None);
            // All in one segment: what follows the handshake must not get lost.
            let bytes = [&hello[..], &frame(5), &tail].concat();
            socket.write_all(&bytes).await.unwrap();
            socket.shut_down(std::net::Shutdown::Write);
            let mut link = ends.listener.accept().await;
            assert_eq!(link.recv().await.unwrap().kind, 5);
            let error = link.recv().await.unwrap_err();
            assert_eq!(error.reason(), reason, "{error}");
            assert_eq!(ends.accepted.count(reason), before + 1);
        }
    });
}

#[test]
fn dialling_nobody_fails_and_dialling_the_silent_times_out() {
    run(async {
        let ends = Ends::with_link(quick());
        let nobody = port().local_addr().unwrap().to_string();
        let error = ends.dialer.dial(&nobody).await.unwrap_err();
        let kind = std::io::ErrorKind::ConnectionRefused;
        let address = nobody;
        assert_eq!(error, LinkError::Unreachable { address, kind });
        assert_eq!(ends.dialled.count(Reason::Unreachable), 1);
        // Connected by the kernel, accepted by nobody.
        let silent = port();
        let address = silent.local_addr().unwrap().to_string();
        let error = ends.dialer.dial(&address).await.unwrap_err();
        assert_eq!(error, LinkError::HandshakeTimeout);
        assert_eq!(ends.dialled.count(Reason::HandshakeTimeout), 1);
    });
}

#[test]
fn connecting_ends_when_its_time_is_over() {
    use socket2::{Domain, Socket, Type};
    run(async {
        // A listener whose backlog is full lets no further connection come about.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
        full.bind(&any.into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        let _queued: Vec<_> = (0..4)
            .map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(50)))
            .collect();
        let options = LinkOptions {
            dial_timeout: Duration::from_millis(200),
            ..LinkOptions::default()
        };
        let ends = Ends::with_link(options);
        let address = address.to_string();
        let error = ends.dialer.dial(&address).await.unwrap_err();
        let kind = std::io::ErrorKind::TimedOut;
        assert_eq!(error, LinkError::Unreachable { address, kind });
    });
}
