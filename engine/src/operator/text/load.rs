//! Load as tables.

use ephesus_coordinator::report::{ClusterLoadReport, PartitionLoadRow, RatesRow};

use super::super::table::{Align, Table};
use super::super::units;
use super::NOTHING;

/// `73.2%` of a CPU.
fn cpu(us_per_s: u64) -> String {
    format!("{:.1}%", us_per_s as f64 / 1e4)
}

/// Of the shard of a node that uses the most CPU.
pub(super) fn busiest(shards: &[Option<u64>]) -> String {
    let most = shards.iter().flatten().max();
    most.map_or_else(|| NOTHING.to_owned(), |us| cpu(*us))
}

fn or_nothing<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), text)
}

fn is_idle(row: &PartitionLoadRow) -> bool {
    row.cpu_us_per_s == Some(0) && row.ops_per_s == Some(0)
}

/// Shards, and partitions that do something; the others are a number.
pub(super) fn load(report: &ClusterLoadReport) -> String {
    let mut shards = Table::with_head(&[
        ("NODE", Align::Left),
        ("SHARD", Align::Right),
        ("CPU 1S", Align::Right),
        ("1M", Align::Right),
        ("10M", Align::Right),
        ("OPS/S", Align::Right),
        ("IN/S", Align::Right),
        ("OUT/S", Align::Right),
    ]);
    let share = |rates: Option<RatesRow>| or_nothing(rates, |rates| cpu(rates.cpu_us_per_s));
    for row in &report.shards {
        let minute = row.last_1m;
        shards.row([
            row.node.clone(),
            row.shard.to_string(),
            share(row.last_1s),
            share(minute),
            share(row.last_10m),
            or_nothing(minute, |rates| rates.ops_per_s.to_string()),
            or_nothing(minute, |rates| units::bytes(rates.bytes_in_per_s)),
            or_nothing(minute, |rates| units::bytes(rates.bytes_out_per_s)),
        ]);
    }
    let mut partitions = Table::with_head(&[
        ("PARTITION", Align::Right),
        ("SLOTS", Align::Left),
        ("NODE", Align::Left),
        ("SHARD", Align::Right),
        ("CPU 1S", Align::Right),
        ("1M", Align::Right),
        ("10M", Align::Right),
        ("OPS/S", Align::Right),
        ("TRAFFIC/S", Align::Right),
        ("BYTES", Align::Right),
    ]);
    let (idle, busy): (Vec<_>, Vec<_>) = report.partitions.iter().partition(|row| is_idle(row));
    for row in busy {
        partitions.row([
            row.partition.to_string(),
            super::range(row.first_slot.into(), row.last_slot.into()),
            or_nothing(row.node.clone(), |name| name),
            or_nothing(row.shard, |shard| shard.to_string()),
            share(row.last_1s),
            or_nothing(row.cpu_us_per_s, cpu),
            share(row.last_10m),
            or_nothing(row.ops_per_s, |ops| ops.to_string()),
            or_nothing(row.traffic_bytes_per_s, units::bytes),
            or_nothing(row.bytes, units::bytes),
        ]);
    }
    let mut text = shards.render() + "\n" + &partitions.render();
    if !idle.is_empty() {
        text += &format!("\n{} idle\n", units::count(idle.len() as u64, "partition"));
    }
    text
}

#[cfg(test)]
pub(in crate::operator) mod tests;
