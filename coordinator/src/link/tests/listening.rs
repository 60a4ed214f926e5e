//! What strangers cannot do to a listener.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

/// A connection that says `bytes` and then nothing.
fn stranger(ends: &Ends, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(ends.listener.address()).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

fn quick_listener() -> ListenOptions {
    ListenOptions {
        link: quick(),
        ..ListenOptions::default()
    }
}

/// A link still opens, at once.
async fn works(ends: &Ends) {
    let work = async {
        let (dialled, mut accepted) = ends.link().await;
        dialled.send(1, b"through").unwrap();
        assert_eq!(accepted.recv().await.unwrap().payload, b"through");
    };
    let worked = socket::within(Duration::from_millis(900), work).await;
    assert!(worked.is_some(), "the listener is disturbed");
}

#[test]
fn garbage_is_closed_and_counted() {
    run(async {
        let ends = Ends::new(quick_listener(), secret(b"sixteen bytes and more"));
        let mut seed = Backoff::new(5);
        for round in 1..=50 {
            let bytes: Vec<u8> = (0..1 + round * 40)
                .map(|_| seed.next_wait().as_nanos() as u8 | 1)
                .collect();
            let mut stream = stranger(&ends, &bytes);
            eventually("counted", || ends.accepted.count(Reason::NotAPeer) == round).await;
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            let mut answer = Vec::new();
            // A reset is an end as well.
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty());
        }
        works(&ends).await;
    });
}

#[test]
fn whoever_sees_the_end_of_a_connection_finds_it_counted() {
    run(async {
        let ends = Ends::new(quick_listener(), None);
        let (address, counters) = (ends.listener.address(), Arc::clone(&ends.accepted));
        let visit = move || {
            for n in 1..=500 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
                // A reset is an end as well.
                let _ = stream.read_to_end(&mut Vec::new());
                assert_eq!(counters.count(Reason::NotAPeer), n);
            }
        };
        let named = std::thread::Builder::new().name("strangers".into());
        let strangers = named.spawn(visit).unwrap();
        eventually("five hundred ends", || strangers.is_finished()).await;
        strangers.join().unwrap();
    });
}

#[test]
fn half_a_frame_and_silence_time_out_without_keeping_anybody_waiting() {
    run(async {
        let ends = Ends::new(quick_listener(), None);
        let (_, hello) =
            ephesus_wire::handshake::Handshake::connect(opening::hello(identity(3)), None);
        let _half = stranger(&ends, &hello[..hello.len() - 1]);
        let _header = stranger(&ends, &hello[..32]);
        let _silent = stranger(&ends, b"");
        eventually("three wait", || ends.listener.handshakes() == 3).await;
        works(&ends).await;
        assert_eq!(ends.accepted.count(Reason::HandshakeTimeout), 0);
        eventually("timed out", || {
            ends.accepted.count(Reason::HandshakeTimeout) == 3
        })
        .await;
        assert_eq!(ends.listener.handshakes(), 0);
        drop(stranger(&ends, &hello[..10]));
        eventually("ended", || ends.accepted.count(Reason::EndedEarly) == 1).await;
    });
}

#[test]
fn a_hello_that_announces_too_much_is_closed_at_once() {
    run(async {
        let ends = Ends::new(ListenOptions::default(), None);
        let header = ephesus_wire::frame::Frame {
            kind: 0xFF01,
            stream: 0,
            sequence: 0,
            payload: &[0; 4097],
        }
        .header();
        let _large = stranger(&ends, &header);
        eventually("closed", || ends.accepted.count(Reason::NotAPeer) == 1).await;
    });
}

#[test]
fn who_does_not_belong_here_is_told_why_and_counted() {
    run(async {
        let ours = || secret(b"the secret of this cluster");
        let ends = Ends::new(ListenOptions::default(), ours());
        let refused_by_both = [
            (
                Identity {
                    versions: Versions { min: 2, max: 4 },
                    ..identity(2)
                },
                ours(),
                Reason::Version,
                Reason::Version,
            ),
            (
                Identity {
                    cluster: Some([9; 16]),
                    ..identity(2)
                },
                ours(),
                Reason::Cluster,
                Reason::Cluster,
            ),
            (identity(2), None, Reason::Secret, Reason::Secret),
            (
                identity(2),
                secret(b"the secret of another cluster"),
                Reason::Secret,
                Reason::Refused,
            ),
            (identity(1), ours(), Reason::Itself, Reason::Itself),
        ];
        for (identity, secret, here, there) in refused_by_both {
            let before = ends.accepted.count(here);
            let dialer = Dialer::new(identity, secret, LinkOptions::default(), Arc::default());
            let error = dialer.dial(&ends.address()).await.unwrap_err();
            assert_eq!(error.reason(), there, "{error}");
            eventually("counted", || ends.accepted.count(here) == before + 1).await;
        }
        works(&ends).await;
        assert_eq!(ends.accepted.opened(), 1);
    });
}

