//! Stalls that recur, and when the next one is near.
//!
//! Containers and virtual machines often have a quota of CPU time for each period (Linux's CFS bandwidth control,
//! by default 100 ms). Who has used it up stands still for the rest of the period, all threads at once. So a stall
//! ends where a period begins, and the later in a period, the more likely is the next one.
//!
//! The shard's own log tells of stalls: what is written meanwhile takes much longer than usual.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A write is slow that takes so many times as long as usual, and this beside.
const SLOW_TIMES: u32 = 4;
const SLOW_BESIDE: Duration = Duration::from_millis(2);

/// What is usual goes by about so many writes.
const USUAL_OVER: u32 = 64;

/// Ends closer together are of one stall.
const TOGETHER: Duration = Duration::from_millis(20);

/// The shortest period that is looked for: holds do not fit what would be left of a shorter one.
const PERIOD_MIN: Duration = Duration::from_millis(80);

/// Gaps between ends that are looked at, and how many of them have to be multiples of the period.
const GAPS: usize = 6;
const FITTING: usize = 3;

/// By so much the ends of two stalls may be away from it.
const AWRY: Duration = Duration::from_millis(5);

/// Without a stall for so long there is no period any more.
const FORGOTTEN: Duration = Duration::from_millis(500);

/// A stall is near in so many hundredths of a period before its end.
#[cfg(test)]
const NEAR_PERCENT: u32 = 45;

/// When the last stalls ended.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// What a write takes on average, of which slow ones change little.
    usual: Duration,
    ends: VecDeque<Instant>,
    period: Option<Duration>,
}

impl Stalls {
    fn slow(&self) -> Duration {
        self.usual * SLOW_TIMES + SLOW_BESIDE
    }

    /// A write of the log has taken so long; true when it was slow, and the end of another stall.
    pub(super) fn wrote(&mut self, took: Duration, now: Instant) -> bool {
        let slow = self.slow();
        let is_another = took > slow && self.ended(now);
        self.usual = (self.usual * (USUAL_OVER - 1) + took.min(slow)) / USUAL_OVER;
        is_another
    }

    /// A stall has ended; true unless it is the same that was said to have ended before.
    pub(super) fn ended(&mut self, now: Instant) -> bool {
        let since = |last: &Instant| now.saturating_duration_since(*last);
        let mut is_another = true;
        match self.ends.back().map(since) {
            Some(since) if since < TOGETHER => {
                self.ends.pop_back();
                is_another = false;
            }
            Some(since) if since > FORGOTTEN => self.ends.clear(),
            _ => {}
        }
        self.ends.push_back(now);
        if self.ends.len() > GAPS + 1 {
            self.ends.pop_front();
        }
        self.period = period(&self.ends);
        is_another
    }

    /// Whether they come again and again.
    pub(super) fn recur(&self) -> bool {
        self.period.is_some()
    }

    /// If the next stall is near: when the period begins that follows it.
    #[cfg(test)]
    pub(super) fn near_until(&self, now: Instant) -> Option<Instant> {
        let (period, last) = (self.period?, *self.ends.back()?);
        if now.saturating_duration_since(last) > FORGOTTEN {
            return None;
        }
        let mut next = last + period;
        while next <= now {
            next += period;
        }
        (next - now <= period * NEAR_PERCENT / 100).then_some(next)
    }
}

/// The period of which most gaps between `ends` are multiples, the longest of those that are equally good.
fn period(ends: &VecDeque<Instant>) -> Option<Duration> {
    let gaps = || ends.iter().zip(ends.iter().skip(1)).map(|(a, b)| *b - *a);
    let fitting = |period: &Duration| gaps().filter(|gap| is_multiple(*gap, *period)).count();
    let best = gaps()
        .filter(|gap| *gap >= PERIOD_MIN)
        .max_by_key(|period| (fitting(period), *period))?;
    let fit = fitting(&best);
    (fit >= FITTING && 2 * fit > gaps().count()).then_some(best)
}

fn is_multiple(gap: Duration, period: Duration) -> bool {
    let over = gap.as_nanos() % period.as_nanos();
    let away = over.min(period.as_nanos() - over);
    gap + AWRY >= period && away <= AWRY.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    const MS: Duration = Duration::from_millis(1);

    /// Stalls that end so many ms after the start.
    fn after(ends_ms: &[u32]) -> (Stalls, Instant) {
        let (mut stalls, start) = (Stalls::default(), start());
        for ms in ends_ms {
            stalls.ended(start + *ms * MS);
        }
        (stalls, start)
    }

    #[test]
    fn the_second_half_of_a_period_is_near_the_next_stall_and_leads_to_the_next_period() {
        let (stalls, start) = after(&[43, 143, 343, 443]);
        for calm_ms in [0, 40, 54, 100, 150, 300] {
            assert_eq!(
                stalls.near_until(start + (443 + calm_ms) * MS),
                None,
                "{calm_ms}"
            );
        }
        let near = |ms| stalls.near_until(start + ms * MS).expect("it is near");
        for (at, until) in [(510, 543), (540, 543), (620, 643)] {
            assert_eq!(near(at), start + until * MS, "{at}");
        }
    }

    #[test]
    fn what_does_not_recur_is_no_period() {
        for ends in [
            &[43, 143, 243][..],
            &[43, 143, 210, 345, 391],
            &[43, 93, 143, 193, 243],
        ] {
            let (stalls, start) = after(ends);
            let last = *ends.last().expect("some");
            for ms in 0..500 {
                assert_eq!(
                    stalls.near_until(start + (last + ms) * MS),
                    None,
                    "{ends:?}"
                );
            }
        }
    }

    #[test]
    fn others_between_do_not_hide_a_period() {
        let (stalls, start) = after(&[43, 144, 180, 243, 342, 443]);
        assert!(stalls.near_until(start + 520 * MS).is_some());
        assert!(stalls.near_until(start + 480 * MS).is_none());
    }

    #[test]
    fn several_ends_at_once_are_one_stall_and_old_ones_are_forgotten() {
        let (stalls, start) = after(&[40, 43, 140, 143, 240, 243, 343]);
        assert!(stalls.near_until(start + 420 * MS).is_some());
        assert!(
            stalls.near_until(start + 940 * MS).is_none(),
            "half a second ago"
        );
        let (stalls, start) = after(&[43, 143, 243, 343, 943, 1043]);
        assert!(
            stalls.near_until(start + 1123 * MS).is_none(),
            "another series"
        );
    }
}
