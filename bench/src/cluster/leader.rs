use std::time::{Duration, Instant};

use ephesus_coordinator::report::{Query, Report};

use crate::error::Result;
use crate::interrupt::wait_for;
use crate::measure::{Goal, less};
use crate::operator::Operator;
use crate::record::{Case, EPHESUS};

use super::Site;
use super::bed::Member::Coordinator;

const GOAL_S: f64 = 3.0;
const POLL: Duration = Duration::from_millis(5);
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(site: &Site, case: &mut Case) -> Result<()> {
    let rounds = site.or_quick(5, 1);
    case.how = format!(
        "3 coordinators, 3 nodes; {rounds} times SIGKILL of the leader; from then until one of the others has taken a \
         change, a limit of moves, which both have on disk"
    );
    let mut bed = site.start(3, "relaxed")?;
    for round in 0..rounds {
        let leader = bed.leader()?;
        let others = (0..3).filter(|index| *index != leader).map(Coordinator);
        let others: Vec<String> = others.map(|one| bed.address(one).to_string()).collect();
        let change = Query::LimitMoves { mb_s: 1 + round };
        // Who does not lead, or not yet, refuses.
        let is_taken = |other: &String| {
            let answer = Operator::open(other, None).and_then(|mut link| link.ask(&change));
            matches!(answer, Ok(Report::MovesLimited))
        };
        bed.kill(Coordinator(leader));
        let lost = Instant::now();
        wait_for(("a change", "taken"), TIMEOUT, POLL, || {
            Ok(others.iter().any(is_taken))
        })?;
        let soon = less("s").to(Goal::ValueAtMost(GOAL_S));
        let seconds = lost.elapsed().as_secs_f64();
        case.sample("until a change is accepted", soon, EPHESUS, seconds);
        bed.restart(Coordinator(leader))?;
        bed.wait_healthy()?;
    }
    Ok(())
}
