use super::*;
use crate::shard::core::replies::gather::Combine;
use ephesus_wire::resp::reply::Protocol;

fn ready(outbox: &mut Outbox, turn: u64, text: &[u8], gate: u64) {
    outbox.write(turn, |out| {
        out.extend_from_slice(text);
        Lsn(gate)
    });
}

fn take(outbox: &mut Outbox, committed: u64) -> (Front, Vec<u8>) {
    let mut into = Vec::new();
    let front = outbox.take_ready(Lsn(committed), &mut into);
    (front, into)
}

#[test]
fn replies_of_a_turn_leave_together_behind_their_highest_gate() {
    let mut outbox = Outbox::default();
    ready(&mut outbox, 1, b"a", 5);
    ready(&mut outbox, 1, b"b", 3);
    ready(&mut outbox, 2, b"c", 0);
    assert_eq!(outbox.bytes(), 3);
    assert_eq!(take(&mut outbox, 4), (Front::Gated(Lsn(5)), vec![]));
    assert_eq!(take(&mut outbox, 5), (Front::Taken, b"abc".to_vec()));
    assert_eq!(take(&mut outbox, 5), (Front::Empty, vec![]));
    assert!(outbox.is_empty() && outbox.bytes() == 0);
}

#[test]
fn what_is_gated_holds_back_everything_behind_it() {
    let mut outbox = Outbox::default();
    ready(&mut outbox, 1, b"a", 1);
    ready(&mut outbox, 2, b"b", 9);
    ready(&mut outbox, 3, b"c", 0);
    assert_eq!(take(&mut outbox, 2), (Front::Taken, b"a".to_vec()));
    assert_eq!(take(&mut outbox, 2), (Front::Gated(Lsn(9)), vec![]));
    assert_eq!(outbox.bytes(), 2);
    assert_eq!(take(&mut outbox, 9), (Front::Taken, b"bc".to_vec()));
}

#[test]
fn a_taken_chunk_goes_to_the_end_of_what_is_being_sent() {
    let mut outbox = Outbox::default();
    ready(&mut outbox, 1, b"b", 0);
    let mut into = b"a".to_vec();
    assert_eq!(outbox.take_ready(Lsn(0), &mut into), Front::Taken);
    assert_eq!(into, b"ab");
}

#[test]
fn awaited_replies_keep_their_place_and_their_gate() {
    let mut outbox = Outbox::default();
    ready(&mut outbox, 1, b"a", 0);
    let first = outbox.await_reply(None);
    let second = outbox.await_reply(None);
    ready(&mut outbox, 1, b"d", 0);
    outbox.deliver(second, 0, b"c".to_vec(), Lsn(7));
    assert_eq!(take(&mut outbox, 3), (Front::Taken, b"a".to_vec()));
    assert_eq!(take(&mut outbox, 3), (Front::Awaited, vec![]));
    outbox.deliver(first, 0, b"b".to_vec(), Lsn(2));
    assert_eq!(take(&mut outbox, 3), (Front::Taken, b"b".to_vec()));
    assert_eq!(take(&mut outbox, 3), (Front::Gated(Lsn(7)), vec![]));
    assert_eq!(take(&mut outbox, 7), (Front::Taken, b"cd".to_vec()));
}

#[test]
fn nothing_is_appended_to_a_delivered_reply() {
    let mut outbox = Outbox::default();
    let ticket = outbox.await_reply(None);
    outbox.deliver(ticket, 0, b"a".to_vec(), Lsn(1));
    ready(&mut outbox, 1, b"b", 9);
    assert_eq!(take(&mut outbox, 1), (Front::Taken, b"a".to_vec()));
}

#[test]
fn tickets_stay_valid_while_earlier_replies_leave() {
    let mut outbox = Outbox::default();
    for turn in 0..10 {
        ready(&mut outbox, turn, b"x", 0);
        let ticket = outbox.await_reply(None);
        assert_eq!(take(&mut outbox, 0).1, b"x");
        outbox.deliver(ticket, 0, format!("{turn}").into_bytes(), Lsn(0));
        assert_eq!(take(&mut outbox, 0).1, format!("{turn}").into_bytes());
    }
}

#[test]
fn a_gathered_reply_waits_for_its_last_part() {
    let mut outbox = Outbox::default();
    let gather = Gather::new(Combine::Sum, Protocol::Resp2, 2, usize::MAX);
    let ticket = outbox.await_reply(Some(Box::new(gather)));
    let first = outbox.deliver(ticket, 1, b":2\r\n".to_vec(), Lsn(8));
    assert_eq!(first, Delivered::Kept);
    assert_eq!(take(&mut outbox, 9).0, Front::Awaited);
    let last = outbox.deliver(ticket, 0, b":3\r\n".to_vec(), Lsn(4));
    assert_eq!(last, Delivered::Complete);
    assert_eq!(take(&mut outbox, 9).0, Front::Awaited);
    let (bytes, gate) = outbox.gather(ticket).expect("gathered").finish();
    outbox.fill(ticket, bytes, gate);
    assert_eq!(outbox.awaited(), 0);
    assert_eq!(take(&mut outbox, 7).0, Front::Gated(Lsn(8)));
    assert_eq!(take(&mut outbox, 8), (Front::Taken, b":5\r\n".to_vec()));
}

#[test]
fn what_is_cut_off_is_never_said() {
    let mut outbox = Outbox::default();
    ready(&mut outbox, 1, b"a", 0);
    let cut = outbox.await_reply(None);
    ready(&mut outbox, 1, b"later", 0);
    let later = outbox.await_reply(None);
    outbox.cut(cut);
    assert_eq!((outbox.awaited(), outbox.bytes()), (0, 1));
    outbox.deliver(later, 0, b"late".to_vec(), Lsn(0));
    assert_eq!(take(&mut outbox, 0), (Front::Taken, b"a".to_vec()));
    assert!(outbox.is_empty());
}

#[test]
fn replies_for_a_cleared_outbox_find_no_place() {
    let mut outbox = Outbox::default();
    ready(&mut outbox, 1, b"a", 0);
    let lost = outbox.await_reply(None);
    outbox.clear();
    assert!(outbox.is_empty() && outbox.bytes() == 0);
    let next = outbox.await_reply(None);
    assert_ne!(lost, next);
    outbox.deliver(lost, 0, b"late".to_vec(), Lsn(0));
    assert_eq!(take(&mut outbox, 0).0, Front::Awaited);
    outbox.deliver(next, 0, b"b".to_vec(), Lsn(0));
    outbox.deliver(next, 0, b"twice".to_vec(), Lsn(0));
    assert_eq!(take(&mut outbox, 0), (Front::Taken, b"b".to_vec()));
}
