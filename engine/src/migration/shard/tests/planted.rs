//! Deliberate bugs of a source whose target has confirmed: moves that are decided late, or aborted, show each of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::bed::{Bed, MOVING, Wire};
use crate::migration::ends::tests::workload::words;
use crate::migration::shard::source::OVERDUE_AFTER;
use crate::planted::{Bug, Planted};

/// A move that is confirmed, waits for longer than it should for the decision, and is aborted.
fn aborted_late(bug: Option<Bug>) -> Result<(), String> {
    let mut bed = Bed::new(1);
    bed.source.core.keyspace.planted = Planted::new(bug);
    bed.load(500);
    bed.begin(Wire::Inboxes);
    bed.until("the move", |bed| bed.source.is_confirmed());
    if !bed.source.core.keyspace.owns(MOVING) {
        return Err("the copy is given up before the decision".into());
    }
    bed.pass(OVERDUE_AFTER.as_millis() as u64);
    bed.settle();
    bed.execute(words("SET a 1"));
    if bed.held() != 1 {
        return Err("a command is executed before the decision".into());
    }
    bed.abort();
    bed.compare();
    Ok(())
}

/// Why the bug is noticed, if it is.
fn noticed(bug: Bug) -> String {
    let run = catch_unwind(AssertUnwindSafe(|| aborted_late(Some(bug))));
    let outcome = run.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>();
        Err(text.copied().unwrap_or_default().to_owned())
    });
    outcome.expect_err("a bug")
}

#[test]
fn a_move_that_is_aborted_late_changes_nothing() {
    assert_eq!(aborted_late(None), Ok(()));
}

#[test]
fn a_source_that_deletes_before_the_commit_is_caught() {
    let expected = "the copy is given up before the decision";
    assert_eq!(noticed(Bug::EarlyDelete), expected);
}

#[test]
fn a_source_that_resumes_what_is_confirmed_is_caught() {
    let expected = "no write after the end of the stream";
    assert_eq!(noticed(Bug::Resumes), expected);
}
