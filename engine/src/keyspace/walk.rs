//! Commands over many keys: SCAN steps, and walks (KEYS, slot counts) that run in slices.

use ephesus_wire::database;
use ephesus_wire::glob::Pattern;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Database, Lsn, PartitionId, Slot, slot::slot_of};

use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::Scan;
use crate::command::slot_stats::{self, SlotStats};
use crate::table::{CURSOR_BITS, EntryRef};

/// Most partitions that one SCAN call crosses, so that a sparse keyspace does not hold the shard.
const PARTITIONS_PER_SCAN: usize = 512;

/// Most keys one SCAN call looks at, whatever its COUNT.
const SCAN_COUNT_MAX: u64 = 2048;

/// Work after which a SCAN call, or a slice of a walk, looks at no more keys: steps of matching, or bytes of keys. The
/// keys that come in one go (see [`crate::table::Table::scan`]) may exceed it.
const WORK_MAX: usize = 128 << 10;

/// Keys that RANDOMKEY draws before it walks: most may have expired, or be of other databases.
const RANDOM_TRIES: usize = 16;

/// Table units (about 32 keys each, fewer large ones) that one slice of a walk visits.
const UNITS_PER_SLICE: usize = 16;

/// Where a SCAN stands: a partition, and the high bits of a hash within it.
///
/// ```text
/// bit 63      62..=CURSOR_BITS       CURSOR_BITS-1..=0
///     0           partition           hash >> (64 - CURSOR_BITS)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCursor {
    pub partition: PartitionId,
    /// Cursor of [`crate::table::Table::scan`].
    pub table: u64,
}

const _: () = assert!(
    CURSOR_BITS + 14 < 64,
    "partition and table cursor fit one number"
);

impl ScanCursor {
    #[must_use]
    pub fn encode(self) -> u64 {
        u64::from(self.partition.0) << CURSOR_BITS | self.table >> (64 - CURSOR_BITS)
    }

    /// The place a client's number stands for; `None` when there is no such partition.
    #[must_use]
    pub fn decode(number: u64, partitions: u16) -> Option<ScanCursor> {
        let partition = number >> CURSOR_BITS;
        let partition = u16::try_from(partition)
            .ok()
            .filter(|&id| id < partitions)?;
        Some(ScanCursor {
            partition: PartitionId(partition),
            table: number << (64 - CURSOR_BITS),
        })
    }
}

/// Whether what a shard answers is a part of what its node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsPart {
    Yes,
    No,
}

/// What a walk selects.
#[derive(Clone, Debug)]
pub enum WalkFilter {
    /// KEYS: keys that match a pattern, which is not longer than patterns may be.
    Matching(Vec<u8>),
    /// CLUSTER GETKEYSINSLOT: up to so many keys of a slot.
    InSlot(Slot, u64),
    /// CLUSTER COUNTKEYSINSLOT.
    CountInSlot(Slot),
    /// CLUSTER SLOT-STATS; whether what is found is a part of what a node answers, for another shard.
    SlotStats(SlotStats, IsPart, Protocol),
    /// FLUSHDB, while other databases have keys: removes all keys.
    Remove,
    /// RANDOMKEY where few keys are one: the first key behind a place that these bits choose.
    Random(u64, Protocol),
}

/// A [`WalkFilter`], ready for use.
enum Selects {
    Matching(Option<Pattern>),
    InSlot(Slot, u64),
    CountInSlot(Slot),
    /// Keys by slot, from the first one on.
    SlotStats(SlotStats, IsPart, Protocol, Box<[u32]>),
    Remove,
    Random(Protocol),
}

/// A command that visits every key of some partitions, a slice per turn.
pub struct Walk {
    database: Database,
    selects: Selects,
    /// What is left, in reverse.
    partitions: Vec<PartitionId>,
    cursor: u64,
    found: u64,
    /// The found keys, as RESP bulk strings.
    bulks: Vec<u8>,
    bytes_max: usize,
    is_too_large: bool,
}

