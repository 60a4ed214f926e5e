//! A bit flips in the files of a log that has had some lives: its recovery refuses and says where,
//! or cuts a tail for which no other group vouches, or finds everything.
//!
//! A group vouches for what it calls durable, and for where it says that an earlier incarnation
//! ended. Acknowledged records for which nothing vouches are those since the group before the last
//! one, until a mark comes or the log is opened again: a bad group among them looks like a torn write.

use super::*;
use crate::disk::Disk;
use crate::group::{GroupHeader, HEADER_BYTES, Place, decode_group};
use crate::recover::Recovered;
use crate::verify::verify;

const FLIPS_PER_LOG: u64 = 6;

/// More operations than any life has.
const NEVER: u64 = 1 << 40;

/// A good group of a segment file.
#[derive(Clone, Copy, Debug)]
struct Written {
    segment: SegmentId,
    offset: u64,
    header: GroupHeader,
}

impl Written {
    fn contains(&self, segment: SegmentId, offset: u64) -> bool {
        let end = self.offset + self.header.disk_bytes();
        self.segment == segment && (self.offset..end).contains(&offset)
    }

    /// Whether this group says that `other` was durable.
    fn vouches_for(&self, other: &Written) -> bool {
        let first_lsn = other.header.first_lsn;
        if self.header.incarnation == other.header.incarnation {
            self.header.durable_lsn >= first_lsn
        } else {
            self.header.incarnation > other.header.incarnation && self.header.prev_end >= first_lsn
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Flip {
    segment: SegmentId,
    offset: u64,
    bit: u8,
    /// The group whose header or records the bit belongs to.
    hit: Option<Written>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcomes {
    refused: u64,
    /// A tail was cut that held no record.
    cut_nothing: u64,
    /// A tail was cut that held records for which no group vouched.
    cut_records: u64,
    unharmed: u64,
    /// Of them, flips of padding, of unused space and of groups that do not count any more.
    ignored: u64,
}

/// The good groups of all segment files, in order.
fn written(disk: &FaultDisk, opts: &LogOptions) -> Vec<Written> {
    let names = block_on(disk.list()).expect("no failures");
    let mut found = Vec::new();
    for segment in names
        .iter()
        .filter_map(|name| SegmentId::from_file_name(name))
    {
        let bytes = disk.contents(&segment.file_name()).expect("listed");
        let place = Place {
            log_id: opts.log_id,
            segment: Some(segment),
        };
        let mut offset = 0;
        while offset < bytes.len() as u64 {
            match decode_group(&bytes[offset as usize..], place) {
                Ok(group) => {
                    let header = group.header;
                    found.push(Written {
                        segment,
                        offset,
                        header,
                    });
                    offset += header.disk_bytes();
                }
                Err(_) => offset += 4096,
            }
        }
    }
    found
}

/// A bit of a header, of records or of padding, often near the end; sometimes of any byte.
fn random_flip(disk: &FaultDisk, groups: &[Written], rng: &mut Rng) -> Flip {
    let last = groups.len() as u64 - 1;
    let at = match rng.below(4) {
        0 => last - rng.below(3).min(last),
        _ => rng.below(last + 1),
    };
    let Written {
        segment,
        offset,
        header,
    } = groups[at as usize];
    let (head, body) = (HEADER_BYTES as u64, u64::from(header.byte_len));
    let offset = match rng.below(8) {
        0..=2 => offset + rng.below(head),
        3..=5 if body > head => offset + head + rng.below(body - head),
        6 if header.disk_bytes() > body => offset + body + rng.below(header.disk_bytes() - body),
        _ => {
            let file = disk.contents(&segment.file_name()).expect("listed");
            rng.below(file.len() as u64)
        }
    };
    let hit = groups.iter().find(|group| group.contains(segment, offset));
    let counts = |group: &&Written| offset - group.offset < u64::from(group.header.byte_len);
    Flip {
        segment,
        offset,
        bit: rng.below(8) as u8,
        hit: hit.filter(counts).copied(),
    }
}

fn read_back(disk: &FaultDisk, opts: &LogOptions) -> Result<(Records, Recovered), WalError> {
    let mut found = Records::new();
    let recovered = block_on(recover(disk, opts, Lsn::ZERO, &mut |lsn, record| {
        found.insert(lsn.0, record.to_vec());
        Ok(())
    }))?;
    Ok((found, recovered))
}

/// Whether this is where `hit` is, or where it would have been if a segment had not been full.
fn is_place_of(hit: &Written, file: &str, offset: u64, groups: &[Written]) -> bool {
    let before = groups
        .iter()
        .take_while(|group| group.segment < hit.segment)
        .last();
    let is_end = |group: &Written| {
        let end = group.offset + group.header.disk_bytes();
        hit.offset == 0 && (group.segment.file_name().as_str(), end) == (file, offset)
    };
    (hit.segment.file_name().as_str(), hit.offset) == (file, offset) || before.is_some_and(is_end)
}

/// Takes out what lies before `whole` and was given up: its segments come back, until they are
/// removed, when the only group is bad that says they were given back.
fn drop_given_up(found: &mut Records, whole: &Records, model: &Model) -> Result<(), String> {
    let first = whole.keys().next().copied().unwrap_or(u64::MAX);
    let rest = found.split_off(&first);
    let older = std::mem::replace(found, rest);
    match older.keys().next_back() {
        Some(lsn) if *lsn >= model.given_up => Err(format!("record {lsn} was discarded")),
        _ => Ok(()),
    }
}

/// Checks what a recovery makes of a flipped bit; `whole` is what it found without.
fn judge(
    flip: &Flip,
    groups: &[Written],
    whole: &Records,
    result: &Result<(Records, Recovered), WalError>,
    outcomes: &mut Outcomes,
) -> Result<(), String> {
    let (found, recovered) = match (result, &flip.hit) {
        (Ok(result), _) => result,
        (Err(error), None) => return Err(format!("refused for nothing: {error}")),
        (Err(WalError::Damage { file, offset, .. }), Some(hit)) => {
            outcomes.refused += 1;
            return if is_place_of(hit, file, *offset, groups) {
                Ok(())
            } else {
                Err(format!("{file} at {offset} is named"))
            };
        }
        (Err(other), _) => return Err(format!("refused with another error: {other}")),
    };
    if found == whole {
        outcomes.unharmed += 1;
        match (&flip.hit, recovered.torn) {
            (None, _) => outcomes.ignored += 1,
            (Some(hit), Some(torn)) if (torn.segment, torn.offset) == (hit.segment, hit.offset) => {
                outcomes.cut_nothing += 1;
            }
            _ => {}
        }
        return Ok(());
    }
    let Some(hit) = &flip.hit else {
        return Err("a bit that belongs to no group has changed what is found".into());
    };
    let first_lsn = hit.header.first_lsn;
    let is_hit = |group: &&Written| (group.segment, group.offset) == (hit.segment, hit.offset);
    let mut others = groups.iter().filter(|group| !is_hit(group));
    if let Some(witness) = others.find(|group| group.vouches_for(hit)) {
        return Err(format!("records are gone for which {witness:?} vouches"));
    }
    if !found.iter().eq(whole.range(..first_lsn)) {
        let ends =
            |records: &Records| (records.keys().min().copied(), records.keys().max().copied());
        let (there, left) = (ends(whole), ends(found));
        return Err(format!(
            "of LSNs {there:?} {left:?} are left, not those before {first_lsn}"
        ));
    }
    // Without its magic or its segment's number a group looks like what the file held before.
    let looks_old = matches!(flip.offset - hit.offset, 0..8 | 40..48);
    if !looks_old && recovered.torn.is_none_or(|torn| torn.lsn.0 != first_lsn) {
        return Err(format!("cut without a word: {:?}", recovered.torn));
    }
    outcomes.cut_records += 1;
    Ok(())
}

/// Some lives; every odd seed's last one ends as an idle log does, with a mark behind everything.
fn live(
    seed: u64,
    disk: &FaultDisk,
    opts: &LogOptions,
    rng: &mut Rng,
    model: &mut Model,
) -> Result<(), String> {
    let lives = 1 + rng.below(3);
    for life in 1..=lives {
        let settles = life == lives && !seed.is_multiple_of(2);
        let mut alive = reopen(disk, opts, rng, model)?;
        if settles {
            disk.fail_after(NEVER);
        } else {
            set_fault(disk, rng, 120);
        }
        let mut end = Ok(());
        for _ in 0..rng.below(200) {
            end = alive.step(rng, model);
            if end.is_err() {
                break;
            }
        }
        if settles && end.is_ok() {
            end = alive.settle(rng, model);
        }
        match end {
            Err(End::Violation(violation)) => return Err(violation),
            Err(End::Failed) if settles => return Err("failed without a fault".into()),
            _ => {}
        }
        end_life(alive, disk, rng, model);
    }
    Ok(())
}

/// Ends a life: what is committed is promised, and what was in flight lands or is lost.
fn end_life(alive: Life, disk: &FaultDisk, rng: &mut Rng, model: &mut Model) {
    model.commit(alive.writer.committed());
    model.promised = alive.writer.committed().0;
    model.durable = alive.writer.durable().0;
    drop(alive);
    die(disk, rng, model);
    // A bad opening tells nothing any more of writes that landed after it.
    disk.land();
}

fn run_flips(seed: u64, bug: Option<Bug>, outcomes: &mut Outcomes) -> Result<(), String> {
    let opts = options(seed, bug);
    let mut rng = Rng::new(seed);
    let disk = FaultDisk::new(seed).dsync(opts.durability == Durability::Strict);
    let mut model = Model::default();
    live(seed, &disk, &opts, &mut rng, &mut model)?;
    let (whole, _) = read_back(&disk, &opts).map_err(|error| error.to_string())?;
    model.check(whole.clone())?;
    let groups = written(&disk, &opts);
    for _ in 0..FLIPS_PER_LOG {
        let flip = random_flip(&disk, &groups, &mut rng);
        let name = flip.segment.file_name();
        disk.flip_bit(&name, flip.offset, flip.bit);
        let mut result = read_back(&disk, &opts);
        if let Ok((found, _)) = &mut result {
            drop_given_up(found, &whole, &model)?;
        }
        let cut_before = outcomes.cut_records;
        judge(&flip, &groups, &whole, &result, outcomes)
            .map_err(|violation| format!("{flip:?}: {violation}"))?;
        if outcomes.cut_records > cut_before && !seed.is_multiple_of(2) {
            return Err(format!("{flip:?}: a marked log has lost records"));
        }
        let report = block_on(verify(&disk, &opts)).map_err(|error| error.to_string())?;
        if report.is_sound() != result.is_ok() {
            return Err(format!("{flip:?}: a check says otherwise: {report:?}"));
        }
        disk.flip_bit(&name, flip.offset, flip.bit);
    }
    let (again, _) = read_back(&disk, &opts).map_err(|error| error.to_string())?;
    if again != whole {
        return Err("recoveries have changed the log".into());
    }
    live_on(&disk, &opts, &mut rng, &mut model, &groups)
}

/// A bit that stays flipped: if recovery goes on, what it has cut never comes back.
fn live_on(
    disk: &FaultDisk,
    opts: &LogOptions,
    rng: &mut Rng,
    model: &mut Model,
    groups: &[Written],
) -> Result<(), String> {
    let flip = random_flip(disk, groups, rng);
    disk.flip_bit(&flip.segment.file_name(), flip.offset, flip.bit);
    let Ok((found, _)) = read_back(disk, opts) else {
        return Ok(());
    };
    let last = found.keys().next_back().copied().unwrap_or(0);
    model.promised = model.promised.min(last);
    model.alive = found;
    // The numbers of unreadable records are given out again.
    model.seen.retain(|lsn| *lsn <= last);
    let mut alive = reopen(disk, opts, rng, model)?;
    disk.fail_after(NEVER);
    for _ in 0..rng.below(100) {
        match alive.step(rng, model) {
            Ok(()) => {}
            Err(End::Failed) => return Err("failed without a fault".into()),
            Err(End::Violation(violation)) => return Err(violation),
        }
    }
    end_life(alive, disk, rng, model);
    let (found, _) = read_back(disk, opts).map_err(|error| format!("{flip:?}, later: {error}"))?;
    let checked = model.check(found);
    checked.map_err(|violation| format!("{flip:?}, later: {violation}"))
}

#[test]
fn a_flipped_bit_is_refused_or_costs_nothing_a_group_vouches_for() {
    let mut outcomes = Outcomes::default();
    for seed in 1..=700 {
        if let Err(violation) = run_flips(seed, None, &mut outcomes) {
            panic!("seed {seed}: {violation}");
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.refused >= 500, "{outcomes:?}");
    assert!(outcomes.cut_nothing >= 50, "{outcomes:?}");
    assert!(outcomes.cut_records >= 50, "{outcomes:?}");
    assert!(outcomes.ignored >= 500, "{outcomes:?}");
}

#[test]
fn flipped_bits_show_holes_that_are_jumped() {
    let caught = (1..=100).any(|seed| {
        let run = || run_flips(seed, Some(Bug::JumpHoles), &mut Outcomes::default());
        matches!(catch_unwind(run), Ok(Err(violation)) if violation.starts_with("Flip"))
    });
    assert!(caught);
}
