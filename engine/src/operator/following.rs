//! How far a set of moves is, from what the leader says of migrations again and again.
//!
//! ```text
//! under way -> done      committed
//! under way -> failed    aborted, and not tried again
//! ```
//!
//! A move that was aborted and is tried again goes on under another id: it is followed by its
//! partition and its target.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ephesus_coordinator::report::{MigrationRow, MigrationState, MigrationsReport};

use super::text::place;
use super::units;

/// Rates are those of so much time.
const WINDOW: Duration = Duration::from_secs(3);

/// The moves that are followed, by partition.
#[derive(Debug, Default)]
pub struct Following {
    moves: BTreeMap<u16, Followed>,
    /// When, and how many keys and bytes there were by then; over a little more than [`WINDOW`].
    samples: VecDeque<(Duration, u64, u64)>,
}

#[derive(Debug, Default)]
struct Followed {
    /// The newest migration known of it.
    id: u64,
    to_node: String,
    to_shard: u16,
    /// What a partition of its source usually has, bytes.
    expected_bytes: u64,
    keys: u64,
    bytes: u64,
    hold_us: u64,
    last_error: String,
    /// How it has ended.
    end: Option<Result<(), String>>,
}

impl Following {
    /// Follows the move that a migration belongs to; `expected_bytes` is a guess at its size.
    pub fn add(
        &mut self,
        partition: u16,
        id: u64,
        (node, shard): (&str, u16),
        expected_bytes: u64,
    ) {
        let followed = Followed {
            id,
            to_node: node.to_owned(),
            to_shard: shard,
            expected_bytes,
            ..Followed::default()
        };
        self.moves.entry(partition).or_insert(followed);
    }

    /// Notes what the leader says after `at`; answers the partitions of which it does not know the
    /// end any more.
    pub fn note(&mut self, report: &MigrationsReport, at: Duration) -> Vec<u16> {
        let mut newest = BTreeMap::<u16, &MigrationRow>::new();
        for row in &report.migrations {
            let followed = self.moves.get(&row.partition);
            let is_meant = followed.is_some_and(|followed| {
                let target = (followed.to_node.as_str(), followed.to_shard);
                row.id == followed.id
                    || row.id > followed.id && target == (row.to_node.as_str(), row.to_shard)
            });
            let other = newest.get(&row.partition);
            if is_meant && other.is_none_or(|other| other.id < row.id) {
                newest.insert(row.partition, row);
            }
        }
        let mut gone = Vec::new();
        for (partition, followed) in &mut self.moves {
            match newest.get(partition) {
                Some(row) => followed.note(row),
                None if followed.end.is_none() => gone.push(*partition),
                None => {}
            }
        }
        let (keys, bytes) = (self.keys(), self.bytes());
        self.samples.push_back((at, keys, bytes));
        while self
            .samples
            .get(1)
            .is_some_and(|(then, ..)| at - *then >= WINDOW)
        {
            self.samples.pop_front();
        }
        gone
    }