impl Walk {
    /// Whether it removes what it finds.
    #[must_use]
    pub fn removes(&self) -> bool {
        matches!(self.selects, Selects::Remove)
    }

    /// Bytes that are held for what was found.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bulks.capacity()
    }

    /// The reply, once the walk is complete.
    ///
    /// # Errors
    /// [`ClientError::ReplyTooLarge`].
    pub fn finish(self) -> Result<Vec<u8>, ClientError> {
        if self.is_too_large {
            return Err(ClientError::ReplyTooLarge(self.bytes_max));
        }
        let mut header = Vec::new();
        Ok(match self.selects {
            Selects::CountInSlot(_) => {
                reply::integer(&mut header, self.found as i64);
                header
            }
            Selects::Remove => reply::OK.to_vec(),
            Selects::Random(protocol) if self.found == 0 => {
                reply::null(&mut header, protocol);
                header
            }
            Selects::Random(_) | Selects::SlotStats(..) => self.bulks,
            Selects::Matching(_) | Selects::InSlot(..) => {
                reply::array(&mut header, self.found as usize);
                let mut bytes = self.bulks;
                bytes.splice(0..0, header);
                bytes
            }
        })
    }
}

/// Whether a key matches; adds what it takes to find out.
fn matches(pattern: Option<&Pattern>, key: &[u8], work: &mut usize) -> bool {
    pattern.is_some_and(|pattern| {
        *work += pattern.cost(key.len());
        pattern.matches(key)
    })
}

impl Keyspace {
    /// Begins a walk over what is here of a database's keys that `filter` asks for; what it finds may take `bytes_max`
    /// bytes.
    #[must_use]
    pub fn walk(&self, database: Database, filter: &WalkFilter, bytes_max: usize) -> Walk {
        let of_slot = |slot| {
            let partition = self.partitioning.partition_of(slot);
            self.owns(partition).then_some(partition)
        };
        let (selects, mut partitions): (_, Vec<PartitionId>) = match *filter {
            WalkFilter::Matching(ref pattern) => {
                let selects = Selects::Matching(Pattern::new(pattern));
                (selects, self.owned.clone())
            }
            WalkFilter::InSlot(slot, most) => {
                let selects = Selects::InSlot(slot, most);
                (selects, of_slot(slot).into_iter().collect())
            }
            WalkFilter::CountInSlot(slot) => {
                let selects = Selects::CountInSlot(slot);
                (selects, of_slot(slot).into_iter().collect())
            }
            WalkFilter::SlotStats(asked, is_part, protocol) => {
                let (first, last) = asked.slots();
                let counts = vec![0; usize::from(last - first) + 1];
                let partition = |slot| self.partitioning.partition_of(Slot(slot));
                let within = partition(first)..=partition(last);
                let within = self.owned.iter().filter(|id| within.contains(id));
                let selects = Selects::SlotStats(asked, is_part, protocol, counts.into());
                (selects, within.copied().collect())
            }
            WalkFilter::Remove => (Selects::Remove, self.owned.clone()),
            WalkFilter::Random(random, protocol) => {
                let mut partitions = self.with_keys_of(database);
                let len = partitions.len().max(1) as u64;
                partitions.rotate_left((random % len) as usize);
                // What lies in front of the place comes last.
                partitions.extend(partitions.first().copied());
                (Selects::Random(protocol), partitions)
            }
        };
        let cursor = match *filter {
            WalkFilter::Random(random, _) => random,
            _ => 0,
        };
        partitions.reverse();
        Walk {
            database,
            selects,
            partitions,
            cursor,
            found: 0,
            bulks: Vec::new(),
            bytes_max,
            is_too_large: false,
        }
    }

