//! What a user may do: commands, keys and channels.

use ephesus_wire::glob::Pattern;

use super::denied::Denied;
use crate::command::introspect::key_access;
use crate::command::parse::ArgList;
use crate::command::spec::{Cmd, Spec};

/// Steps, of about a nanosecond, that it may take to compare the keys and channels of one command with a user's patterns:
/// nothing else is executed meanwhile.
pub const STEPS_MAX: usize = 1 << 26;

/// A set of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandSet([u64; Cmd::COUNT.div_ceil(64)]);

#[expect(clippy::indexing_slicing, reason = "there is a bit for each command")]
impl CommandSet {
    const NONE: CommandSet = CommandSet([0; Cmd::COUNT.div_ceil(64)]);
    const ALL: CommandSet = CommandSet([u64::MAX; Cmd::COUNT.div_ceil(64)]);

    fn has(&self, cmd: Cmd) -> bool {
        self.0[cmd as usize / 64] >> (cmd as usize % 64) & 1 != 0
    }

    fn set(&mut self, cmd: Cmd, is_in: bool) {
        let bit = 1 << (cmd as usize % 64);
        let word = &mut self.0[cmd as usize / 64];
        *word = if is_in { *word | bit } else { *word & !bit };
    }
}

/// The commands that a user may send, and the rules that have made them so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Whether that is all there are, and nothing has been taken away.
    are_all: bool,
    /// What the rules begin with.
    begin_with_all: bool,
    allowed: CommandSet,
    /// First arguments with which a command is allowed that is not allowed as a whole.
    first_args: Vec<(Cmd, Box<[u8]>)>,
    /// In order, each as `+get` or `-@write`; those that a later one replaces are gone.
    rules: Vec<Box<[u8]>>,
}

impl Commands {
    /// All, or none.
    #[must_use]
    pub fn new(are_all: bool) -> Commands {
        Commands {
            are_all,
            begin_with_all: are_all,
            allowed: if are_all {
                CommandSet::ALL
            } else {
                CommandSet::NONE
            },
            first_args: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Allows or takes away a command, with its subcommands.
    pub fn change(&mut self, spec: &Spec, is_allowed: bool) {
        self.change_bits(spec, is_allowed);
        self.note_rule(spec.name.as_bytes(), is_allowed);
    }

    /// The same for a category, named without its `@`.
    pub fn change_category(&mut self, category: &str, specs: &[Spec], is_allowed: bool) {
        for spec in specs.iter().flat_map(Spec::all) {
            if spec.is_in(category.as_bytes()) {
                self.change_bits(spec, is_allowed);
            }
        }
        self.note_rule(format!("@{category}").as_bytes(), is_allowed);
    }

    /// Allows a command with that first argument.
    pub fn allow_first_arg(&mut self, spec: &Spec, first: &[u8]) {
        let is_there =
            |(cmd, arg): &(Cmd, Box<[u8]>)| *cmd == spec.cmd && arg.eq_ignore_ascii_case(first);
        if !self.first_args.iter().any(is_there) {
            self.first_args.push((spec.cmd, first.into()));
        }
        self.note_rule(&[spec.name.as_bytes(), b"|", first].concat(), true);
    }

    fn change_bits(&mut self, spec: &Spec, is_allowed: bool) {
        for spec in spec.all() {
            self.allowed.set(spec.cmd, is_allowed);
            self.first_args.retain(|(cmd, _)| *cmd != spec.cmd);
        }
        self.are_all &= is_allowed;
    }

    /// Puts a rule behind the others, of which it replaces those of the same command and its subcommands.
    fn note_rule(&mut self, name: &[u8], is_allowed: bool) {
        let name = name.to_ascii_lowercase();
        self.rules.retain(|rule| {
            let replaced = rule.get(1..).and_then(|rule| rule.strip_prefix(&*name));
            !replaced.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"|"))
        });
        let sign: &[u8] = if is_allowed { b"+" } else { b"-" };
        self.rules.push([sign, &name].concat().into());
    }

    #[must_use]
    pub fn are_all(&self) -> bool {
        self.are_all
    }

