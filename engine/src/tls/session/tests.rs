use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::*;

/// Both ends of a connection.
fn ends() -> (ClientConnection, Session) {
    let key = KeyPair::generate().expect("a key");
    let parameters = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a configuration");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let server = ServerConnection::new(Arc::new(server)).expect("a server");
    (client, Session::new(server))
}

/// What the client sends now.
fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("into a vector");
    }
    bytes
}

/// What the server sends is read by the client; answers what it says.
fn deliver(session: &mut Session, client: &mut ClientConnection) -> Vec<u8> {
    session.encrypt(&[]);
    let bytes = session.outgoing().to_vec();
    session.sent(bytes.len());
    read(client, &bytes)
}

fn read(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("room");
        let state = client.process_new_packets().expect("TLS");
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        let mut reader = client.reader();
        reader.read_exact(&mut plain[start..]).expect("it is there");
    }
    plain
}

fn shaken() -> (ClientConnection, Session) {
    let (mut client, mut session) = ends();
    while client.is_handshaking() || session.is_handshaking() {
        let bytes = sent(&mut client);
        let mut plain = Vec::new();
        assert_eq!(session.decrypt(&bytes, &mut plain), Ok(Said::Open));
        assert!(plain.is_empty());
        deliver(&mut session, &mut client);
    }
    (client, session)
}

#[test]
fn what_is_said_arrives_whatever_the_pieces() {
    let (mut client, mut session) = shaken();
    let said: Vec<u8> = (0..300_000_usize).map(|at| (at * 7) as u8).collect();
    let (mut left, mut plain) = (&said[..], Vec::new());
    let mut piece = 1;
    while plain.len() < said.len() {
        let written = client.writer().write(left).expect("room");
        left = &left[written..];
        for bytes in sent(&mut client).chunks(piece) {
            let said = session.decrypt(bytes, &mut plain);
            assert_eq!(said, Ok(Said::Open));
        }
        piece = piece * 5 % 16_411 + 1;
    }
    assert!(plain == said);
    assert!(session.held_bytes() < 40 << 10, "{}", session.held_bytes());
}

#[test]
fn a_reply_is_encrypted_piece_by_piece_and_the_next_one_waits_until_it_has_left() {
    let (mut client, mut session) = shaken();
    let reply: Vec<u8> = (0..1_000_000_usize).map(|at| (at * 3) as u8).collect();
    let (mut at, mut heard) = (0, Vec::new());
    while at < reply.len() {
        at += session.encrypt(&reply[at..]);
        assert_eq!(session.encrypt(&reply[at..]), 0, "one is under way");
        assert!(session.outgoing().len() < 2 * PIECE_BYTES);
        let part = session.outgoing()[..1000].to_vec();
        session.sent(part.len());
        heard.extend(read(&mut client, &part));
        heard.extend(deliver(&mut session, &mut client));
    }
    assert!(heard == reply);
    assert!(session.held_bytes() < 40 << 10);
}

#[test]
fn the_end_is_said_by_both_ends() {
    let (mut client, mut session) = shaken();
    client.writer().write_all(b"PING\r\n").expect("room");
    client.send_close_notify();
    let bytes = sent(&mut client);
    let mut plain = Vec::new();
    assert_eq!(session.decrypt(&bytes, &mut plain), Ok(Said::All));
    assert_eq!(plain, b"PING\r\n");
    // It may still be answered.
    assert_eq!(session.encrypt(b"+PONG\r\n"), 7);
    assert_eq!(deliver(&mut session, &mut client), b"+PONG\r\n");
    assert!(!session.close());
    assert_eq!(session.encrypt(b"more"), 0, "nothing follows");
    deliver(&mut session, &mut client);
    assert!(session.close());
    let state = client.process_new_packets().expect("TLS");
    assert!(state.peer_has_closed());
}

#[test]
fn whoever_speaks_no_tls_is_told_by_an_alert() {
    for bytes in [
        &b"*1\r\n$4\r\nPING\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff, 0],
        &[0; 100],
    ] {
        let (_, mut session) = ends();
        let mut plain = Vec::new();
        session.decrypt(bytes, &mut plain).expect_err("no TLS");
        assert!(plain.is_empty() && session.is_handshaking());
        assert!(!session.close(), "an alert");
        assert_eq!(session.outgoing()[0], 0x15);
        let len = session.outgoing().len();
        session.sent(len);
        assert!(session.close());
    }
}

#[test]
fn a_changed_record_ends_the_session() {
    let (mut client, mut session) = shaken();
    client.writer().write_all(b"SET a 1\r\n").expect("room");
    let mut bytes = sent(&mut client);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let mut plain = Vec::new();
    session.decrypt(&bytes, &mut plain).expect_err("changed");
    assert!(plain.is_empty());
}

#[test]
fn steps_of_a_handshake_wait_for_their_turn() {
    let (mut client, mut session) = ends();
    let bytes = sent(&mut client);
    let (first, rest) = bytes.split_at(100);
    session.wait(first);
    session.wait(rest);
    session.wait_with_end();
    assert!(session.is_waiting() && session.is_handshaking());
    assert_eq!(session.take_waiting(), (bytes, true));
    assert!(!session.is_waiting());
}
