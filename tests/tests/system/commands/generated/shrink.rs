//! The shortest sequence that still is answered differently.

use std::time::{Duration, Instant};

use super::requests::Step;

/// What shrinking may take.
const WITHIN: Duration = Duration::from_secs(60);

/// Leaves out whatever can be left out; `fails` runs a sequence on empty servers.
pub fn shrink(mut steps: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let began = Instant::now();
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let (mut at, mut is_shorter) = (0, false);
        while at < steps.len() && began.elapsed() < WITHIN {
            let end = (at + chunk).min(steps.len());
            let without = [&steps[..at], &steps[end..]].concat();
            if fails(&without) {
                (steps, is_shorter) = (without, true);
            } else {
                at = end;
            }
        }
        if began.elapsed() >= WITHIN {
            break;
        }
        // Once more with single steps, as long as that helps.
        chunk = match chunk {
            1 if is_shorter => 1,
            1 => 0,
            chunk => chunk.div_ceil(2),
        };
    }
    steps
}
