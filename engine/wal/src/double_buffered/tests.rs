use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultDisk;
use crate::disk::std::StdDisk;
use crate::options::Durability;
use ephesus_wire::rng::Rng;

const NAME: &str = "value";

fn found(disk: &FaultDisk) -> Found {
    block_on(read(disk, NAME)).expect("it can be read")
}

/// A file whose value is the second one.
fn written(value: &[u8]) -> (FaultDisk, DoubleBuffered<FaultDisk>) {
    let disk = FaultDisk::new(1);
    let mut file = block_on(DoubleBuffered::create(disk.clone(), NAME, b"before")).expect("made");
    block_on(file.write(value)).expect("written");
    (disk, file)
}

#[test]
fn the_format_stays_as_it_is() {
    let (disk, _) = written(b"later");
    let file = disk.contents(NAME).expect("it is there");
    let mut slot = b"TWIN".to_vec();
    slot.extend_from_slice(&[0; 4]);
    slot.extend_from_slice(&4096u32.to_le_bytes());
    slot.extend_from_slice(&5u32.to_le_bytes());
    slot.extend_from_slice(&1u64.to_le_bytes());
    slot.extend_from_slice(b"later");
    let crc32 = crc32fast::hash(&slot[8..]);
    slot[4..8].copy_from_slice(&crc32.to_le_bytes());
    slot.resize(4096, 0);
    assert_eq!(file, [slot.clone(), slot].concat());
}

#[test]
fn a_value_that_outgrows_its_slot_gets_a_larger_one() {
    let (disk, mut file) = written(b"small");
    let small = disk.contents(NAME).expect("it is there").len();
    for len in [4072, 4073, 1, 70_000, 100_000, 0] {
        let value = vec![7; len];
        block_on(file.write(&value)).expect("written");
        assert_eq!(found(&disk), Found::Whole(value));
    }
    let large = disk.contents(NAME).expect("it is there").len();
    assert_eq!((small, large), (2 * 4096, 2 * align_up(140_000)));
    assert_eq!(block_on(disk.list()).expect("listed"), [NAME]);
}

#[test]
fn no_damage_of_one_slot_changes_the_value() {
    let value = vec![3; 300];
    let (disk, _) = written(&value);
    let file = disk.contents(NAME).expect("it is there");
    let slot_bytes = file.len() / 2;
    for slot in [0, slot_bytes] {
        for bit in 0..(HEADER_BYTES + value.len()) * 8 {
            let mut bad = file.clone();
            bad[slot + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), Found::Half(value.clone()), "{slot}, {bit}");
            // The same place in the other slot as well.
            bad[slot_bytes - slot + bit / 8] ^= 1 << (bit % 8);
            let both = decode(&bad);
            let is_found = match both {
                Found::Damaged => true,
                // Whoever reads these bytes takes them for something else, and finds that they are not.
                Found::Other(_) => bit / 8 < MAGIC.len(),
                Found::Whole(_) | Found::Half(_) => false,
            };
            assert!(is_found, "{slot}, {bit}: {both:?}");
        }
        let mut wiped = file.clone();
        wiped[slot..slot + slot_bytes].fill(0);
        assert_eq!(decode(&wiped), Found::Half(value.clone()));
    }
}

#[test]
fn a_file_that_was_cut_is_refused() {
    let (disk, _) = written(&[3; 5_000]);
    let file = disk.contents(NAME).expect("it is there");
    for len in (MAGIC.len()..file.len()).step_by(64) {
        assert_eq!(decode(&file[..len]), Found::Damaged, "{len} bytes");
    }
    for other in [&b""[..], b"T", b"LAYO and so on", &[0; 8192]] {
        assert_eq!(decode(other), Found::Other(other.to_vec()));
    }
}

#[test]
fn the_later_of_two_writes_counts() {
    let (first, second) = (slot(4096, 8, b"eight"), slot(4096, 7, b"seven"));
    let eight = Found::Half(b"eight".to_vec());
    assert_eq!(decode(&[&first[..], &second[..]].concat()), eight);
    assert_eq!(decode(&[&second[..], &first[..]].concat()), eight);
}

