use std::slice;
use std::time::Duration;

use crate::error::Result;
use crate::load::Span;
use crate::measure::{Goal, less};
use crate::prefill::KEY_BYTES;
use crate::procfs;
use crate::record::Case;
use crate::resp;
use crate::runner::{Driven, Session, rounds};
use crate::server::{Durability, Server};

use super::Compare;

const QUIET_TIMEOUT: Duration = Duration::from_secs(300);
/// In flight, connections, pipeline, operations.
const IN_FLIGHT: [(u32, usize, u32, u64); 3] = [
    (1, 1, 1, 20_000),
    (50, 50, 1, 200_000),
    (800, 50, 16, 1_000_000),
];

impl Compare<'_> {
    /// Resident memory after loading the large data, once idle.
    pub(super) fn memory_per_key(&self, session: &mut Session<'_>, case: &mut Case) -> Result<()> {
        let (keys, sizes) = (self.large_keys(), &self.sizes);
        case.how = format!(
            "{keys} keys of {KEY_BYTES} B with values of {sizes} B, VmRSS once idle; each round a new server"
        );
        let own = self.own(case);
        let how = ([1; 2], Durability::EverySecond, keys);
        rounds(self.long_rounds(), &own, |_, one| {
            let bed = self.bed(session, slice::from_ref(one), how)?;
            let driven = &bed.all[0];
            note_quiet(case, driven)?;
            let pids = driven.servers.iter().map(Server::pid);
            let resident = |pid| procfs::resident_bytes(pid).map(|[resident, _]| resident);
            let bytes = pids.map(resident).sum::<Result<u64>>()?;
            let per_key = |bytes: u64| bytes as f64 / keys as f64;
            eprintln!("   {}: {:.1} B per key", one.name, per_key(bytes));
            let no_more = less("B").to(Goal::RatioAtMost(1.0));
            case.sample(
                "resident memory per key",
                no_more,
                &one.name,
                per_key(bytes),
            );
            let disk = per_key(bed.disk_bytes()?) / self.entry_bytes();
            case.sample("disk use / data", less("x"), &one.name, disk);
            Ok(())
        })
    }

    /// Time from exec to the first answered GET with the large data, after a clean stop.
    ///
    /// Peers load an AOF freshly rewritten to an RDB base; Ephesus whatever its images and logs are.
    pub(super) fn restart(
        &self,
        cores: u16,
        session: &mut Session<'_>,
        case: &mut Case,
    ) -> Result<()> {
        let keys = self.large_keys();
        case.how = format!(
            "{keys} keys, {cores} CPUs, page cache warm, stopped with SIGTERM; before it peers were told to rewrite \
             their AOF (with RDB base), and Ephesus was left alone until its images were done"
        );
        let most = if cores == 1 { 1.0 / 2.5 } else { 1.0 / 4.0 };
        // Nobody drives them.
        let how = ([cores, 0], Durability::EverySecond, keys);
        let mut stopped = Vec::new();
        for one in self.own(case) {
            let mut bed = self.bed(session, slice::from_ref(&one), how)?;
            bed.all[0].settle()?;
            note_quiet(case, &bed.all[0])?;
            stop(bed.all.remove(0))?;
            stopped.push((one, bed));
        }
        rounds(self.arguments.rounds, &stopped, |_, (one, bed)| {
            let driven = self.arguments.servers.start(one, &bed.setup, bed.dir())?;
            let ready = driven.servers.iter().map(|one| one.start_to_ready);
            let seconds = ready.max().unwrap_or_default().as_secs_f64();
            driven.verify_keys(keys)?;
            driven.verify_confined()?;
            stop(driven)?;
            eprintln!("   {}: {seconds:.2} s", one.name);
            let faster = less("s").to(Goal::RatioAtMost(most));
            case.sample("exec to first GET", faster, &one.name, seconds);
            let us_per_key = seconds * 1e6 / keys as f64;
            case.sample("load time", less("us/key"), &one.name, us_per_key);
            Ok(())
        })
    }

    /// Log and device bytes per SET at several depths; reported, without goals.
    pub(super) fn amplification(&self, session: &mut Session<'_>, case: &mut Case) -> Result<()> {
        case.how = "SETs in a closed loop; log: wal_bytes_written of INFO (peers: growth of the AOF); user: key and \
                    value; appended: wal_user_bytes; device: write_bytes of /proc/PID/io until idle"
            .to_owned();
        let own = self.own(case);
        let keys = self.arguments.load.keys;
        let bed = self.bed(session, &own, ([1; 2], Durability::Always, keys))?;
        rounds(self.long_rounds(), &bed.all, |_, driven| {
            for (in_flight, connections, pipeline, count) in IN_FLIGHT {
                let mut plan = driven.plan.clone();
                plan.connections = connections;
                plan.pipeline = pipeline;
                plan.count = Some(self.operations(count));
                let before = log_counters(driven)?;
                let loaded = bed.load(driven, case, (&plan, Span::default(), ""))?;
                loaded.flawless()?;
                let after = log_counters(driven)?;
                let per_op = |at: usize| (after[at] - before[at]) / self.operations(count) as f64;
                let [log, appended, device] = [0, 1, 2].map(per_op);
                for (what, unit, value) in [
                    ("log bytes per SET", "B", log),
                    ("log / user bytes", "x", log / self.entry_bytes()),
                    ("written / appended log bytes", "x", log / appended),
                    ("device bytes per SET", "B", device),
                ] {
                    let name = format!("{what}, {in_flight} in flight");
                    case.sample(name, less(unit), &driven.name, value);
                }
            }
            Ok(())
        })
    }

    /// Of a key and its value, on average.
    fn entry_bytes(&self) -> f64 {
        let [shortest, longest] = self.sizes.bounds();
        (KEY_BYTES + (shortest + longest) / 2) as f64
    }
}

/// Bytes so far: log, appended to the log by users, sent to the device; NaN when not counted.
fn log_counters(driven: &Driven) -> Result<[f64; 3]> {
    let server = &driven.servers[0];
    let info = server.info("persistence")?;
    let number = |name| resp::info_number(&info, name).map_or(f64::NAN, |number| number as f64);
    let (log, appended) = match server.spec.product.is_ephesus() {
        true => (number("wal_bytes_written"), number("wal_user_bytes")),
        false => (number("aof_current_size"), f64::NAN),
    };
    let device = procfs::written_bytes(server.pid())?;
    Ok([log, appended, device as f64])
}

fn note_quiet(case: &mut Case, driven: &Driven) -> Result<()> {
    if !driven.wait_quiet(QUIET_TIMEOUT)? {
        let (name, seconds) = (&driven.name, QUIET_TIMEOUT.as_secs());
        case.note(format!("{name} was not idle after {seconds} s"));
    }
    Ok(())
}

/// As an operator stops it.
fn stop(driven: Driven) -> Result<()> {
    driven.servers.into_iter().try_for_each(Server::stop)
}
