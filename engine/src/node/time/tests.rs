use super::*;

const START_MS: u64 = 1_700_000_000_000;
const DAY_MS: u64 = 86_400_000;

fn time(last_ms: u64) -> NodeTime {
    NodeTime::start(WallClock::default(), last_ms)
}

/// The time when the wall clock shows `wall_ms`, so many ms after the start.
fn at(time: &NodeTime, wall_ms: u64, elapsed_ms: u64) -> u64 {
    time.at(wall_ms, time.origin + Duration::from_millis(elapsed_ms))
}

#[test]
fn time_follows_a_wall_clock_that_is_right() {
    let time = time(START_MS);
    assert_eq!(at(&time, START_MS, 0), START_MS);
    assert_eq!(at(&time, START_MS + 10, 10), START_MS + 10);
    // It was slewed, or the machine has slept.
    assert_eq!(at(&time, START_MS + 500, 20), START_MS + 500);
    assert_eq!(at(&time, START_MS + 510, 30), START_MS + 510);
}

#[test]
fn time_goes_on_behind_a_clock_that_was_a_day_ahead_for_a_second() {
    let time = time(START_MS);
    let jumped = at(&time, START_MS + DAY_MS, 0);
    assert_eq!(jumped, START_MS + DAY_MS);
    let back = at(&time, START_MS + 1_000, 1_000);
    assert_eq!(back, jumped + 1_000);
    assert_eq!(at(&time, START_MS + 3_000, 3_000), jumped + 3_000);
    // Once the wall clock is ahead of it, it is followed again.
    assert_eq!(
        at(&time, START_MS + 2 * DAY_MS, 4_000),
        START_MS + 2 * DAY_MS
    );
}

#[test]
fn time_goes_on_from_what_the_data_has_seen() {
    let time = time(START_MS + DAY_MS);
    assert_eq!(at(&time, START_MS, 0), START_MS + DAY_MS);
    assert_eq!(at(&time, START_MS + 700, 700), START_MS + DAY_MS + 700);
}

#[test]
fn a_wall_clock_of_any_value_is_taken() {
    let time = time(START_MS);
    assert_eq!(at(&time, 0, 5), START_MS + 5);
    assert_eq!(at(&time, u64::MAX, 0), u64::MAX);
    assert_eq!(at(&time, 0, 5), u64::MAX);
    assert_eq!(WallClock::shifted(i64::MIN).now_ms(), 0);
}

/// A shard reads its clocks one after the other, and may stand still in between.
#[test]
fn a_pause_between_two_looks_is_not_a_clock_that_is_ahead() {
    let time = time(START_MS);
    assert_eq!(at(&time, START_MS, 2_000), START_MS + 2_000);
    assert_eq!(at(&time, START_MS + 2_001, 2_001), START_MS + 2_001);
}
