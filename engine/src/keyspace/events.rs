//! Keyspace notifications: what commands and time have done to keys, for whom `notify-keyspace-events` says so.

use ephesus_wire::Database;
use ephesus_wire::database;

use super::{Key, Keyspace};
use crate::command::spec::Cmd;

/// Bytes of events of one turn; more are lost.
const EVENTS_BYTES_MAX: usize = 8 << 20;

/// Longest key of which there are events: clients cannot subscribe to longer names.
const KEY_BYTES_MAX: usize = 900;

/// Which events there are, as `notify-keyspace-events` spells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventClasses(u32);

/// Letters in the order in which Redis spells them, without `A`.
const LETTERS: &[u8] = b"g$lshzxetdnKEm";
/// What `A` stands for.
const ALL: &[u8] = b"g$lshzxetd";

const GENERIC: u8 = b'g';
const STRING: u8 = b'$';
const EXPIRED: u8 = b'x';
const NEW: u8 = b'n';
const MISS: u8 = b'm';

impl EventClasses {
    /// Reads letters; `None` if one of them means nothing.
    #[must_use]
    pub fn parse(letters: &str) -> Option<EventClasses> {
        letters
            .bytes()
            .try_fold(EventClasses(0), |classes, letter| match letter {
                b'A' => Some(
                    ALL.iter()
                        .fold(classes, |classes, letter| classes.with(*letter)),
                ),
                letter if LETTERS.contains(&letter) => Some(classes.with(letter)),
                _ => None,
            })
    }

    fn bit(letter: u8) -> u32 {
        let place = LETTERS.iter().position(|known| *known == letter);
        place.map_or(0, |place| 1 << place)
    }

    fn with(self, letter: u8) -> EventClasses {
        EventClasses(self.0 | Self::bit(letter))
    }

    fn has(self, letter: u8) -> bool {
        self.0 & Self::bit(letter) != 0
    }

    /// Whether there are events of keys, by key and by event.
    #[must_use]
    pub fn channels(self) -> (bool, bool) {
        (self.has(b'K'), self.has(b'E'))
    }

    /// Whether anything is told at all.
    #[must_use]
    pub fn is_on(self) -> bool {
        let (by_key, by_event) = self.channels();
        by_key || by_event
    }

    #[must_use]
    pub fn to_bits(self) -> u32 {
        self.0
    }

    #[must_use]
    pub fn from_bits(bits: u32) -> EventClasses {
        EventClasses(bits)
    }

    /// The letters.
    #[must_use]
    pub fn text(self) -> String {
        let is_all = ALL.iter().all(|letter| self.has(*letter));
        let letters = LETTERS.iter().filter(|letter| self.has(**letter));
        let letters = letters.filter(|letter| !is_all || !ALL.contains(letter));
        let letters = letters.map(|letter| char::from(*letter));
        is_all.then_some('A').into_iter().chain(letters).collect()
    }
}

/// Something that has happened to a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    pub name: &'static str,
    pub database: Database,
    pub key: Box<[u8]>,
}

impl Event {
    fn held_bytes(&self) -> usize {
        size_of::<Event>() + self.key.len()
    }
}

/// What a command did to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has another value; whether it was not there before, and whether it got a time to live.
    Put {
        is_new: bool,
        expires: bool,
    },
    Removed,
    /// It got a time to live, or lost it.
    Expiry {
        expires: bool,
    },
    /// Its time was over.
    Expired,
}

/// Events since they were last taken.
#[derive(Debug, Default)]
pub struct Events {
    classes: EventClasses,
    /// The command that is executed.
    cmd: Option<Cmd>,
    /// It sets a value and leaves the time to live as it was.
    pub(super) keeps_expiry: bool,
    list: Vec<Event>,
    bytes: usize,
}

impl Events {
    #[must_use]
    pub fn new(classes: EventClasses) -> Events {
        Events {
            classes,
            ..Events::default()
        }
    }

    #[must_use]
    pub fn classes(&self) -> EventClasses {
        self.classes
    }

    fn add(&mut self, class: u8, name: &'static str, stored: &[u8]) {
        let (database, key) = database::split(stored);
        let fits = key.len() <= KEY_BYTES_MAX && self.bytes < EVENTS_BYTES_MAX;
        if self.classes.has(class) && fits {
            let event = Event {
                name,
                database,
                key: key.into(),
            };
            self.bytes += event.held_bytes();
            self.list.push(event);
        }
    }

    /// A read has found nothing.
    #[cold]
    pub(super) fn missed(&mut self, key: &[u8]) {
        self.add(MISS, "keymiss", key);
    }

    fn changed(&mut self, key: &[u8], change: Change) {
        match change {
            Change::Put { is_new, expires } => {
                // These remove what is there before, in Redis.
                let replaces = matches!(self.cmd, Some(Cmd::Copy | Cmd::Restore | Cmd::Rename));
                if is_new || replaces {
                    self.add(NEW, "new", key);
                }
                let (class, name) = self.cmd.map_or((STRING, "set"), put_event);
                self.add(class, name, key);
                if expires && name == "set" {
                    self.add(GENERIC, "expire", key);
                }
            }
            Change::Removed => {
                let name = match self.cmd {
                    Some(Cmd::Rename | Cmd::Renamenx) => "rename_from",
                    Some(Cmd::Move) => "move_from",
                    _ => "del",
                };
                self.add(GENERIC, name, key);
            }
            Change::Expiry { expires: true } => self.add(GENERIC, "expire", key),
            Change::Expiry { expires: false } => self.add(GENERIC, "persist", key),
            Change::Expired => self.add(EXPIRED, "expired", key),
        }
    }
}

