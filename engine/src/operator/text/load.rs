//! Load as tables.

use ephesus_coordinator::report::{
    ClusterLoadReport, HotKeyRow, HotKeysReport, PartitionLoadRow, RatesRow,
};

use super::super::table::{Align, Table};
use super::super::units;
use super::NOTHING;
use crate::operator::json::key_text;

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
    let (idle, busy): (Vec<_>, Vec<_>) = report.partitions.iter().partition(|row| is_idle(row));
    let mut text = shards.render() + "\n" + &partitions(busy);
    if !idle.is_empty() {
        text += &format!("\n{} idle\n", units::count(idle.len() as u64, "partition"));
    }
    text
}

fn share(rates: Option<RatesRow>) -> String {
    or_nothing(rates, |rates| cpu(rates.cpu_us_per_s))
}

fn partitions<'a>(rows: impl IntoIterator<Item = &'a PartitionLoadRow>) -> String {
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
    for row in rows {
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
    partitions.render()
}

/// Hot partitions, and keys if they were asked for.
pub(in crate::operator) fn hot(rows: &[PartitionLoadRow], keys: Option<&HotKeysReport>) -> String {
    let mut text = partitions(rows);
    let Some(keys) = keys else { return text };
    let mut table = Table::with_head(&[
        ("OPS/S", Align::Right),
        ("OF SHARD", Align::Right),
        ("CPU 1M", Align::Right),
        ("NODE", Align::Left),
        ("SHARD", Align::Right),
        ("DB", Align::Right),
        ("KEY", Align::Left),
    ]);
    for row in &keys.keys {
        table.row([
            row.ops_per_s.to_string(),
            cpu(row.share_of_shard.into()),
            or_nothing(row.cpu_us_per_s, cpu),
            row.node.clone(),
            row.shard.to_string(),
            row.database.to_string(),
            name(row),
        ]);
    }
    text = text + "\n" + &table.render();
    let mut saturating = keys.keys.iter().filter(|row| row.saturates()).peekable();
    if saturating.peek().is_some() {
        text += "\n";
    }
    for row in saturating {
        text += &format!("{}\n", self::saturating(row));
    }
    text
}

/// A key, or its beginning and how much more there is.
fn name(row: &HotKeyRow) -> String {
    let more = u64::from(row.key_bytes).saturating_sub(row.key.len() as u64);
    let name = key_text(&row.key);
    match more {
        0 => name,
        more => format!("{name}... ({more} more bytes)"),
    }
}

/// What to do about a key that is too much for a shard.
pub(in crate::operator) fn saturating(row: &HotKeyRow) -> String {
    format!(
        "{} (database {}) alone takes {} of a CPU at shard {} of {}: no move cures that. Have clients cache it \
         (CLIENT TRACKING), or split it into several keys",
        name(row),
        row.database,
        or_nothing(row.cpu_us_per_s, cpu),
        row.shard,
        row.node,
    )
}

#[cfg(test)]
pub(in crate::operator) mod tests;
