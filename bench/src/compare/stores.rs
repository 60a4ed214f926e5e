use std::slice;
use std::time::Duration;

use crate::error::Result;
use crate::load::Span;
use crate::measure::{Goal, less};
use crate::prefill::KEY_BYTES;
use crate::record::Case;
use crate::runner::{Driven, rounds};
use crate::server::{Durability, Server};
use crate::{disk, procfs, resp};

use super::{Answer, CompareArgs};

const QUIET_TIMEOUT: Duration = Duration::from_secs(300);
/// In flight, connections, pipeline, operations.
const IN_FLIGHT: [(u32, usize, u32, u64); 3] = [
    (1, 1, 1, 20_000),
    (50, 50, 1, 200_000),
    (800, 50, 16, 1_000_000),
];

impl Answer<'_, '_> {
    /// Resident memory and disk use after loading the large data, once idle.
    pub(super) fn memory_per_key(&mut self) -> Result<()> {
        let (keys, sizes) = (self.arguments.large_keys(), self.arguments.sizes());
        self.case.how = format!(
            "{keys} keys of {KEY_BYTES} B with values of {sizes} B, VmRSS once idle; each round a new server"
        );
        self.keep_own();
        let how = ([1; 2], Durability::EverySecond, keys);
        rounds(
            self.arguments.long_rounds(),
            &self.contestants.clone(),
            |_, one| {
                let bed = self.bed(slice::from_ref(one), how)?;
                let driven = &bed.all[0];
                note_quiet(&mut self.case, driven)?;
                let pids = driven.servers.iter().map(Server::pid);
                let resident = |pid| procfs::resident_bytes(pid).map(|[resident, _]| resident);
                let bytes = pids.map(resident).sum::<Result<u64>>()?;
                let [memory, disk] =
                    [bytes, disk::used_bytes(bed.dir())?].map(|bytes| bytes as f64 / keys as f64);
                eprintln!("   {}: {memory:.1} B per key", one.name);
                let no_more = less("B").to(Goal::RatioAtMost(1.0));
                let mut sample =
                    |name, scale, value| self.case.sample(name, scale, &one.name, value);
                sample("resident memory per key", no_more, memory);
                sample(
                    "disk use / data",
                    less("x"),
                    disk / self.arguments.entry_bytes(),
                );
                Ok(())
            },
        )
    }

    /// Time from exec to the first answered GET with the large data, after a clean stop.
    ///
    /// Peers load an AOF freshly rewritten to an RDB base; Ephesus whatever its images and logs are.
    pub(super) fn restart(&mut self, cores: u16) -> Result<()> {
        let keys = self.arguments.large_keys();
        self.case.how = format!(
            "{keys} keys, {cores} CPUs, page cache warm, stopped with SIGTERM; before it peers were told to rewrite \
             their AOF (with RDB base), and Ephesus was left alone until its images were done"
        );
        let most = if cores == 1 { 1.0 / 2.5 } else { 1.0 / 4.0 };
        self.keep_own();
        // Nobody drives them.
        let how = ([cores, 0], Durability::EverySecond, keys);
        let mut stopped = Vec::new();
        for one in self.contestants.clone() {
            let mut bed = self.bed(slice::from_ref(&one), how)?;
            bed.all[0].servers.iter().try_for_each(Server::settle)?;
            note_quiet(&mut self.case, &bed.all[0])?;
            stop(bed.all.remove(0))?;
            stopped.push((one, bed));
        }
        rounds(self.arguments.rounds, &stopped, |_, (one, bed)| {
            let servers = &self.arguments.with.servers;
            let driven = servers.start(one, &bed.setup, bed.dir())?;
            let ready = driven.servers.iter().map(|one| one.start_to_ready);
            let seconds = ready.max().unwrap_or_default().as_secs_f64();
            driven.verify_keys(keys)?;
            driven.verify_confined()?;
            stop(driven)?;
            eprintln!("   {}: {seconds:.2} s", one.name);
            let faster = less("s").to(Goal::RatioAtMost(most));
            let mut sample = |name, scale, value| self.case.sample(name, scale, &one.name, value);
            sample("exec to first GET", faster, seconds);
            sample("load time", less("us/key"), seconds * 1e6 / keys as f64);
            Ok(())
        })
    }

    /// Log and device bytes per SET at several depths; reported, without goals.
    pub(super) fn amplification(&mut self) -> Result<()> {
        let arguments = self.arguments;
        self.case.how = "SETs in a closed loop; log: wal_bytes_written of INFO (peers: growth of the AOF); user: key and \
                         value; appended: wal_user_bytes; device: write_bytes of /proc/PID/io until idle"
            .to_owned();
        self.keep_own();
        let how = ([1; 2], Durability::Always, arguments.with.load.keys);
        let bed = self.bed(&self.contestants.clone(), how)?;
        rounds(arguments.long_rounds(), &bed.all, |_, driven| {
            for (in_flight, connections, pipeline, count) in IN_FLIGHT {
                let count = arguments.operations(count);
                let mut plan = driven.plan.clone();
                plan.pace.connections = connections;
                plan.pace.pipeline = pipeline;
                plan.pace.count = Some(count);
                let before = log_counters(driven)?;
                let loaded = bed.load(driven, &mut self.case, (&plan, Span::default(), ""))?;
                loaded.flawless()?;
                let after = log_counters(driven)?;
                let per_op = |at: usize| (after[at] - before[at]) / count as f64;
                let [log, appended, device] = [0, 1, 2].map(per_op);
                for (what, unit, value) in [
                    ("log bytes per SET", "B", log),
                    ("log / user bytes", "x", log / arguments.entry_bytes()),
                    ("written / appended log bytes", "x", log / appended),
                    ("device bytes per SET", "B", device),
                ] {
                    let name = format!("{what}, {in_flight} in flight");
                    self.case.sample(name, less(unit), &driven.name, value);
                }
            }
            Ok(())
        })
    }
}

impl CompareArgs {
    fn entry_bytes(&self) -> f64 {
        let [shortest, longest] = self.sizes().bounds();
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

fn stop(driven: Driven) -> Result<()> {
    driven.servers.into_iter().try_for_each(Server::stop)
}
