//! How fast half of a node's data moves to another one, beside Valkey's atomic slot migration.
//!
//! Every contestant has two servers, the source on one CPU and the target on another, that are new in
//! every round: a target's memory is fresh, as that of a node that has just been added. In a round
//! each contestant moves once, in an order that rotates; ratios are formed within the round.

use std::time::Duration;

use crate::disk;
use crate::environment;
use crate::error::Result;
use crate::fresh_memory;
use crate::loopback;
use crate::report::save;

pub use arguments::MigrateArgs;
pub use contestant::Contestant;
pub use report::Report;

mod arguments;
mod case;
mod contestant;
mod ephesus;
mod measures;
mod pair;
mod progress;
mod report;
mod round;
mod settings;
mod slot_migration;
mod slots;
mod valkey;

use case::{Case, Writes};
use measures::{Raw, Samples};
use round::Outcome;
use settings::Settings;

/// How long disk and loopback are driven in every round.
const RAW_TIME: Duration = Duration::from_millis(500);

/// Runs the cases asked for, prints the table and writes the JSON.
///
/// # Errors
/// When a server misbehaves or loses keys, or the machine lacks what is needed. A move that fails is
/// a note.
pub fn execute(arguments: &MigrateArgs) -> Result<()> {
    let settings = Settings::resolve(arguments)?;
    let mut report = Report::new(&settings, environment::read(settings.root())?);
    for &case in &settings.cases {
        let name = case.to_string();
        let how = how(case, &settings);
        eprintln!("== {name}: {how}");
        let mut samples = Samples::new(case);
        let mut notes = Vec::new();
        for round in 0..settings.rounds {
            let (raw, outcomes) = run_round(&settings, case, round, &mut report)?;
            for (contestant, outcome) in &outcomes {
                notes.extend(notes_on(round, *contestant, outcome));
            }
            samples.add(raw, &outcomes);
            report.put(&name, &how, &samples, &notes);
            save(&report, arguments.json.as_deref())?;
        }
    }
    print!("{}", report.markdown());
    Ok(())
}

type Round = (Raw, Vec<(Contestant, Outcome)>);

fn run_round(settings: &Settings, case: Case, round: u32, report: &mut Report) -> Result<Round> {
    let [source, target] = settings.cpus;
    let [disk_mb_per_s, disk_one_by_one_mb_per_s] =
        disk::in_flight_mb_per_s(settings.root(), [disk::GROUPS, 1], RAW_TIME)?;
    let raw = Raw {
        disk_mb_per_s,
        disk_one_by_one_mb_per_s,
        loopback_mb_per_s: loopback::mb_per_s(source, target, RAW_TIME)?,
    };
    let shift = round as usize % settings.contestants.len();
    let (later, first) = settings.contestants.split_at(shift);
    let mut outcomes = Vec::new();
    for &contestant in first.iter().chain(later) {
        disk::settle(settings.root())?;
        fresh_memory::touch(case.memory_bytes());
        let mut pair = settings.start(contestant)?;
        let outcome = round::run(pair.as_mut(), case, settings)?;
        report.describe(contestant, pair.described());
        tell(round, contestant, &outcome);
        outcomes.push((contestant, outcome));
    }
    Ok((raw, outcomes))
}

fn tell(round: u32, contestant: Contestant, outcome: &Outcome) {
    let seconds = outcome.copying.as_secs_f64();
    let (mb, keys) = (outcome.bytes as f64 / 1e6, outcome.keys as f64);
    match &outcome.failure {
        Some(why) => eprintln!("   round {round} {contestant}: FAILED: {why}"),
        None => eprintln!(
            "   round {round} {contestant}: {:.0} MB in {seconds:.2} s: {:.0} MB/s, {:.0} keys/s",
            mb,
            mb / seconds,
            keys / seconds
        ),
    }
}

fn how(case: Case, settings: &Settings) -> String {
    let bytes = case.keys * case.entry_bytes();
    let data = format!(
        "{} keys, {:.0} MB, half of which moves",
        case.keys,
        bytes as f64 / 1e6
    );
    let by = format!(
        "{} connections to each server, pipeline {}, {} s before and after",
        round::CONNECTIONS,
        round::PIPELINE,
        settings.load_time.as_secs()
    );
    match case.writes {
        Writes::None => format!("{data}; no clients"),
        Writes::PerSecond(rate) => {
            format!("{data}; {rate} SETs per second of keys that move, open loop, {by}")
        }
        Writes::Unlimited => format!("{data}; SETs of keys that stay, closed loop, {by}"),
    }
}

/// What a reader must know of one move.
fn notes_on(round: u32, contestant: Contestant, outcome: &Outcome) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(format!("round {round}, {contestant}: {text}"));
    if let Some(why) = &outcome.failure {
        note(format!("the move has failed: {why}"));
    }
    if let Some(found) = &outcome.writers {
        for (why, count) in found.errors() {
            note(format!("{count} writes: {why}"));
        }
    }
    notes
}
