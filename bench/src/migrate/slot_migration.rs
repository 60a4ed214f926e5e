//! What a Valkey says of slots that it gives or gets.

use crate::error::Result;
use crate::resp::{Value, unexpected};

use super::pair::Stage;

#[cfg(test)]
mod tests;

const DAY_MS: f64 = 86_400_000.0;

/// Which end of it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The source.
    Export,
    /// The target.
    Import,
}

/// A slot migration, as one end of it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotMigration {
    state: String,
    message: String,
    /// Memory that the source's fork had for itself.
    pub(super) cow_bytes: u64,
    created_s: u64,
}

impl SlotMigration {
    /// How far it is.
    pub(super) fn stage(&self) -> Stage {
        match self.state.as_str() {
            "success" => Stage::Done,
            "failed" | "cancelled" => Stage::Failed(format!("{}: {}", self.state, self.message)),
            "snapshotting" | "replicating" | "failover-paused" | "failover-granted" => {
                Stage::Copying
            }
            _ => Stage::Waiting,
        }
    }
}

/// The one that was begun last, of a reply to `CLUSTER GETSLOTMIGRATIONS`.
///
/// # Errors
/// When the reply has another form.
pub(super) fn newest(reply: &Value, side: Side) -> Result<Option<SlotMigration>> {
    let wrong = || unexpected(&["CLUSTER", "GETSLOTMIGRATIONS"], reply);
    let Value::Array(items) = reply else {
        return Err(wrong());
    };
    let entries = items.iter().map(|item| entry(item, side));
    let entries = entries.collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    // Of those of one second the first: Valkey's list begins with the newest.
    let of_side = entries.into_iter().flatten().rev();
    Ok(of_side.max_by_key(|migration| migration.created_s))
}

/// Of one entry; `Some(None)`: it is of the other side.
fn entry(item: &Value, side: Side) -> Option<Option<SlotMigration>> {
    let Value::Array(words) = item else {
        return None;
    };
    let text = |name: &str| {
        let pair = words.chunks_exact(2).find(|pair| word(&pair[0]) == name);
        pair.map(|pair| word(&pair[1]))
    };
    if text("operation")? != format!("{side:?}").to_uppercase() {
        return Some(None);
    }
    Some(Some(SlotMigration {
        state: text("state")?,
        message: text("message")?,
        cow_bytes: text("cow_size")?.parse().ok()?,
        created_s: text("create_time")?.parse().ok()?,
    }))
}

fn word(reply: &Value) -> String {
    match reply {
        Value::Integer(number) => number.to_string(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    }
}

/// From when the source paused writes until it knew the target as the owner, by its log, the last
/// time it did both.
pub(super) fn hold_ms(log: &str) -> Option<f64> {
    let last = |what: &str| {
        log.lines()
            .rfind(|line| line.contains(what))
            .and_then(at_ms)
    };
    let began = last("-> failover-paused")?;
    let ended = last("failover-granted -> success")?;
    Some((ended - began).rem_euclid(DAY_MS))
}

/// Time of day of a line such as `7:M 21 Nov 2026 19:11:14.717 * text`, ms.
fn at_ms(line: &str) -> Option<f64> {
    let time = line.split(' ').nth(4)?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let mut next = || parts.next()?.ok();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    Some(((hours * 60.0 + minutes) * 60.0 + seconds) * 1e3)
}