    /// Visits the next keys; answers the LSN to wait for once the walk is complete.
    pub fn walk_slice(&mut self, walk: &mut Walk) -> Option<Lsn> {
        let now_ms = self.now_ms;
        let (mut work, mut removed) = (0, Vec::new());
        for _ in 0..UNITS_PER_SLICE {
            let Some(&id) = walk.partitions.last() else {
                self.write_slot_stats(walk);
                if walk.removes() {
                    self.invalidate_all();
                }
                return Some(self.log.appended());
            };
            let is_of_slot = matches!(walk.selects, Selects::InSlot(..) | Selects::CountInSlot(_));
            if is_of_slot && !self.owns(id) {
                // The slot has left: some of its keys are no answer.
                walk.found = 0;
                walk.bulks.clear();
            }
            if matches!(walk.selects, Selects::Remove) && self.owns(id) && !self.may_expire(id) {
                // It is being decided where the partition goes on.
                return None;
            }
            let Walk {
                database,
                selects,
                found,
                bulks,
                ..
            } = walk;
            let next = self.served(id).map_or(0, |partition| {
                partition.table.scan(walk.cursor, &mut |hash, entry| {
                    let (here, key) = database::split(entry.key);
                    if entry.expire_at_ms != 0 && entry.expire_at_ms <= now_ms {
                        return;
                    }
                    // Slots are those of all databases.
                    if let Selects::SlotStats(asked, _, _, counts) = selects {
                        let place = slot_of(entry.key).0.checked_sub(asked.slots().0);
                        let count = place.and_then(|place| counts.get_mut(usize::from(place)));
                        if let Some(count) = count {
                            *count += 1;
                        }
                        return;
                    }
                    if here != *database {
                        return;
                    }
                    let selected = match selects {
                        Selects::Matching(pattern) => matches(pattern.as_ref(), key, &mut work),
                        Selects::InSlot(slot, most) => {
                            *found < *most && slot_of(entry.key) == *slot
                        }
                        Selects::CountInSlot(slot) => slot_of(entry.key) == *slot,
                        Selects::Random(_) => *found == 0,
                        Selects::SlotStats(..) => false,
                        Selects::Remove => {
                            work += entry.key.len();
                            removed.push((hash, entry.key.to_vec()));
                            false
                        }
                    };
                    if selected {
                        *found += 1;
                        if !matches!(selects, Selects::CountInSlot(_)) {
                            reply::bulk(bulks, key);
                        }
                    }
                })
            });
            for (hash, bytes) in removed.drain(..) {
                let (bytes, partition) = (&bytes, id);
                let key = Key {
                    bytes,
                    hash,
                    partition,
                };
                self.delete_without_event(&key);
            }
            walk.cursor = next;
            if next == 0 {
                walk.partitions.pop();
            }
            let most = match walk.selects {
                Selects::InSlot(_, most) => most,
                Selects::Random(_) => 1,
                _ => u64::MAX,
            };
            if walk.found >= most {
                walk.partitions.clear();
            }
            if walk.bulks.len() > walk.bytes_max {
                walk.is_too_large = true;
                walk.bulks = Vec::new();
                walk.partitions.clear();
            }
            if work > WORK_MAX {
                break;
            }
        }
        None
    }

    /// Writes what a walk has counted by slot.
    fn write_slot_stats(&self, walk: &mut Walk) {
        let Selects::SlotStats(asked, is_part, protocol, keys) = &walk.selects else {
            return;
        };
        let mut rows = self.slot_rows(asked.slots().0, keys);
        asked.arrange(&mut rows);
        // Without room for it, it is written again.
        walk.bulks.clear();
        match is_part {
            IsPart::Yes => slot_stats::write_part(&mut walk.bulks, &rows),
            IsPart::No => slot_stats::write(&mut walk.bulks, *protocol, &rows, self.counts_slots()),
        }
        walk.is_too_large = walk.bulks.len() > walk.bytes_max;
    }