#[test]
fn nothing_is_written_after_a_failure() {
    let (disk, mut file) = written(b"a");
    disk.fail_write(1);
    let failed = block_on(file.write(b"b"));
    assert!(matches!(failed, Err(WalError::Io { .. })), "{failed:?}");
    let again = block_on(file.write(b"c"));
    assert!(matches!(again, Err(WalError::Poisoned)), "{again:?}");
    assert_eq!(found(&disk), Found::Half(b"b".to_vec()));
}

#[test]
fn it_works_on_a_real_file_system() {
    let dir = tempfile::tempdir().expect("temp dir");
    let disk = StdDisk::new(dir.path(), Durability::Strict).expect("a disk");
    std::fs::write(dir.path().join(NAME), "of another form").expect("written");
    std::fs::write(dir.path().join("value.new"), "of a crash").expect("written");
    let now = || block_on(read(&disk, NAME)).expect("it can be read");
    assert_eq!(now(), Found::Other(b"of another form".to_vec()));
    let mut file = block_on(DoubleBuffered::create(disk.clone(), NAME, b"1")).expect("made");
    assert_eq!(now(), Found::Whole(b"1".to_vec()));
    for len in [10, 4_090, 30_000, 2] {
        block_on(file.write(&vec![9; len])).expect("written");
        assert_eq!(now(), Found::Whole(vec![9; len]));
    }
}

/// What whoever uses a file could do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    Planted(Bug),
    /// What was found counts at once.
    AsFound,
}

/// Lives of a value on a disk that loses power at random operations, is killed, and rots.
struct World {
    disk: FaultDisk,
    rng: Rng,
    mistake: Option<Mistake>,
    /// What has to be found; none: nothing has counted yet.
    counts: Option<Vec<u8>>,
    /// What may be found besides: written since, in this life or in earlier ones that counted nothing.
    under_way: Vec<Vec<u8>>,
    written: u32,
    halves: u32,
}

impl World {
    fn find(&mut self) -> Result<Option<Vec<u8>>, String> {
        let value = match block_on(read(&self.disk, NAME)) {
            Ok(Found::Whole(value)) => Some(value),
            Ok(Found::Half(value)) => {
                self.halves += 1;
                Some(value)
            }
            Ok(other) => return Err(format!("{other:?} was found")),
            Err(WalError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                None
            }
            Err(error) => return Err(error.to_string()),
        };
        let is_under_way = |value: &Vec<u8>| self.under_way.contains(value);
        if value != self.counts && !value.as_ref().is_some_and(is_under_way) {
            let len = value.map_or(0, |value| value.len());
            return Err(format!("{len} bytes are another value"));
        }
        Ok(value)
    }

    fn count(&mut self, value: Option<Vec<u8>>) {
        self.counts = value;
        self.under_way.clear();
    }

    fn next_value(&mut self) -> Vec<u8> {
        self.written += 1;
        let len = match self.rng.below(12) {
            0 => self.rng.below(40_000),
            1..3 => self.rng.below(9_000),
            _ => 4_000 + self.rng.below(200),
        };
        let mut value = vec![self.written as u8; len as usize];
        value.extend_from_slice(&self.written.to_le_bytes());
        value
    }

    /// One life, up to a failure; its end is a power loss or the death of the process.
    fn live(&mut self) -> Result<(), String> {
        let found = self.find()?;
        if self.mistake == Some(Mistake::AsFound) && found.is_some() {
            self.count(found.clone());
            if self.rng.below(2) == 0 {
                return Ok(());
            }
        }
        let first = match found {
            Some(value) => value,
            None => self.next_value(),
        };
        let faults = 4 + self.rng.below(40);
        self.disk.fail_after(self.rng.below(faults));
        self.under_way.push(first.clone());
        let Ok(mut file) = block_on(DoubleBuffered::create(self.disk.clone(), NAME, &first)) else {
            return Ok(());
        };
        if let Some(Mistake::Planted(bug)) = self.mistake {
            file.bug = Some(bug);
        }
        self.count(Some(first));
        for _ in 0..self.rng.below(12) {
            let next = self.next_value();
            self.under_way.push(next.clone());
            if block_on(file.write(&next)).is_err() {
                return Ok(());
            }
            self.count(Some(next));
        }
        if self.rng.below(3) == 0 {
            self.rot();
        }
        Ok(())
    }