    fn allow<A: ArgList + ?Sized>(&self, spec: &Spec, args: &A) -> bool {
        if self.are_all || self.allowed.has(spec.cmd) {
            return true;
        }
        let mut first = self.first_args.iter().filter(|(cmd, _)| *cmd == spec.cmd);
        args.len() > 1 && first.any(|(_, first)| first.eq_ignore_ascii_case(args.arg(1)))
    }

    /// As ACL LIST shows them.
    #[must_use]
    pub fn describe(&self) -> Vec<u8> {
        let begin: &[u8] = if self.begin_with_all {
            b"+@all"
        } else {
            b"-@all"
        };
        let rules = self.rules.iter().map(|rule| &**rule);
        let all: Vec<&[u8]> = std::iter::once(begin).chain(rules).collect();
        all.join(&b' ')
    }

    fn bytes(&self) -> usize {
        let firsts = self.first_args.iter().map(|(_, arg)| arg.len() + 32);
        let rules = self.rules.iter().map(|rule| rule.len() + 16);
        size_of::<Commands>() + firsts.sum::<usize>() + rules.sum::<usize>()
    }
}

/// What happens to a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyAccess {
    pub reads: bool,
    pub writes: bool,
}

impl KeyAccess {
    pub const BOTH: KeyAccess = KeyAccess {
        reads: true,
        writes: true,
    };

    fn covers(self, other: KeyAccess) -> bool {
        (self.reads || !other.reads) && (self.writes || !other.writes)
    }
}

/// Keys of a pattern, and what may be done to them.
#[derive(Clone, Debug)]
pub struct KeyPattern {
    text: Box<[u8]>,
    pattern: Pattern,
    access: KeyAccess,
}

impl KeyPattern {
    fn describe(&self, out: &mut Vec<u8>) {
        let before: &[u8] = match (self.access.reads, self.access.writes) {
            (true, false) => b"%R~",
            (false, true) => b"%W~",
            // Other patterns may stand behind this one, and not behind `~*`.
            _ if *self.text == *b"*" => b"%RW~",
            _ => b"~",
        };
        out.extend_from_slice(before);
        out.extend_from_slice(&self.text);
    }
}

/// What a user may do.
#[derive(Clone, Debug)]
pub struct Permissions {
    pub commands: Commands,
    are_all_keys: bool,
    keys: Vec<KeyPattern>,
    are_all_channels: bool,
    channels: Vec<(Box<[u8]>, Pattern)>,
}

impl Permissions {
    /// Everything, or nothing.
    #[must_use]
    pub fn new(are_all: bool) -> Permissions {
        Permissions {
            commands: Commands::new(are_all),
            are_all_keys: are_all,
            keys: Vec::new(),
            are_all_channels: are_all,
            channels: Vec::new(),
        }
    }

    /// All keys, or none.
    pub fn set_all_keys(&mut self, are_all: bool) {
        self.are_all_keys = are_all;
        self.keys.clear();
    }

    #[must_use]
    pub fn are_all_keys(&self) -> bool {
        self.are_all_keys
    }

    /// Adds the keys of a pattern; what may be done to them is added if they are there.
    pub fn add_keys(&mut self, text: &[u8], pattern: Pattern, access: KeyAccess) {
        match self.keys.iter_mut().find(|keys| *keys.text == *text) {
            Some(keys) => {
                keys.access.reads |= access.reads;
                keys.access.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern {
                text: text.into(),
                pattern,
                access,
            }),
        }
    }

    /// All channels, or none.
    pub fn set_all_channels(&mut self, are_all: bool) {
        self.are_all_channels = are_all;
        self.channels.clear();
    }

    #[must_use]
    pub fn are_all_channels(&self) -> bool {
        self.are_all_channels
    }

    /// Adds the channels of a pattern.
    pub fn add_channels(&mut self, text: &[u8], pattern: Pattern) {
        if self.channels.iter().all(|(other, _)| **other != *text) {
            self.channels.push((text.into(), pattern));
        }
    }

    /// Whether nothing is refused.
    #[must_use]
    pub fn are_unlimited(&self) -> bool {
        self.commands.are_all() && self.are_all_keys && self.are_all_channels
    }

