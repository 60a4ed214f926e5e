//! Which nodes are connected, and which version of the table each has.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::NodeId;

use super::{Action, SessionId};
use crate::protocol::Answer;
use crate::state::State;
use crate::view::{History, TableUpdate, View};

/// A node that has not taken a table over by now is sent it once more, ms.
const RESEND_MS: u64 = 500;

/// Changes that the updates of one turn are made of, but for one update: nodes whose tables have many different
/// versions, as after a cut of the network, are served over several turns.
const CHANGES_PER_TURN: usize = 16384;

/// The connections of nodes that have registered with this leader.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// The same, by node.
    of_nodes: BTreeSet<(NodeId, SessionId)>,
    /// Whether some wait for the next turn's updates.
    is_behind: bool,
}

#[derive(Debug)]
struct Session {
    node: NodeId,
    /// What the node last said it has; none: it has not said yet.
    held: Option<u64>,
    /// The newest version it was sent, and when.
    sent: u64,
    sent_at_ms: u64,
}

impl Sessions {
    /// A node has registered; answers the connections it had before.
    pub(super) fn registered(&mut self, session: SessionId, node: NodeId) -> Vec<SessionId> {
        let older = self.of_nodes.range((node, SessionId(0))..(node, session));
        let older: Vec<SessionId> = older.map(|(_, older)| *older).collect();
        for older in &older {
            self.closed(*older);
        }
        self.session(session, node);
        older
    }

    /// A node has said which version it has.
    pub(super) fn heard(&mut self, session: SessionId, node: NodeId, table_version: u64) {
        self.session(session, node).held = Some(table_version);
    }

    fn session(&mut self, session: SessionId, node: NodeId) -> &mut Session {
        self.sessions.entry(session).or_insert_with(|| {
            self.of_nodes.insert((node, session));
            Session {
                node,
                held: None,
                sent: 0,
                sent_at_ms: 0,
            }
        })
    }

    /// A connection is gone.
    pub(super) fn closed(&mut self, session: SessionId) {
        if let Some(Session { node, .. }) = self.sessions.remove(&session) {
            self.of_nodes.remove(&(node, session));
        }
    }

    /// This coordinator leads no more: answers all connections, and forgets them.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = SessionId> + use<> {
        std::mem::take(self).sessions.into_keys()
    }

    /// Whether nodes wait for an update that the last turn had no time for.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Sends nodes what brings their tables up to date, the oldest first, as far as one turn should take.
    pub(super) fn push_tables(
        &mut self,
        state: &State,
        history: &History,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) {
        // Most nodes have the same version: each update is made once, however many it is for.
        let to = self.outdated(state.table().version, now_ms);
        let (mut full, mut changes) = (Vec::new(), 0);
        self.is_behind = false;
        for (base, sessions) in to {
            if changes >= CHANGES_PER_TURN {
                self.is_behind = true;
                break;
            }
            for id in &sessions {
                if let Some(session) = self.sessions.get_mut(id) {
                    (session.sent, session.sent_at_ms) = (state.table().version, now_ms);
                }
            }
            changes += history.changes_since(base).unwrap_or(0);
            match history.delta(state, base) {
                Some(delta) => {
                    changes += delta.len();
                    let answer = Answer::Table(Box::new(TableUpdate::Delta(delta)));
                    actions.push(Action::AnswerAll(sessions, answer));
                }
                None => full.extend(sessions),
            }
        }
        if !full.is_empty()
            && let Some(view) = View::of(state)
        {
            let answer = Answer::Table(Box::new(TableUpdate::Full(view)));
            actions.push(Action::AnswerAll(full, answer));
        }
    }

    /// Sessions that are to be sent an update to this version, by the version that they have.
    fn outdated(&self, version: u64, now_ms: u64) -> BTreeMap<u64, Vec<SessionId>> {
        let mut outdated: BTreeMap<u64, Vec<SessionId>> = BTreeMap::new();
        for (id, session) in &self.sessions {
            let Some(held) = session.held else {
                continue;
            };
            let is_lost = held < session.sent && now_ms - session.sent_at_ms >= RESEND_MS;
            let base = if is_lost {
                held
            } else {
                held.max(session.sent)
            };
            if base < version {
                outdated.entry(base).or_default().push(*id);
            }
        }
        outdated
    }
}

#[cfg(test)]
mod tests;
