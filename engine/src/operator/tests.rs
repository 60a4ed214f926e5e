use std::io::ErrorKind;

use ephesus_coordinator::ask::Failure;

use super::*;

#[test]
fn each_coordinator_that_does_not_answer_has_a_line() {
    let attempts = vec![
        (
            "a:1".to_owned(),
            Failure::Unreachable(ErrorKind::ConnectionRefused),
        ),
        ("b:2".to_owned(), Failure::Silent),
    ];
    let limit = Duration::from_secs(5);
    let error = OperatorError::from(AskError::NoAnswer { limit, attempts });
    assert_eq!(
        error.to_string(),
        "no coordinator that leads has answered within 5 s\n  \
         a:1 cannot be reached: connection refused\n  b:2 does not answer in time"
    );
}
