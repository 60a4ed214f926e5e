//! Asking where no leader answers; `server/tests.rs` asks leaders.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::*;

#[test]
fn each_coordinator_that_does_not_answer_is_named_with_its_reason() {
    let open = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = |port: &TcpListener| port.local_addr().expect("an address").to_string();
    let (stopped, gone) = (open(), open());
    let [silent, closed] = [&stopped, &gone].map(address);
    drop(gone);
    let limit = Duration::from_millis(300);
    let began = now();
    let asked = [closed.clone(), silent.clone()];
    let error = ask(&asked, None, &Query::Status, limit).expect_err("nobody answers");
    let took = began.elapsed();
    assert!(took < limit + 4 * CALL_LIMIT_MIN, "{took:?}");
    let AskError::NoAnswer { attempts, .. } = error else {
        panic!("{error}");
    };
    let reason = |address: &String| {
        let mut attempts = attempts.iter();
        let found = attempts.find(|(asked, _)| asked == address);
        found.map(|(_, failure)| failure.clone())
    };
    let refused = Failure::Unreachable(ErrorKind::ConnectionRefused);
    assert_eq!(reason(&closed), Some(refused));
    assert_eq!(reason(&silent), Some(Failure::Silent));
}

/// A table may name none.
#[test]
fn nobody_to_ask_is_no_answer() {
    let error = ask(&[], None, &Query::Status, Duration::from_secs(3)).expect_err("nobody");
    assert!(matches!(error, AskError::NoAnswer { attempts, .. } if attempts.is_empty()));
}
