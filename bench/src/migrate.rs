//! How fast half of a node's data moves to another one, beside Valkey's atomic slot migration.
//!
//! Every contestant has two servers, the source on one CPU and the target on another, that are new in
//! every round: a target's memory is fresh, as that of a node that has just been added. In a round
//! each contestant moves once, in an order that rotates; ratios are formed within the round.

use std::time::Duration;

use crate::disk;
use crate::error::Result;
use crate::fresh_memory;
use crate::load::Phase;
use crate::loopback;
use crate::record::{self, Event, Outputs, Record, Run, ServerRecord};

pub use arguments::MigrateArgs;
pub use contestant::Contestant;

mod arguments;
mod case;
mod contestant;
mod ephesus;
mod measures;
mod pair;
mod progress;
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
    arguments.outputs.prepare()?;
    let settings = Settings::resolve(arguments)?;
    let mut record = Record::new("migrate", settings.root(), &settings)?;
    record.is_quick = settings.is_quick;
    let mut cases = settings.cases.iter();
    let done =
        cases.try_for_each(|&case| run_case(&settings, case, &mut record, &arguments.outputs));
    arguments.outputs.publish(record, done)
}

/// All rounds of a case; what is there after each is written.
fn run_case(settings: &Settings, case: Case, record: &mut Record, outputs: &Outputs) -> Result<()> {
    let (name, how) = (case.to_string(), how(case, settings));
    eprintln!("== {name}: {how}");
    let mut samples = Samples::new(case);
    let mut notes = Vec::new();
    for round in 0..settings.rounds {
        let (raw, outcomes) = run_round(settings, case, round, record)?;
        for (contestant, outcome) in &outcomes {
            notes.extend(notes_on(round, *contestant, outcome));
        }
        samples.add(raw, &outcomes);
        record.put(record::Case {
            name: name.clone(),
            how: format!("{how}. Last round in plots over time."),
            notes: notes.iter().cloned().chain([samples.raw()]).collect(),
            rows: samples.rows(),
            runs: outcomes
                .iter()
                .filter_map(|(who, outcome)| writers(*who, case, outcome))
                .collect(),
            plots: vec![samples.holds()],
            ..record::Case::default()
        });
        outputs.save(record)?;
    }
    Ok(())
}

/// What writers saw before, during and after a move.
fn writers(contestant: Contestant, case: Case, outcome: &Outcome) -> Option<Run> {
    let found = outcome.writers.as_ref()?;
    let rate = match case.writes {
        Writes::PerSecond(rate) => rate,
        Writes::None | Writes::Unlimited => 0,
    };
    let mut run = found.run(&contestant.to_string(), "", rate);
    let phases = [
        (Phase::Before, "before"),
        (Phase::During, "during"),
        (Phase::After, "after"),
    ];
    let of = |(phase, when): (Phase, &str)| (format!("writes {when}"), found.all(phase));
    run.operations = phases.map(of).into();
    let begin = found.seconds_of(Phase::Before);
    run.events.push(Event {
        at_s: begin,
        until_s: Some(begin + found.seconds_of(Phase::During)),
        kind: "move".to_owned(),
    });
    Some(run)
}

type Round = (Raw, Vec<(Contestant, Outcome)>);

fn run_round(settings: &Settings, case: Case, round: u32, record: &mut Record) -> Result<Round> {
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
        for described in pair.described() {
            let name = contestant.to_string();
            record.add_server(ServerRecord { name, ..described });
        }
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
