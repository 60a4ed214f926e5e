//! CLIENT TRACKING and CLIENT CACHING: their arguments, and what a client has said by them.

use std::collections::BTreeSet;

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request;

use super::client::on_or_off;
use super::error::{ClientError, Quoted};
use super::parse::ArgList;

/// Prefixes of one client.
pub const PREFIXES_MAX: usize = 256;

/// Longest of them.
pub const PREFIX_BYTES_MAX: usize = 1 << 10;

/// Memory of a prefix beside itself.
const PREFIX_OVERHEAD_BYTES: usize = 96;

/// What is wrong with CLIENT TRACKING or CLIENT CACHING, in Redis's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrackingError {
    #[error("A client can only redirect to a single other client")]
    Redirects,
    #[error("The client ID you want redirect to does not exist")]
    NoTarget,
    #[error("PREFIX option requires BCAST mode to be enabled")]
    PrefixWithoutBroadcast,
    #[error(
        "You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a \
         different mode."
    )]
    SwitchedBroadcast,
    #[error("OPTIN and OPTOUT are not compatible with BCAST")]
    OptionsOfBroadcast,
    #[error("You can't specify both OPTIN mode and OPTOUT mode")]
    OptInAndOut,
    #[error(
        "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a \
         different mode."
    )]
    SwitchedOption,
    #[error(
        "Prefix '{prefix}' overlaps with {other} prefix '{with}'. Prefixes for a single client must not overlap."
    )]
    Overlap {
        prefix: Quoted,
        other: &'static str,
        with: Quoted,
    },
    #[error("a client can have at most {0} prefixes")]
    TooManyPrefixes(usize),
    #[error("the clients of a shard can have at most {0} different prefixes")]
    TooManyPrefixesOfShard(usize),
    #[error(
        "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
    )]
    NotTracking,
    #[error("CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")]
    NotOptIn,
    #[error("CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")]
    NotOptOut,
}

impl From<TrackingError> for ClientError {
    fn from(error: TrackingError) -> ClientError {
        ClientError::Tracking(error)
    }
}