    /// Damages one of two slots.
    fn rot(&mut self) {
        let slot_bytes = self.disk.contents(NAME).expect("it is there").len() as u64 / 2;
        let slot = self.rng.below(2) * slot_bytes;
        for _ in 0..=self.rng.below(20) {
            let place = slot + self.rng.below(slot_bytes.min(5_000));
            self.disk.flip_bit(NAME, place, self.rng.below(8) as u8);
        }
    }
}

/// How many crashes had cut a write short, or the violation.
fn run(seed: u64, mistake: Option<Mistake>) -> Result<u32, String> {
    let mut world = World {
        disk: FaultDisk::new(seed),
        rng: Rng::new(seed),
        mistake,
        counts: None,
        under_way: Vec::new(),
        written: 0,
        halves: 0,
    };
    for _ in 0..8 {
        world.live()?;
        match world.rng.below(3) {
            0 => world.disk.kill(),
            _ => world.disk.crash(),
        }
    }
    world.find()?;
    Ok(world.halves)
}

#[test]
fn what_counts_is_found_after_any_crash() {
    let mut halves = 0;
    for seed in 1..=1_500 {
        match run(seed, None) {
            Ok(more) => halves += more,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(halves >= 500, "only {halves} writes were cut short");
    assert_eq!(run(7, None), run(7, None));
}

#[test]
fn mistakes_are_caught() {
    let mistakes = [
        Mistake::Planted(Bug::OneTwin),
        Mistake::Planted(Bug::TwinsTogether),
        Mistake::AsFound,
    ];
    for mistake in mistakes {
        let caught = (1..=1_500).find(|seed| run(*seed, Some(mistake)).is_err());
        assert!(caught.is_some(), "{mistake:?} is not caught");
    }
}

#[test]
fn a_value_for_which_there_is_no_room_can_be_written_later() {
    let disk = crate::disk::small::SmallDisk::new(1 << 20);
    let made = block_on(DoubleBuffered::create(disk.clone(), "value", b"small"));
    let mut file = made.expect("room");
    disk.resize(0);
    let large = vec![7; 9_000];
    let refused = block_on(file.write(&large)).expect_err("no room");
    assert!(refused.is_out_of_space(), "{refused}");
    let read_back = || block_on(read(&disk, "value")).expect("read");
    assert_eq!(read_back(), Found::Whole(b"small".to_vec()));
    block_on(file.write(b"other")).expect("it has its place");
    assert_eq!(read_back(), Found::Whole(b"other".to_vec()));
    disk.resize(1 << 20);
    block_on(file.write(&large)).expect("room again");
    assert_eq!(read_back(), Found::Whole(large));
}

#[test]
fn a_write_that_has_failed_once_is_tried_again_and_a_crash_meanwhile_costs_no_value() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        let made = || {
            let disk = FaultDisk::new(3).dsync(durability == Durability::Strict);
            let making = DoubleBuffered::create_on(disk.clone(), NAME, b"before", durability);
            (disk, block_on(making).expect("made"))
        };
        // In its place, and with larger slots.
        for value in [vec![1; 20], vec![1; 5_000]] {
            let codes = [libc::EMFILE, libc::ENOSPC, libc::EDQUOT, libc::EINTR];
            for (code, failing) in codes
                .into_iter()
                .flat_map(|code| (0..12).map(move |n| (code, n)))
            {
                let context = format!("{durability:?}, {} B, {code} at {failing}", value.len());
                let (disk, mut file) = made();
                disk.fail_once(failing, code);
                let written = match block_on(file.write(&value)) {
                    Err(error) if error.passes() => block_on(file.write(&value)),
                    other => other,
                };
                match written {
                    Ok(()) => {
                        disk.crash();
                        assert_eq!(found(&disk), Found::Whole(value.clone()), "{context}");
                    }
                    Err(error) => {
                        assert!(
                            matches!(error, WalError::Unsynced { .. }),
                            "{context}: {error}"
                        );
                    }
                }
                for crash in 0..12 {
                    let (disk, mut file) = made();
                    disk.fail_once(failing, code);
                    disk.fail_after(crash);
                    for _ in 0..2 {
                        let _ = block_on(file.write(&value));
                    }
                    disk.crash();
                    let found = found(&disk);
                    let is_one = |wanted: &[u8]| matches!(&found, Found::Whole(value) | Found::Half(value) if value == wanted);
                    assert!(
                        is_one(b"before") || is_one(&value),
                        "{context}, {crash}: {found:?}"
                    );
                }
            }
        }
    }
}
