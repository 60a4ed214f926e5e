//! The client of operators, against a listener on a thread of its own.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use super::*;
use crate::link::blocking::{CallError, Client};

const LIMIT: Duration = Duration::from_secs(5);

/// Answers requests of kind 1 with kind 2 and the payload reversed, says nothing to kind 3, closes
/// at kind 4 and ends the thread at kind 5.
fn server(secret: Option<Secret>) -> (SocketAddr, JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let thread = Builder::new()
        .spawn(move || {
            run(async move {
                let ends = Ends::new(ListenOptions::default(), secret);
                tell.send(ends.listener.address()).unwrap();
                loop {
                    let mut link = ends.listener.accept().await;
                    loop {
                        match link.recv().await {
                            Ok(Message {
                                kind: 1, payload, ..
                            }) => {
                                let answer: Vec<u8> = payload.into_iter().rev().collect();
                                link.send(2, &answer).unwrap();
                            }
                            Ok(Message { kind: 3, .. }) => {}
                            Ok(Message { kind: 5, .. }) => return,
                            _ => break,
                        }
                    }
                }
            });
        })
        .unwrap();
    (told.recv().unwrap(), thread)
}

fn operator() -> Identity {
    Identity {
        role: LinkRole::Operator,
        cluster: None,
        node: NodeId::default(),
        ..identity(0)
    }
}

#[test]
fn requests_are_answered_one_after_the_other() {
    let shared = || secret(b"sixteen bytes and more");
    let (address, thread) = server(shared());
    let address = address.to_string();
    let mut client = Client::dial(&address, operator(), shared(), LIMIT).unwrap();
    assert_eq!(client.opened().peer, identity(1));
    for len in [0, 1, 1000, 5 << 20] {
        let payload: Vec<u8> = (0..len).map(|at: usize| at as u8).collect();
        let answer = client.request(1, &payload, LIMIT).unwrap();
        assert_eq!(answer.kind, 2);
        assert!(answer.payload.iter().rev().eq(&payload));
    }
    drop(client);
    let wrong = secret(b"the secret of another cluster");
    let error = Client::dial(&address, operator(), wrong, LIMIT).unwrap_err();
    assert!(
        error.to_string().contains("--cluster-secret-file"),
        "{error}"
    );
    let mut client = Client::dial(&address, operator(), shared(), LIMIT).unwrap();
    let error = client.request(5, b"", LIMIT).unwrap_err();
    assert_eq!(error, CallError::Link(LinkError::Ended));
    thread.join().unwrap();
}

#[test]
fn a_request_without_an_answer_ends_in_time_and_poisons_the_client() {
    let (address, thread) = server(None);
    let address = address.to_string();
    let mut client = Client::dial(&address, operator(), None, LIMIT).unwrap();
    let late = client
        .request(3, b"", Duration::from_millis(50))
        .unwrap_err();
    assert_eq!(
        late,
        CallError::Deadline {
            address: address.clone()
        }
    );
    let after = client.request(1, b"", LIMIT).unwrap_err();
    assert_eq!(after, CallError::Poisoned);
    drop(client);
    let mut client = Client::dial(&address, operator(), None, LIMIT).unwrap();
    let closed = client.request(4, b"", LIMIT).unwrap_err();
    assert_eq!(closed, CallError::Link(LinkError::Ended));
    let mut client = Client::dial(&address, operator(), None, LIMIT).unwrap();
    client.request(5, b"", LIMIT).unwrap_err();
    thread.join().unwrap();
}

#[test]
fn nobody_and_silence_are_errors_in_time() {
    let nobody = port().local_addr().unwrap().to_string();
    let error = Client::dial(&nobody, operator(), None, LIMIT).unwrap_err();
    let CallError::Link(LinkError::Unreachable { kind, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
    let silent = port();
    let address = silent.local_addr().unwrap().to_string();
    let error = Client::dial(&address, operator(), None, Duration::from_millis(50)).unwrap_err();
    assert_eq!(error, CallError::Deadline { address });
}