    /// Looks at a command with its keys and channels; takes what comparing them takes from `steps`.
    ///
    /// # Errors
    /// What of it is not allowed, first the command itself.
    pub fn check<A: ArgList + ?Sized>(
        &self,
        spec: &'static Spec,
        args: &A,
        steps: &mut usize,
    ) -> Result<(), Denied> {
        if !spec.is_free_of_auth() && !self.commands.allow(spec, args) {
            return Err(Denied::Command(spec.cmd));
        }
        if !self.are_all_keys {
            for index in spec.keys_of(args) {
                let access = key_access(spec, args, index);
                match self.may_touch(args.arg(index), access, steps) {
                    Some(true) => {}
                    Some(false) => return Err(Denied::Key(index)),
                    None => return Err(Denied::TooLong(spec.cmd)),
                }
            }
        }
        if !self.are_all_channels {
            let (channels, are_patterns) = channels_of(spec, args);
            for index in channels {
                match self.may_use_channel(args.arg(index), are_patterns, steps) {
                    Some(true) => {}
                    Some(false) => return Err(Denied::Channel(index)),
                    None => return Err(Denied::TooLong(spec.cmd)),
                }
            }
        }
        Ok(())
    }

    /// `None`: it takes more steps to find out.
    fn may_touch(&self, key: &[u8], access: KeyAccess, steps: &mut usize) -> Option<bool> {
        for keys in &self.keys {
            if keys.access.covers(access) && keys.pattern.matches_within(key, steps)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether the channel may be used; with `is_pattern` whether all that the pattern names may: only the very same
    /// pattern says so. `None`: it takes more steps to find out.
    fn may_use_channel(&self, channel: &[u8], is_pattern: bool, steps: &mut usize) -> Option<bool> {
        for (text, pattern) in &self.channels {
            let is_covered = match is_pattern {
                true => {
                    *steps = steps.checked_sub(1)?;
                    **text == *channel
                }
                false => pattern.matches_within(channel, steps)?,
            };
            if is_covered {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether these are all channels that others are, as they are named.
    #[must_use]
    pub fn have_channels_of(&self, others: &Permissions) -> bool {
        let has = |text: &[u8]| self.channels.iter().any(|(own, _)| **own == *text);
        let mut other = others.channels.iter();
        self.are_all_channels || (!others.are_all_channels && other.all(|(text, _)| has(text)))
    }

    /// How many rules describe them.
    #[must_use]
    pub fn rules(&self) -> usize {
        let keys = self.keys.len() + usize::from(self.are_all_keys);
        // Without all channels there is a `resetchannels`.
        let channels = 1 + self.channels.len();
        keys + channels + 1 + self.commands.rules.len()
    }

    /// The patterns of keys, with a space between.
    #[must_use]
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.are_all_keys {
            return b"~*".to_vec();
        }
        let mut out = Vec::new();
        for keys in &self.keys {
            if !out.is_empty() {
                out.push(b' ');
            }
            keys.describe(&mut out);
        }
        out
    }

    /// The patterns of channels, with a space between.
    #[must_use]
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.are_all_channels {
            return b"&*".to_vec();
        }
        let channels = self.channels.iter();
        let channels: Vec<Vec<u8>> = channels.map(|(text, _)| [b"&", &**text].concat()).collect();
        channels.join(&b' ')
    }

    /// Memory that they take, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // A compiled pattern has a bit for each of its bytes and each of 256 values.
        let compiled = |len: usize| 2048 * (len / 64 + 1) + len + 128;
        let keys = self.keys.iter().map(|keys| keys.text.len());
        let channels = self.channels.iter().map(|(text, _)| text.len());
        let patterns = keys.chain(channels).map(compiled);
        self.commands.bytes() + patterns.sum::<usize>()
    }
}

/// The channels that a command names, and whether they are patterns.
fn channels_of<A: ArgList + ?Sized>(spec: &Spec, args: &A) -> (std::ops::Range<usize>, bool) {
    match spec.cmd {
        Cmd::Subscribe | Cmd::Ssubscribe => (1..args.len(), false),
        Cmd::Psubscribe => (1..args.len(), true),
        Cmd::Publish | Cmd::Spublish => (1..args.len().min(2), false),
        _ => (0..0, false),
    }
}
