use std::path::Path;
use std::time::Duration;

use crate::disk;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{self, Outcome, Span};
use crate::measure::{Goal, less};
use crate::prefill::KEY_BYTES;
use crate::procfs;
use crate::redis_benchmark::{Shape, Test};
use crate::resp;
use crate::server::{self, Product, Server};

use super::bed::Bed;
use super::measure::CaseResult;
use super::settings::Settings;
use super::{Case, CaseOutput, throughput};

const QUIET_TIMEOUT: Duration = Duration::from_secs(120);

/// In flight, connections, pipeline, requests.
const IN_FLIGHT: [(u32, u32, u32, u64); 3] = [
    (1, 1, 1, 20_000),
    (50, 50, 1, 200_000),
    (800, 50, 16, 1_000_000),
];

fn write(settings: &Settings, server: &Server, shape: &Shape) -> Result<Outcome> {
    load::run(&throughput::plan(settings, server, shape), Span::default())?.flawless()
}

/// Log and device bytes per SET at several depths; reported, without goals.
pub(super) fn amplification(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let mut result = CaseResult::new(
        case,
        "SETs in a closed loop; log: wal_bytes_written of INFO (peers: growth of the AOF); user: \
         key and value; appended: wal_user_bytes; device: write_bytes of /proc/PID/io until idle"
            .to_owned(),
    );
    let setup = settings.setup(case.durability());
    let bed = Bed::start(settings, setup, settings.keys)?;
    for round in 0..settings.long_rounds {
        for server in bed.round(round) {
            for (in_flight, clients, pipeline, requests) in IN_FLIGHT {
                let requests = settings.requests(requests);
                let shape = set_shape(settings, clients, pipeline, requests);
                let before = log_counters(server)?;
                bed.turn(server, &mut result, || write(settings, server, &shape))?;
                let after = log_counters(server)?;
                let per_op = |index: usize| (after[index] - before[index]) / requests as f64;
                let [log, appended, device] = [0, 1, 2].map(per_op);
                let user = (KEY_BYTES + settings.value_bytes) as f64;
                for (what, unit, value) in [
                    ("log bytes per SET", "B", log),
                    ("log / user bytes", "x", log / user),
                    ("written / appended log bytes", "x", log / appended),
                    ("device bytes per SET", "B", device),
                ] {
                    let name = format!("{what}, {in_flight} in flight");
                    result.record(name, less(unit), server.product(), value);
                }
            }
        }
    }
    let described = bed.describe();
    Ok((result, described))
}

/// Bytes so far: log, appended to the log by users, sent to the device; NaN when not counted.
fn log_counters(server: &Server) -> Result<[f64; 3]> {
    let info = server.info("persistence")?;
    let number = |name| resp::info_number(&info, name).map_or(f64::NAN, |number| number as f64);
    let (log, appended) = match server.product().is_ephesus() {
        true => (number("wal_bytes_written"), number("wal_user_bytes")),
        false => (number("aof_current_size"), f64::NAN),
    };
    Ok([log, appended, procfs::written_bytes(server.pid())? as f64])
}

const POLL: Duration = Duration::from_millis(20);
const OVERWRITES: u64 = 10;
const DISK_USE_MAX: f64 = 5.0;

/// Ephesus's disk use over ten full overwrites of the large data.
pub(super) fn disk_use(settings: &Settings, case: Case) -> Result<CaseOutput> {
    let keys = settings.large_keys;
    let data_bytes = (keys * (KEY_BYTES + settings.value_bytes) as u64) as f64;
    let how = format!(
        "{keys} keys overwritten {OVERWRITES} times, --wal-budget {}, data = keys and values",
        settings.wal_budget_bytes
    );
    let mut result = CaseResult::new(case, how);
    let mut described = Vec::new();
    if !ephesus_is_compared(settings, &mut result) {
        return Ok((result, described));
    }
    let setup = settings.setup(case.durability());
    let dir = settings.case_dir()?;
    let server = settings.start(Product::Ephesus, dir.path(), setup)?;
    let data_dir = server.spec().data_dir();
    let peak = peak_use_while(&data_dir, || {
        for generation in 0..=OVERWRITES {
            server.fill(keys, settings.value_bytes, generation)?;
            let used = disk::used_bytes(&data_dir)? as f64 / data_bytes;
            eprintln!("   after {generation} overwrites: {used:.2} x the data");
        }
        Ok(())
    })?;
    if !server.wait_quiet(QUIET_TIMEOUT)? {
        result.note(format!(
            "ephesus was not idle after {} s",
            QUIET_TIMEOUT.as_secs()
        ));
    }
    let end = disk::used_bytes(&data_dir)?;
    let scale = less("x").to(Goal::ValueAtMost(DISK_USE_MAX));
    for (name, bytes) in [
        ("largest disk use / data", peak),
        ("disk use / data at the end", end),
    ] {
        result.record(name, scale, Product::Ephesus, bytes as f64 / data_bytes);
    }
    described.push(server::describe(&server));
    Ok((result, described))
}

fn peak_use_while<T>(dir: &Path, run: impl FnOnce() -> Result<T>) -> Result<u64> {
    let mut peak = 0;
    let look = || {
        peak = peak.max(disk::used_bytes(dir).unwrap_or(0));
        Ok(())
    };
    interrupt::beside(POLL, look, run)?;
    match peak {
        0 => Err(BenchError::failed(
            format!("data below {}", dir.display()),
            "not found; the data directory's layout has changed",
        )),
        peak => Ok(peak),
    }
}

fn ephesus_is_compared(settings: &Settings, result: &mut CaseResult) -> bool {
    let is_compared = settings.products.contains(&Product::Ephesus);
    if !is_compared {
        result.note("about ephesus only, which is not among --servers".to_owned());
    }
    is_compared
}

fn set_shape(settings: &Settings, clients: u32, pipeline: u32, requests: u64) -> Shape {
    Shape {
        test: Test::Set,
        clients,
        pipeline,
        requests,
        keys: settings.keys,
        value_bytes: settings.value_bytes,
    }
}
