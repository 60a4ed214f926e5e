use super::*;

fn gather(combine: Combine, parts: &[(u16, &[u8])]) -> Vec<u8> {
    gather_as(combine, Protocol::Resp2, parts)
}

fn gather_as(combine: Combine, protocol: Protocol, parts: &[(u16, &[u8])]) -> Vec<u8> {
    let mut gather = Gather::new(combine, protocol, parts.len(), usize::MAX);
    for (arrived, (part, bytes)) in parts.iter().enumerate() {
        let is_last = gather.add(*part, bytes.to_vec(), Lsn(0));
        assert_eq!(is_last, arrived + 1 == parts.len());
    }
    gather.finish().0
}

#[test]
fn integers_are_added() {
    let parts: [(u16, &[u8]); 3] = [(2, b":4\r\n"), (0, b":0\r\n"), (1, b":38\r\n")];
    assert_eq!(gather(Combine::Sum, &parts), b":42\r\n");
}

#[test]
fn ok_from_everyone_is_ok() {
    let parts: [(u16, &[u8]); 2] = [(0, b"+OK\r\n"), (1, b"+OK\r\n")];
    assert_eq!(gather(Combine::AllOk, &parts), b"+OK\r\n");
}

#[test]
fn the_first_error_by_part_is_the_reply() {
    let parts: [(u16, &[u8]); 3] = [(2, b"-ERR two\r\n"), (1, b"-ERR one\r\n"), (0, b":1\r\n")];
    for combine in [
        Combine::Sum,
        Combine::AllOk,
        Combine::Concat,
        Combine::Text,
        Combine::Interleave(vec![vec![0], vec![1], vec![2]]),
    ] {
        assert_eq!(gather(combine, &parts), b"-ERR one\r\n");
    }
}

#[test]
fn arrays_are_joined_in_the_order_of_the_parts() {
    let parts: [(u16, &[u8]); 3] = [
        (1, b"*1\r\n$2\r\n\r\n\r\n"),
        (0, b"*2\r\n$1\r\na\r\n$-1\r\n"),
        (2, b"*0\r\n"),
    ];
    let joined = b"*3\r\n$1\r\na\r\n$-1\r\n$2\r\n\r\n\r\n";
    assert_eq!(gather(Combine::Concat, &parts), joined);
}

#[test]
fn texts_are_joined_in_the_clients_protocol() {
    let parts: [(u16, &[u8]); 2] = [(1, b"$2\r\nb\n\r\n"), (0, b"=6\r\ntxt:a\n\r\n")];
    assert_eq!(gather(Combine::Text, &parts), b"$4\r\na\nb\n\r\n");
    let resp3 = gather_as(Combine::Text, Protocol::Resp3, &parts);
    assert_eq!(resp3, b"=8\r\ntxt:a\nb\n\r\n");
}

#[test]
fn what_one_shard_has_is_found_whichever_is_looked_at_first() {
    let (null, null3): (&[u8], &[u8]) = (b"$-1\r\n", b"_\r\n");
    let find = |first, parts: [&[u8]; 3]| {
        let parts: Vec<_> = (0..).zip(parts).collect();
        gather(Combine::FirstFound(first), &parts)
    };
    let (a, b): (&[u8], &[u8]) = (b"$1\r\na\r\n", b"$1\r\nb\r\n");
    assert_eq!(find(1, [a, null, b]), b);
    assert_eq!(find(1, [a, null3, null]), a);
    assert_eq!(find(0, [a, b, b]), a);
    assert_eq!(find(2, [null, null3, null]), null);
}

#[test]
fn mget_puts_every_element_where_its_key_stood() {
    let combine = || Combine::Interleave(vec![vec![0, 3], vec![1], vec![2, 4]]);
    let parts: [(u16, &[u8]); 3] = [
        (2, b"*2\r\n$1\r\nc\r\n$0\r\n\r\n"),
        (0, b"*2\r\n$1\r\na\r\n$-1\r\n"),
        (1, b"*1\r\n$4\r\n$1\r\n\r\n"),
    ];
    let ordered = b"*5\r\n$1\r\na\r\n$4\r\n$1\r\n\r\n$1\r\nc\r\n$-1\r\n$0\r\n\r\n";
    assert_eq!(gather(combine(), &parts), ordered);
    let nulls: [(u16, &[u8]); 3] = [
        (0, b"*2\r\n_\r\n_\r\n"),
        (1, b"*1\r\n$1\r\nb\r\n"),
        (2, b"*2\r\n_\r\n_\r\n"),
    ];
    let resp3 = gather_as(combine(), Protocol::Resp3, &nulls);
    assert_eq!(resp3, b"*5\r\n_\r\n$1\r\nb\r\n_\r\n_\r\n_\r\n");
}

