use super::*;

#[test]
fn the_log_gets_one_line_per_reason_and_minute_that_tells_how_many() {
    let start = now();
    let mut log = RefusalLog::default();
    assert_eq!(log.note(Reason::NotAPeer, start), Some(1));
    for seconds in 1..60 {
        let later = start + Duration::from_secs(seconds);
        assert_eq!(log.note(Reason::NotAPeer, later), None);
    }
    let other = start + Duration::from_secs(30);
    assert_eq!(log.note(Reason::Secret, other), Some(1));
    let minute = start + LOG_EVERY;
    assert_eq!(log.note(Reason::NotAPeer, minute), Some(60));
    assert_eq!(log.note(Reason::Secret, minute), None);
}
