//! What follows from what raft has ready.
//!
//! ```text
//! a leader's messages -> entries, vote and term durable -> all other messages -> decided entries applied
//! ```

use ephesus_wal::Disk;
use protobuf::Message as _;
use raft::prelude::{ConfChange, Entry, EntryType, HardState, Message};

use super::{Member, MemberError, Outcome, Output, Ticket};
use crate::command::{Command, CoordinatorChange};
use crate::planted::Bug;
use crate::state::{Effects, Refusal, State};
use crate::storage::Persist;

impl<D: Disk> Member<D> {
    /// Makes durable, sends and applies what raft has ready, in the order that it needs.
    pub(super) async fn ready(
        &mut self,
        output: &mut Output,
        now_ms: u64,
        send: &mut impl FnMut(&State, Message),
    ) -> Result<(), MemberError> {
        let mut ready = self.node.ready();
        // Of a leader; all others have to write first.
        let mut at_once = ready.take_messages();
        if self.planted.has(Bug::AnswerBeforeSync) {
            at_once.extend(ready.take_persisted_messages());
        }
        for message in at_once {
            send(&self.state, message);
        }
        let snapshot = ready.snapshot().clone();
        let mut persist = Persist {
            snapshot: (!snapshot.is_empty()).then_some(snapshot),
            entries: ready.take_entries(),
            hard_state: ready.hs().cloned(),
        };
        if !ready.must_sync() && persist.snapshot.is_none() {
            // Only the commit index has changed, and nobody should wait for the disk because of that.
            if let Some(hard_state) = persist.hard_state.take() {
                self.node.mut_store().note_commit(hard_state);
            }
        }
        self.node.mut_store().persist(&persist, now_ms).await?;
        if let Some(snapshot) = &persist.snapshot {
            self.state = State::from_snapshot(&snapshot.data)?;
            self.applied = snapshot.get_metadata().index;
            self.conf_state = snapshot.get_metadata().get_conf_state().clone();
            output.restored = true;
            output.changes.clear();
        }
        if self.planted.has(Bug::ApplyBeforeCommit) {
            self.apply(persist.entries, output)?;
        }
        for message in ready.take_persisted_messages() {
            send(&self.state, message);
        }
        self.apply(ready.take_committed_entries(), output)?;
        for read in ready.take_read_states() {
            let ticket = read.request_ctx.try_into().map(u64::from_le_bytes);
            let Some(ticket) = ticket.ok().map(Ticket) else {
                continue;
            };
            if self.asked.remove(&ticket) {
                self.reads.push((ticket, read.index));
            }
        }
        let mut light = self.node.advance(ready);
        if let Some(commit) = light.commit_index() {
            let hard_state = HardState {
                commit,
                ..self.node.store().hard_state().clone()
            };
            self.node.mut_store().note_commit(hard_state);
        }
        for message in light.take_messages() {
            send(&self.state, message);
        }
        self.apply(light.take_committed_entries(), output)?;
        self.node.advance_apply();
        let applied = self.applied;
        let (now, later): (Vec<_>, Vec<_>) = self.reads.drain(..).partition(|(_, i)| *i <= applied);
        self.reads = later;
        output.reads.extend(now.into_iter().map(|(t, _)| (t, true)));
        Ok(())
    }

    fn apply(&mut self, entries: Vec<Entry>, output: &mut Output) -> Result<(), MemberError> {
        for entry in entries {
            let index = entry.index;
            if self.planted.has(Bug::ApplyBeforeCommit) && index <= self.applied {
                continue;
            }
            let (result, conf_change) = carry_out(&mut self.state, &entry)?;
            if let Some(conf_change) = conf_change {
                self.conf_state = self.node.apply_conf_change(&conf_change)?;
            }
            self.applied = index;
            let Some(result) = result else {
                continue;
            };
            if let Ok(effects) = &result
                && !effects.is_empty()
            {
                let version = self.state.table().version;
                output.changes.push((version, effects.clone()));
            }
            if let Some(ticket) = self.own_ticket(&entry.context) {
                output.outcomes.push((ticket, Outcome::Applied(result)));
            }
        }
        Ok(())
    }

    /// The ticket of an entry that this start of this member has proposed.
    fn own_ticket(&mut self, context: &[u8]) -> Option<Ticket> {
        let (life, ticket) = context.split_first_chunk::<8>()?;
        let ticket = Ticket(u64::from_le_bytes(ticket.try_into().ok()?));
        if u64::from_le_bytes(*life) != self.life {
            return None;
        }
        self.proposed.remove(&ticket).then_some(ticket)
    }
}

/// What the state machine says to an entry, if it is one for it, and raft's change of members that follows.
pub type CarriedOut = (Option<Result<Effects, Refusal>>, Option<ConfChange>);

/// Carries a decided entry out: what the state machine says to it, if it is one for it, and raft's own change of
/// members where that has an effect.
///
/// # Errors
/// [`MemberError`]: this release does not know the entry.
pub fn carry_out(state: &mut State, entry: &Entry) -> Result<CarriedOut, MemberError> {
    let index = entry.index;
    match entry.get_entry_type() {
        // A new leader's first entry is empty.
        EntryType::EntryNormal if entry.data.is_empty() => Ok((None, None)),
        EntryType::EntryNormal => {
            let command: Command = postcard::from_bytes(&entry.data)
                .map_err(|source| MemberError::Entry { index, source })?;
            Ok((Some(state.apply(&command)), None))
        }
        EntryType::EntryConfChange => {
            let conf_change = ConfChange::parse_from_bytes(&entry.data)
                .map_err(|source| MemberError::ConfChange { index, source })?;
            let change: CoordinatorChange = postcard::from_bytes(&conf_change.context)
                .map_err(|source| MemberError::Entry { index, source })?;
            let result = state.change_coordinators(&change);
            let has_effect = result.as_ref().is_ok_and(|effects| !effects.is_empty());
            Ok((Some(result), has_effect.then_some(conf_change)))
        }
        EntryType::EntryConfChangeV2 => Err(MemberError::JointChange(index)),
    }
}
