//! Which nodes are connected, and which version of the table each has.

use std::collections::BTreeMap;

use ephesus_wire::NodeId;

use super::{Action, SessionId};
use crate::protocol::Answer;
use crate::state::State;
use crate::view::History;

/// A node that has not taken a table over by now is sent it once more, ms.
const RESEND_MS: u64 = 500;

/// The connections of nodes that have registered with this leader.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
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
    pub(super) fn registered(
        &mut self,
        session: SessionId,
        node: NodeId,
    ) -> impl Iterator<Item = SessionId> + use<> {
        let others = self.sessions.range(..session);
        let older = others.filter(|(_, other)| other.node == node);
        let older: Vec<SessionId> = older.map(|(id, _)| *id).collect();
        self.sessions.retain(|id, _| !older.contains(id));
        self.sessions.entry(session).or_insert(Session {
            node,
            held: None,
            sent: 0,
            sent_at_ms: 0,
        });
        older.into_iter()
    }

    /// A node has said which version it has.
    pub(super) fn heard(&mut self, session: SessionId, node: NodeId, table_version: u64) {
        let session = self.sessions.entry(session).or_insert(Session {
            node,
            held: None,
            sent: 0,
            sent_at_ms: 0,
        });
        session.held = Some(table_version);
    }

    /// A connection is gone.
    pub(super) fn closed(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// This coordinator leads no more: answers all connections, and forgets them.
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = SessionId> + use<> {
        std::mem::take(&mut self.sessions).into_keys()
    }

    /// Sends every node what brings its table up to date.
    pub(super) fn push_tables(
        &mut self,
        state: &State,
        history: &History,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) {
        // Most nodes have the same version: each update is made once, however many it is for.
        let mut to: BTreeMap<u64, Vec<SessionId>> = BTreeMap::new();
        for (id, session) in &mut self.sessions {
            let Some(held) = session.held else {
                continue;
            };
            let is_lost = held < session.sent && now_ms - session.sent_at_ms >= RESEND_MS;
            let base = if is_lost {
                held
            } else {
                held.max(session.sent)
            };
            if base < state.table().version {
                (session.sent, session.sent_at_ms) = (state.table().version, now_ms);
                to.entry(base).or_default().push(*id);
            }
        }
        for (base, sessions) in to {
            if let Some(update) = history.update(state, base) {
                let answer = Answer::Table(Box::new(update));
                actions.push(Action::AnswerAll(sessions, answer));
            }
        }
    }
}
