//! Plans and migrations as tables.

use ephesus_coordinator::report::{MigrationRow, MigrationState, MigrationsReport, MoveRow};

use super::super::table::{Align, Table};
use super::super::units;
use super::{NOTHING, range};

/// What was planned, or would be: neighbours that go the same way are one line.
#[must_use]
pub fn plan(rows: &[MoveRow]) -> String {
    let mut table = Table::with_head(&[
        ("PARTITIONS", Align::Left),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("MIGRATIONS", Align::Left),
    ]);
    let is_run = |a: &MoveRow, b: &MoveRow| {
        let way = |row: &MoveRow| (row.from_node.clone(), row.from_shard, row.to_shard);
        let follows = match (a.migration, b.migration) {
            (Some(first), Some(second)) => second == first + 1,
            (first, second) => first == second && a.refusal == b.refusal,
        };
        a.to_node == b.to_node && way(a) == way(b) && b.partition == a.partition + 1 && follows
    };
    for run in rows.chunk_by(is_run) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let from = match (&first.from_node, first.from_shard) {
            (Some(node), Some(shard)) => place(node, shard),
            _ => NOTHING.to_owned(),
        };
        let migrations = match (first.migration, last.migration, &first.refusal) {
            (Some(first), Some(last), _) => range(first, last),
            (_, _, Some(refusal)) => format!("not planned: {refusal}"),
            _ => NOTHING.to_owned(),
        };
        table.row([
            range(first.partition.into(), last.partition.into()),
            from,
            place(&first.to_node, first.to_shard),
            migrations,
        ]);
    }
    table.render()
}

/// A shard of a node: `athens/0`.
#[must_use]
pub fn place(node: &str, shard: u16) -> String {
    format!("{node}/{shard}")
}

/// What moves, what has moved, and what holds for it.
pub(super) fn migrations(report: &MigrationsReport) -> String {
    let mut table = Table::with_head(&[
        ("ID", Align::Right),
        ("PARTITION", Align::Right),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("STATE", Align::Left),
        ("ATTEMPT", Align::Right),
        ("KEYS", Align::Right),
        ("BYTES", Align::Right),
        ("KEYS/S", Align::Right),
        ("RATE", Align::Right),
        ("HELD", Align::Right),
        ("ERROR", Align::Left),
    ]);
    for row in &report.migrations {
        let held = match row.hold_us {
            0 => NOTHING.to_owned(),
            us => units::short(us),
        };
        let is_copying = row.state == MigrationState::Copying;
        let now = |text: String| if is_copying { text } else { NOTHING.to_owned() };
        table.row([
            row.id.to_string(),
            row.partition.to_string(),
            place(&row.from_node, row.from_shard),
            place(&row.to_node, row.to_shard),
            state(row),
            row.attempt.to_string(),
            row.keys.to_string(),
            units::bytes(row.bytes),
            now(row.keys_per_s.to_string()),
            now(units::rate(row.bytes_per_s)),
            held,
            row.last_error.clone(),
        ]);
    }
    let mut text = table.render();
    for node in &report.draining {
        let left = units::count(node.partitions, "partition");
        let name = node.node.replace(char::is_control, "?");
        text += &format!("node {name} is being drained: it owns {left}\n");
    }
    if report.limit_mb_s > 0 {
        text += &format!("no node sends more than {} MB/s\n", report.limit_mb_s);
    }
    text
}

fn state(row: &MigrationRow) -> String {
    if row.will_retry {
        format!("{}, will be tried again", row.state)
    } else {
        row.state.to_string()
    }
}

#[cfg(test)]
pub(in crate::operator) mod tests;
