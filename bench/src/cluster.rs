//! Coordinators and nodes of Ephesus on loopback: how fast a cluster changes, what it costs at rest,
//! and what routing costs.
//!
//! Every process is real, but for [`Case::Scale`]. Times are upper bounds: they begin at the last moment at which the old
//! state was still seen, and the clients that look use the same CPUs.

use crate::environment;
use crate::error::Result;
use crate::named::Named;
use crate::report::save;

pub use arguments::ClusterArgs;
pub use case::Case;
pub use report::Report;

mod arguments;
pub(crate) mod bed;
mod case;
mod idle;
mod leader;
mod report;
mod scale;
mod scaling;
mod settings;
mod slots;
mod table;

use report::CaseReport;
use settings::Settings;

/// Runs the cases asked for, prints the table and writes the JSON.
///
/// # Errors
/// When a process misbehaves, the machine lacks what is needed, or a bound of [`Case::Scale`] is missed.
pub fn execute(arguments: &ClusterArgs) -> Result<()> {
    if arguments.list {
        Case::list();
        return Ok(());
    }
    let settings = Settings::resolve(arguments)?;
    let mut report = Report::new(environment::read(settings.root())?, settings.is_quick);
    for &case in &settings.cases {
        eprintln!("== {}: {}", case.name(), case.title());
        report.add(run_case(&settings, case)?);
        save(&report, arguments.json.as_deref())?;
    }
    print!("{}", report.markdown());
    report.check_bounds()
}

fn run_case(settings: &Settings, case: Case) -> Result<CaseReport> {
    match case {
        Case::TableChange => table::run(settings),
        Case::LeaderLost => leader::run(settings),
        Case::Idle => idle::run(settings),
        Case::ClusterSlots => slots::run(settings),
        Case::Scale => scale::run(settings),
        Case::ScalingP16 | Case::ScalingP1 => scaling::run(settings, case),
    }
}
