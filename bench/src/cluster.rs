//! Coordinators and nodes of Ephesus on loopback: how fast a cluster changes, what it costs at rest,
//! and what routing costs.
//!
//! Every process is real. Times are upper bounds: they begin at the last moment at which the old
//! state was still seen, and the clients that look use the same CPUs.

use crate::error::Result;
use crate::named::Named;
use crate::record::{Case as CaseReport, EPHESUS, Record, ServerRecord};
use crate::server;

pub use arguments::ClusterArgs;
pub use case::Case;

mod arguments;
pub(crate) mod bed;
mod case;
mod idle;
mod leader;
mod scaling;
mod settings;
mod slots;
mod table;

use settings::Settings;

/// Runs the cases asked for, prints the table and writes the JSON.
///
/// # Errors
/// When a process misbehaves, or the machine lacks what is needed.
pub fn execute(arguments: &ClusterArgs) -> Result<()> {
    if arguments.list {
        Case::list();
        return Ok(());
    }
    let outputs = &arguments.outputs;
    outputs.prepare()?;
    let settings = Settings::resolve(arguments)?;
    let mut record = Record::new("cluster", settings.root(), &serde_json::json!({}))?;
    record.is_quick = settings.is_quick;
    record.add_server(ServerRecord {
        name: EPHESUS.to_owned(),
        version: server::version(&settings.ephesus),
        command_line: settings.ephesus.display().to_string(),
        configuration: Vec::new(),
    });
    let mut run = |case: Case| {
        eprintln!("== {}: {}", case.name(), case.title());
        record.put(run_case(&settings, case)?);
        outputs.save(&record)
    };
    let done = settings.cases.iter().try_for_each(|&case| run(case));
    outputs.publish(record, done)
}

fn run_case(settings: &Settings, case: Case) -> Result<CaseReport> {
    match case {
        Case::TableChange => table::run(settings),
        Case::LeaderLost => leader::run(settings),
        Case::Idle => idle::run(settings),
        Case::ClusterSlots => slots::run(settings),
        Case::ScalingP16 | Case::ScalingP1 => scaling::run(settings, case),
    }
}