/// Of which keys a client is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Those that it has read.
    #[default]
    Read,
    /// Those that it has read behind CLIENT CACHING YES.
    OptIn,
    /// Those that it has read, but for those behind CLIENT CACHING NO.
    OptOut,
    /// All that begin with its prefixes.
    Broadcast,
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`.
#[derive(Debug, Default)]
pub struct Options<'a> {
    pub is_on: bool,
    pub redirect: Option<u64>,
    broadcasts: bool,
    opts_in: bool,
    opts_out: bool,
    skips_own: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    /// Reads it. Whether there is a client to redirect to, `may_exist` is asked.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    pub fn parse<A: ArgList + ?Sized>(
        args: &'a A,
        may_exist: impl Fn(u64) -> bool,
    ) -> Result<Options<'a>, ClientError> {
        let mut options = Options::default();
        let mut at = 3;
        while at < args.len() {
            let word = args.arg(at);
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            let has_more = at + 1 < args.len();
            if is(b"redirect") && has_more {
                at += 1;
                if options.redirect.is_some() {
                    return Err(TrackingError::Redirects.into());
                }
                let id = request::integer(args.arg(at)).ok_or(ClientError::NotAnInteger)?;
                let id = u64::try_from(id).ok().filter(|id| may_exist(*id));
                options.redirect = Some(id.ok_or(TrackingError::NoTarget)?);
            } else if is(b"bcast") {
                options.broadcasts = true;
            } else if is(b"optin") {
                options.opts_in = true;
            } else if is(b"optout") {
                options.opts_out = true;
            } else if is(b"noloop") {
                options.skips_own = true;
            } else if is(b"prefix") && has_more {
                at += 1;
                options.prefixes.push(args.arg(at));
            } else {
                return Err(ClientError::Syntax);
            }
            at += 1;
        }
        options.is_on = on_or_off(args.arg(2))?;
        Ok(options)
    }

    fn mode(&self) -> Mode {
        match () {
            () if self.broadcasts => Mode::Broadcast,
            () if self.opts_in => Mode::OptIn,
            () if self.opts_out => Mode::OptOut,
            () => Mode::Read,
        }
    }

    /// What the client has said after ON, if it had said `before`.
    ///
    /// # Errors
    /// What does not go together.
    pub fn tracker(&self, before: Option<&Tracker>) -> Result<Tracker, ClientError> {
        if !self.broadcasts && !self.prefixes.is_empty() {
            return Err(TrackingError::PrefixWithoutBroadcast.into());
        }
        let switches = |before: &Tracker| before.broadcasts() != self.broadcasts;
        if before.is_some_and(switches) {
            return Err(TrackingError::SwitchedBroadcast.into());
        }
        if self.broadcasts && (self.opts_in || self.opts_out) {
            return Err(TrackingError::OptionsOfBroadcast.into());
        }
        if self.opts_in && self.opts_out {
            return Err(TrackingError::OptInAndOut.into());
        }
        let other = match self.mode() {
            Mode::OptIn => Some(Mode::OptOut),
            Mode::OptOut => Some(Mode::OptIn),
            Mode::Read | Mode::Broadcast => None,
        };
        if other.is_some() && before.map(|before| before.mode) == other {
            return Err(TrackingError::SwitchedOption.into());
        }
        let mut prefixes = before.map_or_else(BTreeSet::new, |before| before.prefixes.clone());
        self.check_prefixes(&prefixes)?;
        prefixes.extend(self.prefixes.iter().map(|prefix| Box::from(*prefix)));
        if self.broadcasts && self.prefixes.is_empty() {
            prefixes.insert(Box::default());
        }
        if prefixes.len() > PREFIXES_MAX {
            return Err(TrackingError::TooManyPrefixes(PREFIXES_MAX).into());
        }
        Ok(Tracker {
            mode: self.mode(),
            redirect: self.redirect,
            skips_own: self.skips_own,
            prefixes,
            ..Tracker::default()
        })
    }

    fn check_prefixes(&self, existing: &BTreeSet<Box<[u8]>>) -> Result<(), ClientError> {
        if self.prefixes.len() > PREFIXES_MAX {
            return Err(TrackingError::TooManyPrefixes(PREFIXES_MAX).into());
        }
        let overlap = |prefix, other, with| TrackingError::Overlap {
            prefix: Quoted::new(prefix),
            other,
            with: Quoted::new(with),
        };
        let overlaps = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        for (place, prefix) in self.prefixes.iter().enumerate() {
            if prefix.len() > PREFIX_BYTES_MAX {
                return Err(ClientError::ArgumentTooLong("a prefix", PREFIX_BYTES_MAX));
            }
            if let Some(with) = existing.iter().find(|other| overlaps(prefix, other)) {
                return Err(overlap(prefix, "an existing", with).into());
            }
            let mut later = self.prefixes.iter().skip(place + 1);
            if let Some(with) = later.find(|other| overlaps(prefix, other)) {
                return Err(overlap(prefix, "another provided", with).into());
            }
        }
        Ok(())
    }
}

/// What a client has said of keys that it may cache, while tracking is on.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    pub mode: Mode,
    /// The connection that is told instead, by its id.
    pub redirect: Option<u64>,
    /// That one was not there when something had to be told.
    pub is_broken: bool,
    /// It is not told of what it changes itself.
    pub skips_own: bool,
    /// CLIENT CACHING was said for the next command.
    pub caching: bool,
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Tracker {
    #[must_use]
    pub fn broadcasts(&self) -> bool {
        self.mode == Mode::Broadcast
    }

    /// Whether the keys are noted that the next command reads.
    #[must_use]
    pub fn tracks_reads(&self) -> bool {
        match self.mode {
            Mode::Read => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }

    /// Memory of it, with what shards keep of its prefixes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let prefixes = self.prefixes.iter();
        let prefixes = prefixes.map(|prefix| 3 * (prefix.len() + PREFIX_OVERHEAD_BYTES));
        size_of::<Tracker>() + prefixes.sum::<usize>()
    }

    fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec!["on"];
        let caching = self.caching;
        match self.mode {
            Mode::Read => {}
            Mode::OptIn if caching => flags.extend(["optin", "caching-yes"]),
            Mode::OptIn => flags.push("optin"),
            Mode::OptOut if caching => flags.extend(["optout", "caching-no"]),
            Mode::OptOut => flags.push("optout"),
            Mode::Broadcast => flags.push("bcast"),
        }
        if self.skips_own {
            flags.push("noloop");
        }
        if self.is_broken {
            flags.push("broken_redirect");
        }
        flags
    }
}

/// Takes `CLIENT CACHING YES|NO`.
///
/// # Errors
/// It does not go with what was said by CLIENT TRACKING.
pub fn note_caching<A: ArgList + ?Sized>(
    tracker: Option<&mut Tracker>,
    args: &A,
) -> Result<(), ClientError> {
    let tracker = tracker.ok_or(TrackingError::NotTracking)?;
    let word = args.arg(2);
    let (mode, error) = match () {
        () if word.eq_ignore_ascii_case(b"yes") => (Mode::OptIn, TrackingError::NotOptIn),
        () if word.eq_ignore_ascii_case(b"no") => (Mode::OptOut, TrackingError::NotOptOut),
        () => return Err(ClientError::Syntax),
    };
    if tracker.mode != mode {
        return Err(error.into());
    }
    tracker.caching = true;
    Ok(())
}

/// The id of the connection that is told instead of this one; 0: none is, -1: tracking is off.
#[must_use]
pub fn redirect(tracker: Option<&Tracker>) -> i64 {
    tracker.map_or(-1, |tracker| tracker.redirect.unwrap_or(0).cast_signed())
}

/// Appends the reply to CLIENT TRACKINGINFO.
pub fn write_info(out: &mut Vec<u8>, protocol: Protocol, tracker: Option<&Tracker>) {
    reply::map(out, protocol, 3);
    reply::bulk(out, b"flags");
    let flags = tracker.map_or_else(|| vec!["off"], Tracker::flags);
    reply::set(out, protocol, flags.len());
    flags
        .iter()
        .for_each(|flag| reply::bulk(out, flag.as_bytes()));
    reply::bulk(out, b"redirect");
    reply::integer(out, redirect(tracker));
    reply::bulk(out, b"prefixes");
    let prefixes = tracker.map(|tracker| &tracker.prefixes);
    reply::array(out, prefixes.map_or(0, BTreeSet::len));
    for prefix in prefixes.into_iter().flatten() {
        reply::bulk(out, prefix);
    }
}

#[cfg(test)]
mod tests;
