//! Valkey's commands that move slots (<https://valkey.io/commands/cluster-migrateslots>), in terms of
//! partitions: what is asked for, and what it is answered with.
//!
//! ```text
//! CLUSTER MIGRATESLOTS SLOTSRANGE first last [first last ...] NODE id [SLOTSRANGE ... NODE id ...]
//! CLUSTER GETSLOTMIGRATIONS      one map for each partition, the newest first
//! CLUSTER CANCELSLOTMIGRATIONS
//! ```
//!
//! Times are not known and said to be 0.

use std::collections::{BTreeMap, BTreeSet};
use std::str;

use ephesus_coordinator::migration::AbortReason;
use ephesus_coordinator::placement::{Move, Place};
use ephesus_coordinator::report::{MigrationRow, MigrationState, MigrationsReport};
use ephesus_coordinator::view::View;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::table::shard_id_hex;
use ephesus_wire::{NodeId, PartitionId, ShardId, Slot, limits};

use crate::command::error::ClientError;
use crate::command::parse::ArgList;
use crate::command::spec::Cmd;

/// Length of a node's id for clients.
const ID_BYTES: usize = 40;

/// Most bytes that name slots and shards in one command: it waits for others' answers.
const ARGUMENT_BYTES_MAX: usize = 64 << 10;

/// Why slots are not moved; worded as Valkey words it where it has the same reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotMigrationError {
    /// Follow the grammar.
    #[error("syntax error")]
    Syntax,
    /// As [`SlotMigrationError::Syntax`].
    #[error("No slot ranges specified")]
    NoRanges,
    /// As [`SlotMigrationError::Syntax`].
    #[error("No end slot for final slot range")]
    NoEnd,
    /// Slots are 0 to 16383.
    #[error("Invalid or out of range slot")]
    Slot,
    /// Name the smaller slot first.
    #[error("Start slot number {0} is greater than end slot number {1}.")]
    Order(u16, u16),
    /// Name each slot once.
    #[error("Slot ranges in migrations overlap")]
    Overlap,
    /// Name a shard by the 40 hex digits that CLUSTER NODES has.
    #[error("Invalid node name: {0}")]
    Name(String),
    /// As [`SlotMigrationError::Name`].
    #[error("Unknown node name: {0}")]
    Unknown(String),
    /// Name another.
    #[error("Target node can not be this node.")]
    Here,
    /// Ask the shard that serves them.
    #[error("Slots are not served by this node.")]
    NotServed,
    /// Wait for its end, or cancel it.
    #[error("I am already migrating slot {0}.")]
    Moving(u16),
    /// Name all slots of the partition.
    #[error(
        "Slots {first} to {last} are partition {partition} and move only together: name all of \
         them for one node"
    )]
    Part {
        /// The partition.
        partition: PartitionId,
        /// Its first slot.
        first: u16,
        /// Its last slot.
        last: u16,
    },
}

/// Slots that are to go to one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Inclusive, in the order in which they were named.
    pub ranges: Vec<(u16, u16)>,
    /// The shard.
    pub to: [u8; ID_BYTES],
}

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// The node.
    pub node: NodeId,
    /// The shard whose port it was; none: the entry port, which is all of them.
    pub shard: Option<ShardId>,
}

impl Here {
    /// Whether a shard is meant with it.
    #[must_use]
    pub fn has(&self, place: Place) -> bool {
        place.node == self.node && self.shard.is_none_or(|shard| shard == place.shard)
    }
}

/// One of the commands, read: what waits to be carried out is no larger than a few times what it may say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotCommand {
    /// CLUSTER MIGRATESLOTS.
    Migrate(Vec<Wanted>),
    /// CLUSTER GETSLOTMIGRATIONS.
    List,
    /// CLUSTER CANCELSLOTMIGRATIONS.
    Cancel,
}

impl SlotCommand {
    /// Reads a request for one of the commands.
    ///
    /// # Errors
    /// [`ClientError::ArgumentTooLong`] or [`ClientError::SlotMigration`].
    pub fn parse<A: ArgList + ?Sized>(cmd: Cmd, args: &A) -> Result<SlotCommand, ClientError> {
        Ok(match cmd {
            Cmd::ClusterMigrateslots => {
                let bytes: usize = (2..args.len()).map(|index| args.arg(index).len() + 1).sum();
                if bytes > ARGUMENT_BYTES_MAX {
                    let what = "a list of slots";
                    return Err(ClientError::ArgumentTooLong(what, ARGUMENT_BYTES_MAX));
                }
                let args: Vec<&[u8]> = (2..args.len()).map(|index| args.arg(index)).collect();
                SlotCommand::Migrate(parse(&args)?)
            }
            Cmd::ClusterCancelslotmigrations => SlotCommand::Cancel,
            _ => SlotCommand::List,
        })
    }
}

