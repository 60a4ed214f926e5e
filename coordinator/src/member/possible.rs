//! Which messages another member can have sent.

use std::collections::BTreeSet;

use raft::prelude::{ConfState, Message, MessageType, Snapshot};

use crate::state::State;

/// No log gets there; numbers that follow those of a message cannot overflow.
const NUMBER_MAX: u64 = 1 << 62;

/// Whether a message can be another member's, whatever both have in their logs. Raft panics at some that cannot.
pub(super) fn is_possible(message: &Message) -> bool {
    let numbers = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.reject_hint,
        message.commit_term,
        message.request_snapshot,
    ];
    // What has no term, raft takes for its own.
    let are_numbers = message.term > 0 && numbers.iter().all(|number| *number <= NUMBER_MAX);
    let has_entries = !message.entries.is_empty();
    let has_snapshot = message.has_snapshot() && message.get_snapshot().get_metadata().index > 0;
    let kind = match message.get_msg_type() {
        MessageType::MsgAppend => !has_snapshot && is_run(message),
        MessageType::MsgSnapshot => {
            !has_entries && has_snapshot && is_whole(message.get_snapshot(), message.term)
        }
        MessageType::MsgAppendResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgHeartbeat
        | MessageType::MsgHeartbeatResponse
        | MessageType::MsgTimeoutNow
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse => !has_entries && !has_snapshot,
        // Members say the others to themselves only.
        _ => false,
    };
    // Nobody asks for a snapshot.
    are_numbers && kind && message.request_snapshot == 0
}

/// Whether the entries follow one another, and what the message says of the one before.
fn is_run(message: &Message) -> bool {
    let mut before = (message.index, message.log_term);
    message.entries.iter().all(|entry| {
        let follows = entry.index == before.0 + 1 && entry.term >= before.1;
        before = (entry.index, entry.term);
        follows && entry.term <= message.term
    })
}

/// Whether a member can begin with a snapshot: once it is durable, every start does.
fn is_whole(snapshot: &Snapshot, term: u64) -> bool {
    let metadata = snapshot.get_metadata();
    metadata.index <= NUMBER_MAX
        && metadata.term <= term
        && are_members(metadata.get_conf_state())
        && State::from_snapshot(&snapshot.data).is_ok()
}

/// Whether these are members as changes of one at a time lead to.
fn are_members(members: &ConfState) -> bool {
    let mut seen = BTreeSet::new();
    let all = members.voters.iter().chain(&members.learners);
    let are_different = all.into_iter().all(|id| *id > 0 && seen.insert(*id));
    let is_joint = members.auto_leave
        || !members.voters_outgoing.is_empty()
        || !members.learners_next.is_empty();
    are_different && !is_joint && !members.voters.is_empty()
}
