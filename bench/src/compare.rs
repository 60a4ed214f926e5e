//! Redis, Valkey and Ephesus side by side, one core each in turn.
//!
//! Every case runs in rounds; in a round every server is driven once, in an order that rotates, and
//! ratios are formed within the round, so that drift of the machine hits both sides of a pair.
//! Servers that are not driven are waited for until idle, and what they still use is counted.

use std::time::Duration;

use crate::affinity;
use crate::disk;
use crate::error::{BenchError, Result};
use crate::named::Named;
use crate::record::{self, Record, ServerRecord};

pub use arguments::CompareArgs;
pub use case::Case;
pub use measure::CaseResult;

mod arguments;
mod bed;
mod case;
mod latency;
mod logs;
mod measure;
mod memory;
mod settings;
#[cfg(test)]
mod tests;
mod throughput;

use settings::Settings;

/// How long each kind of write is measured.
const DISK_TIME: Duration = Duration::from_millis(500);

/// Runs the cases asked for, prints the table and writes the JSON.
///
/// # Errors
/// When a server misbehaves, escapes its core or loses keys, or the machine lacks what is needed.
pub fn execute(arguments: &CompareArgs) -> Result<()> {
    if arguments.list {
        Case::list();
        return Ok(());
    }
    let outputs = &arguments.outputs;
    outputs.prepare()?;
    let settings = Settings::resolve(arguments)?;
    let mut record = Record::new("compare", settings.root(), &settings)?;
    record.is_quick = settings.is_quick;
    affinity::confine_current(&[settings.client_cpu])
        .map_err(BenchError::io("confining the client"))?;
    let disk = || disk::summary(settings.root(), DISK_TIME);
    let mut notes = vec![format!("before: {}", disk()?)];
    let mut take = |(result, described): CaseOutput| {
        record.put(result.recorded(settings.subject()));
        described
            .into_iter()
            .for_each(|server| record.add_server(server));
        outputs.save(&record)
    };
    let preset = settings.preset.into_iter().map(|preset| {
        eprintln!("== {}: {}", preset.name(), preset.title());
        throughput::preset(&settings, preset)
    });
    let cases = settings.cases.iter().map(|case| {
        eprintln!("== {}: {}", case.name(), case.title());
        run_case(&settings, *case)
    });
    let done = preset.chain(cases).try_for_each(|output| take(output?));
    notes.extend(disk().map(|after| format!("after: {after}")));
    record.put(record::Case {
        name: "disk".to_owned(),
        title: "the raw disk".to_owned(),
        notes,
        ..record::Case::default()
    });
    outputs.publish(record, done)
}

type CaseOutput = (CaseResult, Vec<ServerRecord>);

fn run_case(settings: &Settings, case: Case) -> Result<CaseOutput> {
    match case {
        Case::SetP16Everysec
        | Case::SetP16Always
        | Case::GetP16
        | Case::GetP1
        | Case::SetP1Always
        | Case::SetC1Always => throughput::run(settings, case),
        Case::LatencyImagesP1 | Case::LatencyImagesP16 => latency::while_imaging(settings, case),
        Case::GetImages => latency::with_and_without_images(settings, case),
        Case::Memory => memory::per_key(settings, case),
        Case::RestartOneCore | Case::RestartTwoCores => memory::restart(settings, case),
        Case::LogBytes => logs::amplification(settings, case),
        Case::DiskUse => logs::disk_use(settings, case),
    }
}
