use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::compare::Goal;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::procfs::{self, Pid};
use crate::resp::{self, Connection};

use super::Case;
use super::bed::{Bed, Layout, PARTITIONS};
use super::report::CaseReport;
use super::settings::Settings;

const SHARDS: u16 = 64;
const PIPELINE: usize = 16;
const GOAL_US: f64 = 50.0;
/// So many PINGs for each CLUSTER SLOTS: they are short.
const PINGS: usize = 10;
const READ_BYTES: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection over which one command is repeated, whose reply is always the same.
struct Repeater {
    stream: TcpStream,
    batch: Vec<u8>,
    batch_reply_bytes: usize,
    buffer: Vec<u8>,
}

impl Repeater {
    fn open(address: SocketAddr, command: &[&[u8]]) -> Result<Self> {
        let what = || BenchError::io(format!("connecting to {address}"));
        let stream = TcpStream::connect(address).map_err(what())?;
        stream.set_nodelay(true).map_err(what())?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(what())?;
        let mut one = Vec::new();
        resp::encode(&mut one, command);
        let mut repeater = Repeater {
            stream,
            batch: one,
            batch_reply_bytes: 0,
            buffer: vec![0; READ_BYTES],
        };
        let reply_bytes = repeater.first_reply()?;
        repeater.batch = repeater.batch.repeat(PIPELINE);
        repeater.batch_reply_bytes = reply_bytes * PIPELINE;
        Ok(repeater)
    }

    /// The length of the reply to one command.
    fn first_reply(&mut self) -> Result<usize> {
        self.stream
            .write_all(&self.batch)
            .map_err(BenchError::io("request"))?;
        let mut reply = Vec::new();
        loop {
            let length = self.read()?;
            reply.extend_from_slice(&self.buffer[..length]);
            match resp::decode(&reply)? {
                Some((resp::Reply::Error(text), _)) => {
                    return Err(BenchError::reply("request", text.as_bytes()));
                }
                Some((_, bytes)) => return Ok(bytes),
                None => {}
            }
        }
    }

    fn read(&mut self) -> Result<usize> {
        let length = self.stream.read(&mut self.buffer);
        match length.map_err(BenchError::io("reply"))? {
            0 => Err(BenchError::io("reply")(
                std::io::ErrorKind::UnexpectedEof.into(),
            )),
            length => Ok(length),
        }
    }

    /// Sends the command in pipelines, and reads the replies.
    fn run(&mut self, batches: usize) -> Result<()> {
        for _ in 0..batches {
            interrupt::check()?;
            self.stream
                .write_all(&self.batch)
                .map_err(BenchError::io("request"))?;
            let mut left = self.batch_reply_bytes;
            while left > 0 {
                let length = self.read()?;
                left = left
                    .checked_sub(length)
                    .ok_or_else(|| BenchError::reply("request", b"another reply than before"))?;
            }
        }
        Ok(())
    }
}

/// CPU time of the process for each command, us, once per run; and the bytes of a reply.
fn measure(
    pid: Pid,
    address: SocketAddr,
    command: &[&[u8]],
    (runs, batches): (usize, usize),
) -> Result<(Vec<f64>, usize)> {
    let mut repeater = Repeater::open(address, command)?;
    repeater.run(batches / 10)?;
    let mut samples = Vec::new();
    for _ in 0..runs {
        let before = procfs::cpu_time(pid)?;
        repeater.run(batches)?;
        let used = procfs::cpu_time(pid)?.saturating_sub(before);
        samples.push(used.as_secs_f64() * 1e6 / (batches * PIPELINE) as f64);
    }
    Ok((samples, repeater.batch_reply_bytes / PIPELINE))
}

pub(super) fn run(settings: &Settings) -> Result<CaseReport> {
    let (runs, batches) = (settings.or_quick(9, 2), settings.or_quick(500, 20));
    let mut report = CaseReport::new(
        Case::ClusterSlots,
        format!(
            "one node of {SHARDS} shards, {PARTITIONS} partitions; {runs} runs of {} commands, \
             pipeline {PIPELINE}, one connection to the entry port; CPU of the whole node",
            batches * PIPELINE
        ),
    );
    for assignment in ["contiguous", "round-robin"] {
        let bed = Bed::start(
            &settings.ephesus,
            settings.root(),
            Layout {
                coordinators: 1,
                shards: SHARDS,
                assignment,
                ..Layout::of_nodes(1, "relaxed")
            },
        )?;
        let (pid, address) = (bed.node_pids()[0], bed.entry(0));
        let ranges = match Connection::open(address)?.call(&["CLUSTER", "SLOTS"])? {
            resp::Reply::Array(ranges) => ranges.len(),
            other => {
                let got = format!("{other:?}");
                return Err(BenchError::reply("CLUSTER SLOTS", got.as_bytes()));
            }
        };
        let (samples, bytes) = measure(pid, address, &[b"CLUSTER", b"SLOTS"], (runs, batches))?;
        let name = format!("CLUSTER SLOTS, {assignment}: {ranges} ranges, {bytes} B");
        report.add(name, "us of CPU", samples, Some(Goal::ValueAtMost(GOAL_US)));
        let (samples, _) = measure(pid, address, &[b"PING"], (runs, PINGS * batches))?;
        report.add(format!("PING, {assignment}"), "us of CPU", samples, None);
    }
    Ok(report)
}
