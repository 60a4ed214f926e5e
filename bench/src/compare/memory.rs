use std::time::Duration;

use tempfile::TempDir;

use crate::error::Result;
use crate::measure::{Goal, less};
use crate::procfs;
use crate::server::{self, Product};

use super::measure::CaseResult;
use super::settings::{Settings, Setup};
use super::{Case, CaseOutput};

const QUIET_TIMEOUT: Duration = Duration::from_secs(300);

/// Resident memory after loading the large data, once idle.
pub(super) fn per_key(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let keys = settings.large_keys;
    let how = format!(
        "{keys} keys of 16 B with {} B values, VmRSS once idle; each round a new server",
        settings.value_bytes
    );
    let mut result = CaseResult::new(case, how);
    let resident = less("B").to(Goal::RatioAtMost(1.0));
    let mut described = Vec::new();
    for round in 0..settings.long_rounds {
        for product in rotated(settings, round) {
            let dir = settings.case_dir()?;
            let server = settings.start(product, dir.path(), settings.setup(case.durability()))?;
            let empty = procfs::resident_bytes(server.pid())?;
            server.fill(keys, settings.value_bytes, 0)?;
            note_quiet(&mut result, product, server.wait_quiet(QUIET_TIMEOUT)?);
            let full = procfs::resident_bytes(server.pid())?;
            server.verify_confined()?;
            let per_key = |bytes: u64| bytes as f64 / keys as f64;
            eprintln!("   round {round} {product}: {:.1} B per key", per_key(full));
            result.record("resident memory per key", resident, product, per_key(full));
            let grown = per_key(full.saturating_sub(empty));
            result.record("growth per key", less("B"), product, grown);
            if round == 0 {
                described.push(server::describe(&server));
            }
        }
    }
    Ok((result, described))
}

/// Time from exec to the first answered GET with the large data, after a clean stop.
///
/// Peers load an AOF freshly rewritten to an RDB base; Ephesus whatever its images and logs are.
pub(super) fn restart(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let keys = settings.large_keys;
    let is_two = case == Case::RestartTwoCores;
    let (cores, most) = if is_two {
        ("two cores", 1.0 / 4.0)
    } else {
        ("one core", 1.0 / 2.5)
    };
    let how = format!(
        "{keys} keys, {cores}, page cache warm, stopped with SIGTERM; before it peers \
         were told to rewrite their AOF (with RDB base), and Ephesus was left alone until its \
         images were done"
    );
    let mut result = CaseResult::new(case, how);
    let start = less("s").to(Goal::RatioAtMost(most));
    let setup = Setup {
        two_cores: is_two,
        ..settings.setup(case.durability())
    };
    let mut described = Vec::new();
    let mut dirs: Vec<(Product, TempDir)> = Vec::new();
    for &product in &settings.products {
        let dir = settings.case_dir()?;
        let server = settings.start(product, dir.path(), setup)?;
        server.fill(keys, settings.value_bytes, 0)?;
        server.settle()?;
        note_quiet(&mut result, product, server.wait_quiet(QUIET_TIMEOUT)?);
        described.push(server::describe(&server));
        server.stop()?;
        dirs.push((product, dir));
    }
    for round in 0..settings.rounds {
        for product in rotated(settings, round) {
            let Some((_, dir)) = dirs.iter().find(|(of, _)| *of == product) else {
                continue;
            };
            let server = settings.start(product, dir.path(), setup)?;
            let seconds = server.start_to_ready().as_secs_f64();
            server.verify_keys(keys)?;
            server.verify_confined()?;
            server.stop()?;
            eprintln!("   round {round} {product}: {seconds:.2} s");
            result.record("exec to first GET", start, product, seconds);
            let per_key = seconds * 1e6 / keys as f64;
            result.record("load time", less("us/key"), product, per_key);
        }
    }
    Ok((result, described))
}

fn rotated(settings: &Settings, round: u32) -> impl Iterator<Item = Product> {
    let count = settings.products.len();
    (0..count).map(move |index| settings.products[(index + round as usize) % count])
}

fn note_quiet(result: &mut CaseResult, product: Product, is_quiet: bool) {
    if !is_quiet {
        result.note(format!(
            "{product} was not idle after {} s",
            QUIET_TIMEOUT.as_secs()
        ));
    }
}