#[test]
fn the_reply_waits_for_the_highest_gate_also_as_an_error() {
    for last in [&b":1\r\n"[..], b"-ERR no\r\n"] {
        let mut gather = Gather::new(Combine::Sum, Protocol::Resp2, 3, usize::MAX);
        gather.add(1, b":1\r\n".to_vec(), Lsn(9));
        gather.add(0, last.to_vec(), Lsn(4));
        assert!(gather.add(2, b":1\r\n".to_vec(), Lsn(6)));
        assert_eq!(gather.finish().1, Lsn(9));
    }
}

#[test]
#[should_panic(expected = "every part is answered once")]
fn a_part_that_is_answered_twice_is_a_bug() {
    let mut gather = Gather::new(Combine::Sum, Protocol::Resp2, 2, usize::MAX);
    gather.add(0, b":1\r\n".to_vec(), Lsn(0));
    gather.add(0, b":1\r\n".to_vec(), Lsn(0));
}

#[test]
fn keys_that_have_left_the_node_are_in_another_slot_to_who_has_asked_for_several() {
    let moved: [(u16, &[u8]); 2] = [(0, b":1\r\n"), (1, b"-MOVED 7 there:1\r\n")];
    let error = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    assert_eq!(gather(Combine::Sum, &moved), error);
}

#[test]
fn only_a_write_that_was_done_in_part_is_torn() {
    let done: &[u8] = b"+OK\r\n";
    let (left, refused): (&[u8], &[u8]) = (b"-MOVED 7 there:1\r\n", b"-OOM no\r\n");
    let is_torn = |writes, parts: [&[u8]; 2]| {
        let mut gather =
            Gather::new(Combine::AllOk, Protocol::Resp2, 2, usize::MAX).writing(writes);
        gather.add(0, parts[0].to_vec(), Lsn(0));
        gather.add(1, parts[1].to_vec(), Lsn(0));
        gather.is_torn()
    };
    assert!(is_torn(true, [done, left]) && is_torn(true, [left, done]));
    assert!(!is_torn(false, [done, left]));
    assert!(!is_torn(true, [left, left]));
    assert!(!is_torn(true, [done, done]));
    assert!(!is_torn(true, [done, refused]) && !is_torn(true, [refused, left]));
}

#[test]
fn a_reply_is_gathered_again_while_copies_change_their_roles() {
    let gather = Gather::new(Combine::Sum, Protocol::Resp2, 2, usize::MAX);
    let mut gather = gather.repeating(b"DBSIZE".to_vec(), 5, 2);
    let add = |gather: &mut Gather, parts: [&[u8]; 2]| {
        gather.add(0, parts[0].to_vec(), Lsn(0));
        assert!(gather.add(1, parts[1].to_vec(), Lsn(0)));
    };
    add(&mut gather, [b":1\r\n", b":9\r\n"]);
    assert_eq!(gather.begin_again(6).as_deref(), Some(&b"DBSIZE"[..]));
    add(&mut gather, [b":2\r\n", b":9\r\n"]);
    assert_eq!(gather.begin_again(7).as_deref(), Some(&b"DBSIZE"[..]));
    add(&mut gather, [b":3\r\n", b":4\r\n"]);
    assert_eq!(gather.begin_again(8), None, "often enough");
    assert_eq!(gather.finish().0, b":7\r\n");
}

#[test]
fn parts_that_are_too_large_together_are_an_error_and_are_dropped() {
    let mut gather = Gather::new(Combine::Text, Protocol::Resp2, 3, 20);
    let mut gather = |parts: [&[u8]; 3]| {
        for (part, bytes) in (0..).zip(parts) {
            gather.add(part, bytes.to_vec(), Lsn(0));
        }
        let held: usize = gather.parts.iter().flatten().map(Vec::len).sum();
        (held, gather.finish().0)
    };
    let part = b"$8\r\n12345678\r\n";
    let (held, reply) = gather([part, part, b"$0\r\n\r\n"]);
    assert_eq!(reply, b"-ERR the reply would be longer than 20 bytes\r\n");
    assert!(held < 3 * (reply.len() + 1), "{held}");
}
