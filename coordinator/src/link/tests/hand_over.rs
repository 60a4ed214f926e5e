//! Connections that are taken out of their links.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use ephesus_wire::seal::RECORD_OVERHEAD_BYTES;

use super::*;

/// Reads exactly so many bytes of a non-blocking stream.
async fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let (mut bytes, mut read) = (vec![0; len], 0);
    eventually("read", || {
        match stream.read(&mut bytes[read..]) {
            Ok(0) => panic!("the connection has ended after {read} bytes"),
            Ok(more) => read += more,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        read == len
    })
    .await;
    bytes
}

#[test]
fn both_ends_go_on_outside_and_nothing_else_reads() {
    run(async {
        let ends = Ends::new(ListenOptions::default(), None);
        let (dialled, mut accepted) = ends.link().await;
        dialled.send_on(1, 7, b"the last message").unwrap();
        assert_eq!(accepted.recv().await.unwrap().payload, b"the last message");
        // The accepted link now waits for more, and is abandoned while it does.
        assert!(
            futures_lite::future::poll_once(accepted.recv())
                .await
                .is_none()
        );
        let mut near = dialled.into_stream().unwrap().tcp;
        let mut far = accepted.into_stream().unwrap().tcp;
        assert_eq!(ends.listener.links(), 0);
        for round in 0..50u8 {
            near.write_all(&[round; 1000]).unwrap();
            far.write_all(&[round ^ 0xFF; 1000]).unwrap();
            glommio::timer::sleep(Duration::from_millis(1)).await;
            assert!(read(&mut far, 1000).await == [round; 1000]);
            assert!(read(&mut near, 1000).await == [round ^ 0xFF; 1000]);
        }
        near.shutdown(Shutdown::Write).unwrap();
        eventually("the end", || matches!(far.read(&mut [0]), Ok(0))).await;
        for counters in [&ends.accepted, &ends.dialled] {
            assert_eq!(counters.count(Reason::Local), 1);
        }
    });
}

/// With a secret they go on with the seals of the link, where it has left off.
#[test]
fn what_seals_a_link_goes_with_its_connection() {
    run(async {
        let ends = Ends::new(ListenOptions::default(), secret(b"sixteen bytes and more"));
        let (dialled, mut accepted) = ends.link().await;
        dialled.send_on(1, 7, b"over the link").unwrap();
        assert_eq!(accepted.recv().await.unwrap().payload, b"over the link");
        let mut near = dialled.into_stream().unwrap();
        let mut far = accepted.into_stream().unwrap();
        near.say(b"and behind it").unwrap();
        far.say(b"back").unwrap();
        for (stream, expected) in [(&mut far, &b"and behind it"[..]), (&mut near, b"back")] {
            let len = expected.len() + RECORD_OVERHEAD_BYTES;
            let mut bytes = read(&mut stream.tcp, len).await;
            assert!(!bytes.windows(4).any(|part| expected.starts_with(part)));
            let opener = &mut stream.seals.as_mut().unwrap().opener;
            let (plain, opened) = opener.open(&mut bytes).unwrap().unwrap();
            assert_eq!((&bytes[plain], opened), (expected, len));
        }
    });
}

#[test]
fn a_handed_over_connection_outlives_the_silence_that_ends_links() {
    run(async {
        let ends = Ends::with_link(LinkOptions {
            idle_timeout: Duration::from_millis(100),
            ..quick()
        });
        let (dialled, accepted) = ends.link().await;
        let (mut near, mut far) = (
            dialled.into_stream().unwrap().tcp,
            accepted.into_stream().unwrap().tcp,
        );
        glommio::timer::sleep(Duration::from_millis(400)).await;
        near.write_all(b"still there").unwrap();
        assert_eq!(read(&mut far, 11).await, b"still there");
    });
}

#[test]
fn a_peer_that_has_said_more_is_not_handed_over() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (dialled, mut accepted) = ends.link().await;
        dialled.send(1, b"one").unwrap();
        dialled.send(1, b"and one too many").unwrap();
        glommio::timer::sleep(Duration::from_millis(50)).await;
        assert_eq!(accepted.recv().await.unwrap().payload, b"one");
        assert_eq!(accepted.into_stream().unwrap_err(), LinkError::Unread);
        assert_eq!(ends.accepted.count(Reason::Framing), 1);
    });
}

#[test]
fn a_link_that_is_over_has_no_connection() {
    run(async {
        let ends = Ends::with_link(LinkOptions::default());
        let (dialled, mut accepted) = ends.link().await;
        drop(dialled);
        assert_eq!(accepted.recv().await, Err(LinkError::Ended));
        assert_eq!(accepted.into_stream().unwrap_err(), LinkError::Ended);
    });
}
