use std::collections::BTreeMap;
use std::time::Duration;

use crate::record::Event;
use crate::resp::{self, Connection};
use crate::target::Target;

pub(super) const LOOK: Duration = Duration::from_millis(100);
/// A server that does not answer in time is out.
const PATIENCE: Duration = Duration::from_secs(1);

/// Kinds of events, and numbers of INFO that are not 0 while one goes on.
const KINDS: [(&str, &str); 5] = [
    ("image", "image_in_progress"),
    ("image", "aof_rewrite_in_progress"),
    ("image", "rdb_bgsave_in_progress"),
    ("move", "migrations_outgoing"),
    ("move", "migrations_incoming"),
];
const OUTAGE: &str = "outage";

/// What a server does besides serving, as it says itself.
#[derive(Debug, Default)]
pub(super) struct Watch {
    connection: Option<Connection>,
    going_on: BTreeMap<&'static str, f64>,
    over: Vec<Event>,
}

impl Watch {
    pub(super) fn look(&mut self, target: &Target, at_s: f64) {
        if self.connection.is_none() {
            let connected = target.connect_within(target.address, PATIENCE);
            self.connection = connected.and_then(|new| new.within(PATIENCE)).ok();
        }
        let info = self.connection.as_mut().map(|connection| {
            let texts = ["persistence", "stats"].map(|part| connection.text(&["INFO", part]));
            texts.into_iter().collect::<crate::error::Result<String>>()
        });
        let info = info.and_then(Result::ok);
        if info.is_none() {
            self.connection = None;
        }
        self.note(info.as_deref(), at_s);
    }

    /// Notes what INFO says; none: it was not answered.
    fn note(&mut self, info: Option<&str>, at_s: f64) {
        self.note_one(OUTAGE, info.is_none(), at_s);
        let Some(info) = info else { return };
        let goes_on = |name: &str| resp::info_number(info, name).is_some_and(|n| n > 0);
        for kind in ["image", "move"] {
            let mut of_kind = KINDS.iter().filter(|(of, _)| *of == kind);
            self.note_one(kind, of_kind.any(|(_, name)| goes_on(name)), at_s);
        }
    }

    fn note_one(&mut self, kind: &'static str, goes_on: bool, at_s: f64) {
        if goes_on {
            self.going_on.entry(kind).or_insert(at_s);
        } else if let Some(since_s) = self.going_on.remove(kind) {
            self.over.push(event(kind, since_s, Some(at_s)));
        }
    }

    /// All events, in the order of their beginnings.
    pub(super) fn events(self) -> Vec<Event> {
        let going_on = self.going_on.into_iter();
        let mut events = self.over;
        events.extend(going_on.map(|(kind, since_s)| event(kind, since_s, None)));
        events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        events
    }
}

fn event(kind: &str, at_s: f64, until_s: Option<f64>) -> Event {
    Event {
        at_s,
        until_s,
        kind: kind.to_owned(),
    }
}

#[cfg(test)]
mod tests;
