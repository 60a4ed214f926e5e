use std::io::ErrorKind;

use ephesus_coordinator::ask::Failure;

use super::*;

#[test]
fn why_nobody_leads_is_said_of_each_coordinator_in_one_line() {
    let attempts = [
        ("a:1", Failure::Unreachable(ErrorKind::ConnectionRefused)),
        ("b:2", Failure::Silent),
    ];
    let error = AskError::NoAnswer {
        limit: Duration::from_secs(10),
        attempts: attempts.map(|(who, why)| (who.to_owned(), why)).to_vec(),
    };
    assert_eq!(
        reasons(&error),
        "no coordinator that leads has answered within 10 s; a:1: cannot be reached: connection refused; \
         b:2: does not answer in time"
    );
}
