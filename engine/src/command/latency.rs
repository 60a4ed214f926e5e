//! `LATENCY`: times of commands as histograms, and the longest ones by the second.

use ephesus_wire::resp::reply::{self, Protocol};

use super::error::{ClientError, Quoted};
use super::introspect::check_names;
use super::parse::ArgList;
use super::spec::{Spec, commands, lookup_full};
use crate::node::slow::Sample;
use crate::shard::timing::Times;

mod sparkline;

/// The one event that is watched: a command, whichever.
const EVENT: &[u8] = b"command";

/// The commands that `LATENCY HISTOGRAM [command ...]` names, with the subcommands of containers; all if it names none.
fn asked<A: ArgList + ?Sized>(args: &A) -> Result<Vec<&'static Spec>, ClientError> {
    check_names(args.len() - 2)?;
    if args.len() == 2 {
        return Ok(commands().iter().flat_map(Spec::all).collect());
    }
    let mut specs: Vec<&'static Spec> = Vec::new();
    for index in 2..args.len() {
        let spec = lookup_full(args.arg(index));
        for spec in spec.into_iter().flat_map(Spec::all) {
            if !specs.iter().any(|other| other.cmd == spec.cmd) {
                specs.push(spec);
            }
        }
    }
    Ok(specs)
}

/// Appends the reply to LATENCY HISTOGRAM: of each command that was called the calls, and how many took at most that
/// many microseconds.
///
/// # Errors
/// [`ClientError::TooManyNames`]; nothing was appended.
pub fn write_histograms<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    args: &A,
    times_of: impl Fn(&Spec) -> Times,
) -> Result<(), ClientError> {
    let all = asked(args)?.into_iter().map(|spec| (spec, times_of(spec)));
    let all: Vec<_> = all.filter(|(_, times)| times.count() > 0).collect();
    reply::map(out, protocol, all.len());
    for (spec, times) in all {
        reply::bulk(out, spec.name.as_bytes());
        reply::map(out, protocol, 2);
        reply::bulk(out, b"calls");
        reply::integer(out, times.count().cast_signed());
        reply::bulk(out, b"histogram_usec");
        let counts = times.cumulative();
        reply::map(out, protocol, counts.len());
        for (usec, count) in counts {
            reply::integer(out, usec.cast_signed());
            reply::integer(out, count.cast_signed());
        }
    }
    Ok(())
}

/// Appends the reply to LATENCY LATEST.
pub fn write_latest(out: &mut Vec<u8>, (samples, longest_ms): &(Vec<Sample>, u64)) {
    let Some(last) = samples.last() else {
        return reply::array(out, 0);
    };
    reply::array(out, 1);
    reply::array(out, 4);
    reply::bulk(out, EVENT);
    reply::integer(out, last.at_s.cast_signed());
    reply::integer(out, last.ms.cast_signed());
    reply::integer(out, longest_ms.cast_signed());
}

/// Appends the reply to LATENCY HISTORY of an event.
pub fn write_history(out: &mut Vec<u8>, event: &[u8], (samples, _): &(Vec<Sample>, u64)) {
    let samples = if is_event(event) { &samples[..] } else { &[] };
    reply::array(out, samples.len());
    for sample in samples {
        reply::array(out, 2);
        reply::integer(out, sample.at_s.cast_signed());
        reply::integer(out, sample.ms.cast_signed());
    }
}

/// What LATENCY GRAPH of an event draws at a time, Unix seconds.
///
/// # Errors
/// [`ClientError::NoSamples`].
pub fn graph(
    event: &[u8],
    (samples, longest_ms): &(Vec<Sample>, u64),
    now_s: u64,
) -> Result<String, ClientError> {
    let values = || samples.iter().map(|sample| sample.ms);
    let (Some(low), Some(high)) = (values().min(), values().max()) else {
        return Err(ClientError::NoSamples(Quoted::new(event)));
    };
    if !is_event(event) {
        return Err(ClientError::NoSamples(Quoted::new(event)));
    }
    let head = format!(
        "command - high {high} ms, low {low} ms (all time high {longest_ms} ms)\n{}\n",
        "-".repeat(sparkline::COLUMNS)
    );
    let labelled = samples
        .iter()
        .map(|sample| (sample.ms, ago(now_s.saturating_sub(sample.at_s))));
    Ok(head + &sparkline::draw(&labelled.collect::<Vec<_>>()))
}

/// How long something is ago, in the largest unit of which it has one.
fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Whether `LATENCY RESET [event ...]` is about the event that is watched.
pub fn resets<A: ArgList + ?Sized>(args: &A) -> bool {
    args.len() == 2 || (2..args.len()).any(|index| is_event(args.arg(index)))
}

fn is_event(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(EVENT)
}

/// What LATENCY DOCTOR says.
#[must_use]
pub fn diagnosis(threshold_ms: u64, (samples, longest_ms): &(Vec<Sample>, u64)) -> String {
    if threshold_ms == 0 {
        return "Commands are not watched: CONFIG SET latency-monitor-threshold <milliseconds>.\n"
            .to_owned();
    }
    let seconds = samples.len() as u64;
    let Some(average) = samples
        .iter()
        .map(|sample| sample.ms)
        .sum::<u64>()
        .checked_div(seconds)
    else {
        return format!("No command has taken {threshold_ms} ms or more.\n");
    };
    format!(
        "In {seconds} seconds a command took {threshold_ms} ms or more: {average} ms on average, {longest_ms} ms at most. \
         SLOWLOG GET shows which; LATENCY HISTOGRAM tells usual times.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name is compared with those before: a million of them took seconds.
    #[test]
    fn few_names_of_commands_are_asked_for_at_once() {
        let histograms = |names: usize| {
            let args = [&["latency", "histogram"][..], &vec!["client"; names]].concat();
            let mut out = Vec::new();
            let none = |_: &Spec| Times::of(std::iter::empty());
            write_histograms(&mut out, Protocol::Resp2, &args[..], none).map(|()| out)
        };
        assert_eq!(histograms(1024), Ok(b"*0\r\n".to_vec()));
        assert_eq!(histograms(1025), Err(ClientError::TooManyNames(1024)));
    }
}
