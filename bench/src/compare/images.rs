use std::time::Duration;

use crate::error::Result;
use crate::interrupt;
use crate::load::{self, Mix, Op, Phase, Plan, Span};
use crate::record::{Case, Event};
use crate::resp;
use crate::runner::{Bed, Driven, Loaded, drive};
use crate::server::{Server, is_rewriting};

/// The log is filled until images begin, in steps of this length, at most so often.
const FILL_STEP: Duration = Duration::from_millis(500);
const FILL_STEPS_MAX: u32 = 240;
const FILL_PIPELINE: u32 = 16;
const REWRITE_POLL: Duration = Duration::from_millis(20);
/// Sends later than this at p99 blur the percentiles above.
const SEND_DELAY_P99_US_MAX: f64 = 500.0;
/// Less answered than this share of what was due: the rate was not held.
const ACHIEVED_MIN: f64 = 0.98;

/// Has a server write images and drives it meanwhile: the AOF of a peer is rewritten over and over, Ephesus images by
/// itself.
pub(super) fn while_imaging(
    bed: &Bed,
    driven: &Driven,
    case: &mut Case,
    (plan, span): (&Plan, Span),
) -> Result<Loaded> {
    let mut rewrites = 0;
    let turn = bed.turn(driven, case, || {
        if driven.is_own_ephesus() {
            until_imaging(driven, plan)?;
            return drive(plan, span);
        }
        let connections = driven.servers.iter().map(Server::connect);
        let mut connections = connections.collect::<Result<Vec<_>>>()?;
        let rewrite = || {
            connections
                .iter_mut()
                .try_for_each(|one| match is_rewriting(one)? {
                    true => Ok(()),
                    false => {
                        rewrites += 1;
                        one.text(&["BGREWRITEAOF"]).map(drop)
                    }
                })
        };
        interrupt::beside(REWRITE_POLL, rewrite, || drive(plan, span))
    })?;
    let mut loaded = Loaded::of(driven, turn, (plan, ""));
    loaded.outcome = loaded.outcome.answered()?;
    // Of which a part went into what came before.
    loaded.cpu = None;
    let (outcome, name) = (&loaded.outcome, &driven.name);
    let is_image = |event: &Event| event.kind == "image";
    if rewrites == 0 && !loaded.run.events.iter().any(is_image) {
        case.note(format!("{name}: no image was written in some run"));
    }
    let is_short = outcome.per_s(Phase::Before) < plan.rate as f64 * ACHIEVED_MIN;
    if is_short || !outcome.run.errors.is_empty() {
        case.note(format!("{name} could not hold the rate in some run"));
    }
    if outcome.run.send_delay_p99_us > SEND_DELAY_P99_US_MAX {
        case.note(format!(
            "the generator itself was late in some run of {name}"
        ));
    }
    Ok(loaded)
}

/// Fills Ephesus's log until it writes images; the peers begin theirs on command.
fn until_imaging(driven: &Driven, plan: &Plan) -> Result<()> {
    let mut fill = Plan {
        rate: 0,
        pipeline: FILL_PIPELINE,
        ..plan.clone()
    };
    fill.workload.mix = Mix::of(&[(Op::Write, 1)]);
    let span = Span {
        warmup: Duration::ZERO,
        duration: Some(FILL_STEP),
    };
    for _ in 0..FILL_STEPS_MAX {
        let info = driven.servers[0].info("persistence")?;
        if resp::info_number(&info, "image_in_progress") == Some(1) {
            break;
        }
        load::run(&fill, span)?.answered()?;
    }
    Ok(())
}