/// What Redis calls a new value, by the command that has set it.
fn put_event(cmd: Cmd) -> (u8, &'static str) {
    match cmd {
        Cmd::Append => (STRING, "append"),
        Cmd::Setrange => (STRING, "setrange"),
        Cmd::Setbit | Cmd::Bitfield => (STRING, "setbit"),
        Cmd::Incr | Cmd::Incrby | Cmd::Decr | Cmd::Decrby => (STRING, "incrby"),
        Cmd::Incrbyfloat => (STRING, "incrbyfloat"),
        Cmd::Rename | Cmd::Renamenx => (GENERIC, "rename_to"),
        Cmd::Move => (GENERIC, "move_to"),
        Cmd::Copy => (GENERIC, "copy_to"),
        Cmd::Restore => (GENERIC, "restore"),
        _ => (STRING, "set"),
    }
}

impl Keyspace {
    /// Has events of these classes noted from now on.
    pub fn set_events(&mut self, classes: EventClasses) {
        let is_other = self
            .events
            .as_ref()
            .map_or(EventClasses::default(), |e| e.classes)
            != classes;
        if is_other {
            let events = classes.is_on().then(|| Box::new(Events::new(classes)));
            self.events = events;
        }
        self.review_observed();
    }

    /// What was noted since this was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        let Some(events) = &mut self.events else {
            return Vec::new();
        };
        events.bytes = 0;
        std::mem::take(&mut events.list)
    }

    /// How many are noted: [`Keyspace::forget_events`] takes back what comes behind.
    #[must_use]
    pub fn noted_events(&self) -> usize {
        self.events.as_ref().map_or(0, |events| events.list.len())
    }

    /// What was noted behind the first so many has not happened.
    pub fn forget_events(&mut self, kept: usize) {
        if let Some(events) = &mut self.events {
            let kept = kept.min(events.list.len());
            let forgotten = events.list.drain(kept..);
            events.bytes -= forgotten.map(|event| event.held_bytes()).sum::<usize>();
        }
    }

    /// The command that is executed from now on, whose name its events have.
    #[cold]
    pub(super) fn note_command(&mut self, cmd: Cmd) {
        if let Some(events) = &mut self.events {
            events.cmd = Some(cmd);
            events.keeps_expiry = false;
        }
    }

    /// An entry is about to change.
    #[cold]
    pub(super) fn note_change(&mut self, key: &Key<'_>, change: Change) {
        // Nobody's command has changed what has expired.
        let writer = self.tracked.writer.filter(|_| change != Change::Expired);
        self.tracked.changed(&self.hasher, key, writer);
        if let Some(events) = &mut self.events {
            events.changed(key.bytes, change);
        }
    }

    /// An entry is about to get this value.
    #[cold]
    pub(super) fn note_put(&mut self, key: &Key<'_>, expire_at_ms: u64) {
        let is_new = self.events.is_some() && self.entry(key).is_none();
        let keeps = self
            .events
            .as_ref()
            .is_some_and(|events| events.keeps_expiry);
        let expires = expire_at_ms != 0 && !keeps;
        self.note_change(key, Change::Put { is_new, expires });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::tests::tape::{Taped, execute_valid};

    #[test]
    fn events_that_are_taken_back_leave_room_for_others() {
        let mut keyspace = Taped::new(1, 1).keyspace;
        keyspace.set_events(EventClasses::parse("KA").expect("letters"));
        execute_valid(&mut keyspace, &["SET", "before", "v"]);
        let bytes = |keyspace: &Keyspace| keyspace.events.as_ref().map(|events| events.bytes);
        let before = bytes(&keyspace);
        keyspace.begin_atomic(usize::MAX);
        for n in 0..1000 {
            execute_valid(&mut keyspace, &["SET", &n.to_string(), "v"]);
        }
        assert!(bytes(&keyspace) > before);
        keyspace.roll_back_atomic();
        assert_eq!(bytes(&keyspace), before);
        assert_eq!(keyspace.take_events().len(), 1);
    }

    #[test]
    fn letters_are_spelled_as_redis_spells_them() {
        for (letters, text) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Kx", "xK"),
            ("g$lshzxetdE", "AE"),
            ("Elg", "glE"),
            ("KEAnm", "AnKEm"),
        ] {
            let classes = EventClasses::parse(letters).expect(letters);
            assert_eq!(classes.text(), text, "{letters}");
            assert_eq!(EventClasses::from_bits(classes.to_bits()), classes);
        }
        assert_eq!(EventClasses::parse("KEq"), None);
        assert!(!EventClasses::parse("A").expect("letters").is_on());
        assert!(EventClasses::parse("Kx").expect("letters").is_on());
    }
}