    /// Who has a partition of which the leader does not know the end of its move.
    pub fn resolve(&mut self, partition: u16, owner: Option<(&str, u16)>) {
        if let Some(followed) = self.moves.get_mut(&partition) {
            let target = (followed.to_node.as_str(), followed.to_shard);
            followed.end = Some(if owner == Some(target) {
                Ok(())
            } else {
                Err("it is not there, and nothing is known of its move any more".to_owned())
            });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// The partitions that have arrived, and how long commands were held, us; 0: that is not known.
    pub fn arrived(&self) -> impl Iterator<Item = (u16, u64)> {
        let moves = self.moves.iter();
        moves
            .filter(|(_, followed)| followed.end == Some(Ok(())))
            .map(|(partition, followed)| (*partition, followed.hold_us))
    }

    /// Whether all have ended.
    pub fn is_over(&self) -> bool {
        self.moves.values().all(|followed| followed.end.is_some())
    }

    /// Whether the source of some move that is done has not said yet how it went.
    pub fn lacks_figures(&self) -> bool {
        self.arrived().any(|(_, hold_us)| hold_us == 0)
    }

    /// A sentence about each that has failed.
    pub fn failures(&self) -> Vec<String> {
        let failed = self.moves.iter().filter_map(|(partition, followed)| {
            let reason = followed.end.as_ref()?.as_ref().err()?;
            let to = place(&followed.to_node, followed.to_shard);
            Some(format!("partition {partition} to {to}: {reason}"))
        });
        failed.collect()
    }

    /// Keys per second and bytes per second of late.
    pub(super) fn rates(&self) -> (u64, u64) {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return (0, 0);
        };
        let ms = u64::try_from((last.0 - first.0).as_millis()).unwrap_or(u64::MAX);
        let per_s = |then: u64, now: u64| {
            let product = now.saturating_sub(then).saturating_mul(1_000);
            product.checked_div(ms).unwrap_or(0)
        };
        (per_s(first.1, last.1), per_s(first.2, last.2))
    }

    /// How long it takes from now on; none while that cannot be said.
    pub(super) fn left(&self) -> Option<Duration> {
        let open = self.moves.values().filter(|f| f.end.is_none());
        let missing: u64 = open
            .map(|followed| followed.expected_bytes.saturating_sub(followed.bytes))
            .sum();
        let (_, bytes_per_s) = self.rates();
        (missing > 0 && bytes_per_s > 0).then(|| Duration::from_secs(missing.div_ceil(bytes_per_s)))
    }

    /// How far it is: a part, and the whole of it.
    pub(super) fn position(&self) -> (u64, u64) {
        let weight = |followed: &Followed| followed.expected_bytes.max(1);
        let part = |followed: &Followed| match followed.end {
            Some(_) => weight(followed),
            None => followed.bytes.min(weight(followed) - 1),
        };
        let moves = self.moves.values();
        (moves.clone().map(part).sum(), moves.map(weight).sum())
    }

    /// How far it is, on one line.
    pub(super) fn progress(&self) -> String {
        let ended = self.count(|end| end.is_some());
        let all = self.moves.len();
        let (keys_per_s, bytes_per_s) = self.rates();
        let mut text = format!(
            "{} of {all} moves done, {} left",
            self.count(|end| matches!(end, Some(Ok(())))),
            all - ended
        );
        let failed = self.count(|end| matches!(end, Some(Err(_))));
        if failed > 0 {
            text += &format!(", {failed} failed");
        }
        text += &format!(", {}, {keys_per_s} keys/s", units::rate(bytes_per_s));
        if let Some(left) = self.left() {
            text += &format!(", {} to go", units::duration(left));
        }
        let mut open = self.moves.values().filter(|f| f.end.is_none());
        if let Some(troubled) = open.find(|followed| !followed.last_error.is_empty()) {
            text += &format!(" ({})", troubled.last_error.replace(char::is_control, "?"));
        }
        text
    }

    /// What was done in all.
    pub(super) fn summary(&self, took: Duration) -> String {
        let done = self.count(|end| matches!(end, Some(Ok(())))) as u64;
        let mut text = format!(
            "{} done in {}: {}, {}",
            units::count(done, "move"),
            units::duration(took),
            units::count(self.keys(), "key"),
            units::bytes(self.bytes())
        );
        let held = self.moves.values().map(|followed| followed.hold_us).max();
        if let Some(us) = held.filter(|us| *us > 0) {
            text += &format!("; commands were held for {} at most", units::short(us));
        }
        text
    }

    fn count(&self, is_so: impl Fn(&Option<Result<(), String>>) -> bool) -> usize {
        let moves = self.moves.values();
        moves.filter(|followed| is_so(&followed.end)).count()
    }

    fn keys(&self) -> u64 {
        self.moves.values().map(|followed| followed.keys).sum()
    }

    fn bytes(&self) -> u64 {
        self.moves.values().map(|followed| followed.bytes).sum()
    }
}

impl Followed {
    fn note(&mut self, row: &MigrationRow) {
        if row.id != self.id {
            (self.id, self.keys, self.bytes) = (row.id, 0, 0);
        }
        // A leader that is new has heard nothing yet.
        self.keys = self.keys.max(row.keys);
        self.bytes = self.bytes.max(row.bytes);
        self.hold_us = self.hold_us.max(row.hold_us);
        self.last_error.clone_from(&row.last_error);
        self.end = match row.state {
            MigrationState::Committed => Some(Ok(())),
            MigrationState::Aborted if !row.will_retry => Some(Err(match row.attempt {
                1 => row.last_error.clone(),
                attempts => format!("{}, after {attempts} attempts", row.last_error),
            })),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests;