/// Reads what follows `CLUSTER MIGRATESLOTS`.
fn parse(args: &[&[u8]]) -> Result<Vec<Wanted>, SlotMigrationError> {
    let mut all = Vec::new();
    let mut rest = args;
    while let Some((word, behind)) = rest.split_first() {
        if !word.eq_ignore_ascii_case(b"slotsrange") {
            return Err(SlotMigrationError::Syntax);
        }
        let is_slot = |arg: &[u8]| arg.iter().all(u8::is_ascii_digit) && !arg.is_empty();
        let count = behind.iter().take_while(|arg| is_slot(arg)).count();
        let (numbers, behind) = behind.split_at(count);
        if numbers.is_empty() {
            return Err(SlotMigrationError::NoRanges);
        }
        let ranges = numbers.chunks(2).map(|pair| match pair {
            [first, last] => range(first, last),
            _ => Err(SlotMigrationError::NoEnd),
        });
        let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        let [word, id, behind @ ..] = behind else {
            return Err(SlotMigrationError::Syntax);
        };
        if !word.eq_ignore_ascii_case(b"node") {
            return Err(SlotMigrationError::Syntax);
        }
        let to = <[u8; ID_BYTES]>::try_from(*id);
        let to = to.map_err(|_| SlotMigrationError::Name(shown(id)))?;
        all.push(Wanted { ranges, to });
        rest = behind;
    }
    Ok(all)
}

fn range(first: &[u8], last: &[u8]) -> Result<(u16, u16), SlotMigrationError> {
    let slot = |digits: &[u8]| {
        let number = str::from_utf8(digits).ok()?.parse::<u16>().ok()?;
        (number < limits::SLOTS).then_some(number)
    };
    match (slot(first), slot(last)) {
        (Some(first), Some(last)) if first > last => Err(SlotMigrationError::Order(first, last)),
        (Some(first), Some(last)) => Ok((first, last)),
        _ => Err(SlotMigrationError::Slot),
    }
}

/// A client's bytes in an error.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..ID_BYTES).unwrap_or(bytes));
    text.replace(char::is_control, "?")
}

/// The moves of partitions that are asked for.
///
/// # Errors
/// [`SlotMigrationError`].
pub fn moves(wanted: &[Wanted], view: &View, here: Here) -> Result<Vec<Move>, SlotMigrationError> {
    let partitioning = view.table.partitioning();
    let partitioning = partitioning.map_err(|_| SlotMigrationError::NotServed)?;
    let shards = shards(view);
    let mut taken = BTreeSet::new();
    let mut moves = Vec::new();
    for Wanted { ranges, to } in wanted {
        let mut slots = BTreeSet::new();
        for slot in ranges.iter().flat_map(|(first, last)| *first..=*last) {
            if !taken.insert(slot) {
                return Err(SlotMigrationError::Overlap);
            }
            slots.insert(slot);
        }
        let place = shards.get(to);
        let to = *place.ok_or_else(|| SlotMigrationError::Unknown(shown(to)))?;
        while let Some(slot) = slots.first().copied() {
            let partition = partitioning.partition_of(Slot(slot));
            let owner = view.table.entry(partition).and_then(|e| e.primary());
            let owner = owner.map(|owner| Place {
                node: owner.node,
                shard: owner.shard,
            });
            if !owner.is_some_and(|owner| here.has(owner)) {
                return Err(SlotMigrationError::NotServed);
            }
            if owner == Some(to) {
                return Err(SlotMigrationError::Here);
            }
            let mut active = view.migrations.active.values();
            if active.any(|migration| migration.partition == partition) {
                return Err(SlotMigrationError::Moving(slot));
            }
            let (first, last) = partitioning.slots_of(partition).into_inner();
            if (first..=last).any(|slot| !slots.remove(&slot)) {
                return Err(SlotMigrationError::Part {
                    partition,
                    first,
                    last,
                });
            }
            moves.push(Move { partition, to });
        }
    }
    Ok(moves)
}

