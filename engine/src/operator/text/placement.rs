//! Placement as tables.

use std::time::Duration;

use ephesus_coordinator::report::{PlacementReport, PlacementRow, PlacementState};

use super::super::table::{Align, Table};
use super::super::units;
use super::{NOTHING, or_nothing, place};

/// Where the table stands against the policy that holds.
pub(super) fn placement(report: &PlacementReport) -> String {
    let mut table = Table::plain([Align::Left, Align::Left]);
    let state = match report.state {
        PlacementState::Follows => "in force",
        PlacementState::Changes => "partitions are moved to where it says",
        PlacementState::Rests => "stopped: nothing is moved before somebody asks for it",
    };
    let bound = match report.moves_max {
        0 => String::new(),
        moves => format!(", {moves} at a time"),
    };
    let under_way = format!(
        "{} under way, {} waiting{bound}",
        report.under_way, report.waiting
    );
    let mut rows = vec![
        ("policy", report.policy.clone()),
        ("state", state.to_owned()),
        ("moves", under_way),
        (
            "fullest shard",
            format!(
                "{} of its fair share",
                percent(report.imbalance_permille, 1_000)
            ),
        ),
        ("to the policy", moves(report)),
    ];
    if report.followed_by != report.policy {
        let rebalance = format!(
            "by {}: {}",
            report.followed_by,
            units::count(report.rebalance_moves, "move")
        );
        rows.push(("a rebalance", rebalance));
    }
    for unmet in &report.unmet {
        rows.push(("not met", unmet.clone()));
    }
    for (name, value) in rows {
        table.row([name.to_owned(), value]);
    }
    let mut text = table.render();
    if !report.racks.is_empty() {
        text += &format!("\n{}", shares("RACK", &report.racks));
    }
    text + &format!(
        "\n{}\n{}",
        shares("NODE", &report.nodes),
        shares("SHARD", &report.shards)
    )
}

/// What a change costs, in a sentence.
#[must_use]
pub fn cost(report: &PlacementReport) -> String {
    let (policy, current) = (&report.policy, &report.current);
    let instead = match policy == current {
        true => "as it is".to_owned(),
        false => format!("instead of {current}"),
    };
    let mut text = format!("{policy} {instead}: {}\n", moves(report));
    for unmet in &report.unmet {
        text += &format!("not met: {unmet}\n");
    }
    text
}

fn moves(report: &PlacementReport) -> String {
    if report.moves == 0 {
        // A change that goes on waits for something, as `unmet` says.
        let waits = report.state == PlacementState::Changes && report.policy == report.current;
        let text = match waits && report.under_way + report.waiting == 0 {
            true => "nothing can move now",
            false => "nothing has to move",
        };
        return text.to_owned();
    }
    let time = match (report.seconds, report.bytes_per_s) {
        (Some(seconds), Some(rate)) => format!(
            ", about {} at {} as of late",
            units::duration(Duration::from_secs(seconds)),
            units::rate(rate)
        ),
        _ if report.bytes == 0 => String::new(),
        _ => ", how fast is not known: nothing has moved of late".to_owned(),
    };
    format!(
        "{} of {} partitions move, {}{time}",
        report.moves,
        report.partitions,
        units::bytes(report.bytes)
    )
}

fn shares(name: &str, rows: &[PlacementRow]) -> String {
    let mut table = Table::with_head(&[
        (name, Align::Left),
        ("PARTITIONS", Align::Right),
        ("SHARE", Align::Right),
        ("FAIR", Align::Right),
    ]);
    for row in rows {
        table.row([
            row.shard
                .map_or_else(|| or_nothing(&row.node), |shard| place(&row.node, shard)),
            row.partitions.to_string(),
            percent(row.share_ppm, 1_000_000),
            match row.fair_ppm {
                0 => NOTHING.to_owned(),
                fair => percent(fair, 1_000_000),
            },
        ]);
    }
    table.render()
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests;