#[test]
fn a_side_without_the_secret_is_told_what_to_configure() {
    run(async {
        let ends = Ends::new(ListenOptions::default(), secret(b"sixteen bytes and more"));
        let dialer = Dialer::new(identity(2), None, LinkOptions::default(), Arc::default());
        let error = dialer.dial(&ends.address()).await.unwrap_err();
        assert!(error.to_string().contains("--cluster-secret-file"));
    });
}

#[test]
fn a_thousand_silent_connections_keep_nobody_out() {
    run(async {
        let options = ListenOptions {
            handshakes_max: 100,
            ..ListenOptions::default()
        };
        let ends = Ends::new(options, None);
        let mut crowd = Vec::new();
        // In groups that fit the port's backlog: connecting blocks the thread that accepts.
        for _ in 0..20 {
            crowd.extend((0..50).map(|_| stranger(&ends, b"")));
            glommio::timer::sleep(Duration::from_millis(2)).await;
        }
        eventually("the oldest gave way", || {
            ends.accepted.count(Reason::Evicted) >= 900
        })
        .await;
        assert!(ends.listener.handshakes() <= 100);
        works(&ends).await;
    });
}

#[test]
fn a_thousand_links_are_open_at_once() {
    const LINKS: usize = 1000;
    run(async {
        let options = ListenOptions {
            links_max: LINKS,
            ..ListenOptions::default()
        };
        let ends = Ends::new(options, None);
        let mut links = Vec::new();
        for _ in 0..LINKS {
            links.push(ends.link().await);
        }
        assert_eq!(ends.listener.links(), LINKS);
        let mut refused = ends.dialer.dial(&ends.address()).await.unwrap();
        assert_eq!(refused.recv().await, Err(LinkError::Ended));
        assert_eq!(ends.accepted.count(Reason::TooMany), 1);
        for (number, (dialled, _)) in links.iter().enumerate() {
            dialled.send_on(1, number as u64, b"x").unwrap();
        }
        for (number, (_, accepted)) in links.iter_mut().enumerate() {
            assert_eq!(accepted.recv().await.unwrap().stream, number as u64);
        }
        links.truncate(LINKS - 1);
        eventually("a place is free", || ends.listener.links() < LINKS).await;
        works(&ends).await;
    });
}

#[test]
fn a_thousand_nodes_that_dial_at_the_same_moment_are_all_let_in() {
    const NODES: usize = 1000;
    run(async {
        let ends = Rc::new(Ends::new(
            crate::server::listen_options(),
            secret(b"sixteen bytes and more"),
        ));
        let dial = |_| {
            let ends = Rc::clone(&ends);
            glommio::spawn_local(async move { ends.dialer.dial(&ends.address()).await })
        };
        let dials: Vec<_> = (0..NODES).map(dial).collect();
        let mut links = Vec::new();
        for dial in dials {
            links.push(dial.await.unwrap());
        }
        eventually("all are let in", || ends.listener.links() == NODES).await;
        assert_eq!(ends.accepted.count(Reason::Evicted), 0);
    });
}

#[test]
fn a_thousand_connections_wait_for_a_thread_that_is_busy() {
    run(async {
        let ends = Ends::new(crate::server::listen_options(), None);
        let address = ends.listener.address();
        // Nobody accepts meanwhile.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let connected: Result<Vec<_>, _> = (0..1000).map(connect).collect();
        let crowd = connected.expect("room for all of them");
        works(&ends).await;
        assert_eq!(crowd.len(), 1000);
    });
}

#[test]
fn a_dropped_listener_gives_its_port_back_and_keeps_its_links() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (dialled, mut accepted) = ends.link().await;
        let Ends { listener, .. } = ends;
        let address = listener.address();
        assert!(
            TcpListener::bind(address).is_err(),
            "the port is ours alone"
        );
        drop(listener);
        eventually("the port is free", || TcpListener::bind(address).is_ok()).await;
        dialled.send(1, b"still").unwrap();
        assert_eq!(accepted.recv().await.unwrap().payload, b"still");
    });
}

#[test]
fn an_identity_that_changes_is_what_later_handshakes_say() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let other = Identity {
            cluster: Some([9; 16]),
            ..identity(1)
        };
        ends.listener.set_identity(other);
        let error = ends.dialer.dial(&ends.address()).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Cluster);
        ends.dialer.set_identity(Identity {
            cluster: None,
            ..identity(2)
        });
        let (dialled, accepted) = ends.link().await;
        assert_eq!(dialled.opened().peer, other);
        assert_eq!(accepted.opened().peer.cluster, None);
    });
}

/// A link that many wait for at once is opened by a listener that was polled before.
#[test]
fn an_accept_that_waits_is_woken() {
    run(async {
        let ends = Rc::new(Ends::with_link(LinkOptions::default()));
        let got = Rc::new(Cell::new(0));
        let (also_ends, also_got) = (Rc::clone(&ends), Rc::clone(&got));
        glommio::spawn_local(async move {
            loop {
                drop(also_ends.listener.accept().await);
                also_got.set(also_got.get() + 1);
            }
        })
        .detach();
        for _ in 0..10 {
            glommio::timer::sleep(Duration::from_millis(1)).await;
            ends.dialer.dial(&ends.address()).await.unwrap();
        }
        eventually("all accepted", || got.get() == 10).await;
    });
}