    /// One SCAN call from `at`, which is in a partition of this shard.
    ///
    /// `next` names the partition to go on with after one that is complete; it ends with `None`.
    pub fn scan(
        &mut self,
        (database, at): (Database, ScanCursor),
        scan: &Scan<'_>,
        next: &dyn Fn(&Keyspace, PartitionId) -> Option<PartitionId>,
        reply: &mut Reply<'_>,
    ) {
        let now_ms = self.now_ms;
        let wanted = scan.count.min(SCAN_COUNT_MAX);
        let wrong_type = scan
            .type_name
            .is_some_and(|name| !name.eq_ignore_ascii_case(b"string"));
        let mut bulks = Vec::new();
        let (mut seen, mut found, mut work) = (0, 0, 0);
        let mut at = Some(at);
        for _ in 0..PARTITIONS_PER_SCAN {
            let Some(place) = at else { break };
            let Some(partition) = self.served(place.partition) else {
                break;
            };
            let mut cursor = place.table;
            loop {
                cursor = partition.table.scan(cursor, &mut |_, entry| {
                    seen += 1;
                    let live = entry.expire_at_ms == 0 || entry.expire_at_ms > now_ms;
                    work += entry.key.len();
                    let pattern = scan.pattern.as_ref();
                    let (here, key) = database::split(entry.key);
                    if live
                        && here == database
                        && !wrong_type
                        && (pattern.is_none() || matches(pattern, key, &mut work))
                    {
                        found += 1;
                        reply::bulk(&mut bulks, key);
                    }
                });
                if cursor == 0 || seen >= wanted || work > WORK_MAX {
                    break;
                }
            }
            at = if cursor == 0 {
                next(self, place.partition).map(|partition| ScanCursor {
                    partition,
                    table: 0,
                })
            } else {
                Some(ScanCursor {
                    partition: place.partition,
                    table: cursor,
                })
            };
            if seen >= wanted || work > WORK_MAX {
                break;
            }
        }
        reply.wait_for(self.log.appended());
        reply::array(reply.out, 2);
        let mut digits = [0; reply::INTEGER_BYTES_MAX];
        let cursor = at.map_or(0, ScanCursor::encode);
        reply::bulk(reply.out, reply::decimal(&mut digits, cursor as i64));
        reply::array(reply.out, found);
        reply.out.extend_from_slice(&bulks);
    }

    /// RANDOMKEY of this shard, drawn by `rng` (64 random bits): a key, none as there is none, or the walk that finds one
    /// if there is any.
    #[must_use]
    pub fn random_key(&self, database: Database, rng: u64) -> Drawn {
        let keys = self.of_database(database).keys as u64;
        if keys == 0 {
            return Drawn::Nothing;
        }
        let mut random = rng;
        for _ in 0..RANDOM_TRIES {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let mut nth = (random >> 11) % keys;
            let partition = self.all_served().find(|partition| {
                let len = partition.table.of_database(database).keys as u64;
                let here = nth < len;
                if !here {
                    nth -= len;
                }
                here
            });
            let entry = partition.and_then(|copy| copy.table.random(random.rotate_left(32)));
            if let Some(key) = entry.and_then(|entry| self.live_key(database, entry)) {
                return Drawn::Key(key.to_vec());
            }
        }
        Drawn::Seldom
    }

    /// The key of an entry if it is of that database and has not expired.
    fn live_key<'a>(&self, database: Database, entry: EntryRef<'a>) -> Option<&'a [u8]> {
        let is_live = entry.expire_at_ms == 0 || entry.expire_at_ms > self.now_ms;
        let (here, key) = database::split(entry.key);
        (is_live && here == database).then_some(key)
    }

    /// The partitions that have keys of a database, ascending.
    fn with_keys_of(&self, database: Database) -> Vec<PartitionId> {
        let served = self.all_served();
        let with_keys = served.filter(|copy| copy.table.of_database(database).keys > 0);
        with_keys.map(|copy| copy.id).collect()
    }
}

/// What [`Keyspace::random_key`] has drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// The database has no keys here.
    Nothing,
    Key(Vec<u8>),
    /// Only others, or keys that have expired.
    Seldom,
}