/// Every shard, by its id for clients.
fn shards(view: &View) -> BTreeMap<[u8; ID_BYTES], Place> {
    let places = view.members.iter().flat_map(|(node, member)| {
        let shards = (0..member.shards).map(ShardId);
        shards.map(|shard| Place { node: *node, shard })
    });
    places
        .map(|place| (shard_id_hex(&place.node, place.shard), place))
        .collect()
}

/// One move as `here` has part in it.
struct Job<'a> {
    row: &'a MigrationRow,
    is_export: bool,
    from: Place,
    to: Place,
}

/// The moves that `here` has part in, the newest first.
fn jobs<'a>(report: &'a MigrationsReport, view: &View, here: Here) -> Vec<Job<'a>> {
    let node = |name: &str| {
        let mut members = view.members.iter();
        let found = members.find(|(_, member)| member.name == name);
        found.map(|(id, _)| *id).or_else(|| name.parse().ok())
    };
    let place = |name: &str, shard| {
        let shard = ShardId(shard);
        node(name).map(|node| Place { node, shard })
    };
    let rows = report.migrations.iter().rev();
    rows.filter_map(|row| {
        let from = place(&row.from_node, row.from_shard)?;
        let to = place(&row.to_node, row.to_shard)?;
        let is_export = here.has(from);
        (is_export || here.has(to)).then_some(Job {
            row,
            is_export,
            from,
            to,
        })
    })
    .collect()
}

/// Ids of what moves away from `here`, or is going to.
#[must_use]
pub fn leaving(report: &MigrationsReport, view: &View, here: Here) -> Vec<u64> {
    let jobs = jobs(report, view, here).into_iter();
    let leaving = jobs.filter(|job| {
        let is_active = job.row.state.is_active();
        job.is_export && (is_active || job.row.will_retry)
    });
    leaving.map(|job| job.row.id).collect()
}

/// Appends the reply to `CLUSTER GETSLOTMIGRATIONS`.
pub fn write(
    out: &mut Vec<u8>,
    protocol: Protocol,
    report: &MigrationsReport,
    view: &View,
    here: Here,
) {
    let jobs = jobs(report, view, here);
    reply::array(out, jobs.len());
    for job in jobs {
        job.write(out, protocol, view);
    }
}

impl Job<'_> {
    fn write(&self, out: &mut Vec<u8>, protocol: Protocol, view: &View) {
        let row = self.row;
        let partitioning = view.table.partitioning().ok();
        let partitioning = partitioning.filter(|known| row.partition < known.count());
        let slots = partitioning.map_or_else(String::new, |partitioning| {
            let slots = partitioning.slots_of(PartitionId(row.partition));
            format!("{}-{}", slots.start(), slots.end())
        });
        let id = |place: Place| shard_id_hex(&place.node, place.shard);
        let operation = if self.is_export { "EXPORT" } else { "IMPORT" };
        reply::map(out, protocol, 12);
        let mut text = |name: &str, value: &[u8]| {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value);
        };
        text("name", format!("{:0ID_BYTES$x}", row.id).as_bytes());
        text("operation", operation.as_bytes());
        text("slot_ranges", slots.as_bytes());
        text("target_node", &id(self.to));
        text("source_node", &id(self.from));
        for name in ["create_time", "last_update_time", "last_ack_time"] {
            number(out, name);
        }
        let mut text = |name: &str, value: &str| {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value.as_bytes());
        };
        text("state", self.state());
        text("message", &row.last_error);
        for name in ["cow_size", "remaining_repl_size"] {
            number(out, name);
        }
    }

    /// What Valkey calls such a state.
    fn state(&self) -> &'static str {
        let row = self.row;
        match (row.state, self.is_export) {
            (MigrationState::Waiting | MigrationState::Planned, true) => "waiting-to-snapshot",
            (MigrationState::Waiting | MigrationState::Planned, false) => "waiting-for-ack",
            (MigrationState::Copying, true) => "snapshotting",
            (MigrationState::Copying, false) => "receiving-snapshot",
            (MigrationState::Committed, _) => "success",
            (MigrationState::Aborted, _) => match row.abort_reason {
                Some(AbortReason::Cancelled) => "cancelled",
                _ => "failed",
            },
        }
    }
}

/// A number that is not known here.
fn number(out: &mut Vec<u8>, name: &str) {
    reply::bulk(out, name.as_bytes());
    reply::integer(out, 0);
}

#[cfg(test)]
mod tests;
