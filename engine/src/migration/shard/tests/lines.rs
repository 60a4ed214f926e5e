//! Two migrations over one connection.

use std::net::{Shutdown, TcpStream};

use ephesus_wire::limits::STREAM_DATA_BYTES;
use ephesus_wire::stream::Open;
use ephesus_wire::{Epoch, MigrationId, PartitionId};

use super::bed::{Bed, EPOCH, Half, MOVING, OTHER, open, open_other, orders, sockets};
use crate::keyspace::Partition;
use crate::keyspace::tests::tape::{Taped, execute};
use crate::migration::shard::window::WINDOW_BYTES;
use crate::migration::{Line, Order, Report, Way};

const FIRST: MigrationId = MigrationId(1);
const SECOND: MigrationId = MigrationId(2);

/// Two partitions of some MB.
fn filled() -> Bed {
    filled_with(2, 6_000, 1_000)
}

/// So many partitions, in which there are so many keys with values of so many bytes.
fn filled_with(partitions: u16, keys: u64, value_bytes: usize) -> Bed {
    let mut bed = Bed::of(partitions, 1);
    for n in 0..keys {
        let key = format!("key-{n}").into_bytes();
        let args = vec![b"SET".to_vec(), key, vec![b'v'; value_bytes]];
        execute(&mut bed.source.core.keyspace, &args);
    }
    bed.migration = FIRST;
    bed
}

/// The orders of both, the target's first, and the source's end of the connection.
fn both() -> ([[Order; 2]; 2], TcpStream) {
    let ends = sockets();
    let cut = ends[0].try_clone().expect("a descriptor");
    let lines = ends.map(Line::new);
    let ways = || lines.clone().map(Way::Node);
    let first = orders(FIRST, 1, open(), ways());
    let second = orders(SECOND, 1, open_other(), ways());
    ([first, second], cut)
}

fn begin(bed: &mut Bed) -> TcpStream {
    let ([first, second], cut) = both();
    bed.order_both(first);
    bed.order_both(second);
    cut
}

fn is_confirmed(bed: &Bed, id: MigrationId) -> bool {
    let is_it = |r: &Report| matches!(r, Report::Confirmed { migration, .. } if *migration == id);
    bed.source.has_told(is_it)
}

fn both_are_confirmed(bed: &Bed) -> bool {
    [FIRST, SECOND].map(|id| is_confirmed(bed, id)) == [true; 2]
}

fn has_given_up(bed: &Bed, id: MigrationId) -> bool {
    let is_it = |r: &Report| matches!(r, Report::RolledBack { migration, .. } if *migration == id);
    bed.source.has_told(is_it)
}

fn end_of(id: MigrationId, commits: bool) -> Order {
    let partition = if id == FIRST { MOVING } else { OTHER };
    let (migration, epoch) = (id, EPOCH);
    match commits {
        true => Order::Committed {
            migration,
            partition,
            epoch,
        },
        false => Order::Aborted {
            migration,
            partition,
            epoch,
        },
    }
}

fn end(bed: &mut Bed, id: MigrationId, commits: bool) {
    let partition = if id == FIRST { MOVING } else { OTHER };
    let epoch = Epoch(1);
    bed.order_source(match commits {
        true => Order::Drop { partition, epoch },
        false => end_of(id, false),
    });
    bed.order_target(end_of(id, commits));
}

/// The keys that each partition has at the target, if it is served there.
fn moved(bed: &Bed) -> [Option<usize>; 2] {
    keys(&bed.target)
}

fn keys(half: &Half) -> [Option<usize>; 2] {
    let keyspace = &half.core.keyspace;
    [MOVING, OTHER].map(|id| keyspace.served(id).map(|copy| copy.table.len()))
}

#[test]
fn both_move() {
    let mut bed = filled();
    let all = keys(&bed.source);
    begin(&mut bed);
    bed.until("both", both_are_confirmed);
    end(&mut bed, FIRST, true);
    bed.settle();
    end(&mut bed, SECOND, true);
    bed.until("the end of streams", Bed::is_quiet);
    bed.settle();
    assert_eq!(moved(&bed), all);
    assert_eq!(bed.source.reason(), None);
}

#[test]
fn no_more_than_the_window_is_under_way_when_a_small_one_holds() {
    let mut bed = Bed::of(2, 1);
    bed.migration = FIRST;
    bed.fill(OTHER, 60_000);
    begin(&mut bed);
    let sent = |bed: &Bed| {
        let large = bed.source.core.keyspace.partition(OTHER).expect("here");
        let outgoing = large.outgoing();
        outgoing.map_or((0, 0), |out| (out.in_flight_bytes(), out.bytes() as usize))
    };
    let (mut most, mut slice_most, mut turn, mut rest) = (0, 0, 0, 1_000);
    // How much a turn walks depends on the machine: until the window is full, and for a while longer.
    while rest > 0 && turn < 100_000 {
        turn += 1;
        rest -= u32::from(most >= WINDOW_BYTES);
        let (_, before) = sent(&bed);
        // The target is the slower one, whatever the machine does meanwhile.
        if turn % 8 == 0 {
            bed.turn();
        } else {
            bed.turn_source();
        }
        let (under_way, walked) = sent(&bed);
        most = most.max(under_way);
        slice_most = slice_most.max(walked - before);
        assert!(!bed.source.core.is_held(MOVING), "it waits for its group");
    }
    // No slice begins that finds the window full.
    let range = WINDOW_BYTES..WINDOW_BYTES + slice_most + STREAM_DATA_BYTES;
    assert!(range.contains(&most), "{most} of {range:?}");
    bed.pass(1_000);
    bed.until("the small one", |bed| is_confirmed(bed, FIRST));
    assert!(!is_confirmed(&bed, SECOND));
    bed.until("the large one", |bed| is_confirmed(bed, SECOND));
}

/// Eight partitions of 5 MB that move over one connection, to a log that writes nothing yet.
fn begin_eight(bed: &mut Bed) {
    bed.target.commits = false;
    let lines = sockets().map(Line::new);
    for n in 0..8 {
        let open = Open {
            partition: PartitionId(n),
            ..open()
        };
        let id = MigrationId(u64::from(n) + 1);
        bed.order_both(orders(id, 1, open, lines.clone().map(Way::Node)));
    }
}

fn unwritten(bed: &Bed) -> usize {
    bed.target.core.keyspace.log.unwritten_bytes()
}

#[test]
fn the_window_bounds_what_waits_for_the_log_and_what_clients_write_keeps_no_move_back() {
    for of_clients in [0, 10] {
        let mut bed = filled_with(8, 400, 100_000);
        begin_eight(&mut bed);
        for _ in 0..of_clients {
            let log = &mut bed.target.core.keyspace.log;
            log.append(&[7; 900_000]);
        }
        let of_clients = unwritten(&bed);
        let imported = |bed: &Bed| unwritten(bed) - of_clients;
        bed.until("as much as may wait", |bed| imported(bed) > WINDOW_BYTES);
        bed.settle();
        assert!(imported(&bed) < WINDOW_BYTES + (256 << 10));
        let taken = bed.received();
        bed.target.commits = true;
        bed.until("more", |bed| bed.received() > taken);
        bed.until("all", |bed| {
            (1..=8).all(|id| is_confirmed(bed, MigrationId(id)))
        });
    }
}

#[test]
fn orders_may_come_one_by_one() {
    for seed in 0..24 {
        let mut bed = filled();
        let all = keys(&bed.source);
        let ([[receive_1, send_1], [receive_2, send_2]], _) = both();
        let (mut target, mut source) = (vec![receive_2, receive_1], vec![send_2, send_1]);
        // Each side has its first order before the other one's second, or long before.
        for step in 0..4 {
            let is_source = (seed >> step) & 1 == 1 && !source.is_empty() || target.is_empty();
            match is_source {
                true => bed.order_source(source.pop().expect("two of them")),
                false => bed.order_target(target.pop().expect("two of them")),
            }
            for _ in 0..seed % 3 * 10 {
                bed.turn();
            }
        }
        bed.until("both", both_are_confirmed);
        end(&mut bed, SECOND, true);
        end(&mut bed, FIRST, true);
        bed.until("the end of streams", Bed::is_quiet);
        bed.settle();
        assert_eq!(moved(&bed), all, "{seed}");
    }
}

#[test]
fn one_ends_and_the_other_goes_on() {
    for turns in [0, 1, 2, 3, 5, 8, 12, 20] {
        for ending in [FIRST, SECOND] {
            let staying = MigrationId(3 - ending.0);
            let mut bed = filled();
            let all = keys(&bed.source);
            begin(&mut bed);
            for _ in 0..turns {
                bed.turn();
            }
            end(&mut bed, ending, false);
            bed.until("the other", |bed| is_confirmed(bed, staying));
            assert!(!has_given_up(&bed, staying), "{:?}", bed.source.told);
            end(&mut bed, staying, true);
            bed.until("the end of streams", Bed::is_quiet);
            bed.settle();
            let mut expected = [None; 2];
            let at = staying.0 as usize - 1;
            expected[at] = all[at];
            assert_eq!(moved(&bed), expected, "{turns} {ending}");
        }
    }
}

#[test]
fn one_is_refused_by_the_shard_and_the_other_goes_on() {
    let mut bed = filled();
    let occupied = Taped::of(2, vec![Partition::new(MOVING, EPOCH)], [1, 2, 3, 4], 0);
    bed.target.core.keyspace = occupied.keyspace;
    begin(&mut bed);
    bed.until("the other", |bed| is_confirmed(bed, SECOND));
    assert!(has_given_up(&bed, FIRST) && !has_given_up(&bed, SECOND));
}

#[test]
fn one_is_refused_by_the_node_and_the_other_goes_on() {
    let mut bed = filled();
    let all = keys(&bed.source);
    let [from, to] = sockets().map(Line::new);
    to.refuse(FIRST, "not here".into());
    let way = Way::Node(from.clone());
    bed.order_both(orders(SECOND, 1, open_other(), [way, Way::Node(to)]));
    let [_, send] = orders(FIRST, 1, open(), [Way::Node(from.clone()), Way::Node(from)]);
    bed.order_source(send);
    bed.until("a refusal", |bed| has_given_up(bed, FIRST));
    assert_eq!(bed.source.reason(), Some("the target: not here"));
    bed.until("the other", |bed| is_confirmed(bed, SECOND));
    end(&mut bed, SECOND, true);
    bed.until("the end of streams", Bed::is_quiet);
    bed.settle();
    assert_eq!(moved(&bed), [None, all[1]]);
}

#[test]
fn a_cut_ends_both_unless_they_are_confirmed() {
    for turns in [0, 1, 2, 4, 8, 16, 300] {
        let mut bed = filled();
        let cut = begin(&mut bed);
        for _ in 0..turns {
            bed.turn();
        }
        if turns == 300 {
            bed.until("both", both_are_confirmed);
        }
        cut.shutdown(Shutdown::Both).expect("a socket");
        bed.settle();
        for id in [FIRST, SECOND] {
            assert!(
                has_given_up(&bed, id) != is_confirmed(&bed, id),
                "{turns} {id}"
            );
            end(&mut bed, id, false);
        }
        bed.until("the end of streams", Bed::is_quiet);
        bed.settle();
        assert_eq!(moved(&bed), [None; 2]);
    }
}

#[test]
fn who_is_given_up_before_its_order_comes_leaves_the_other_alone() {
    let mut bed = filled();
    let all = keys(&bed.source);
    let ([first, second], _) = both();
    let [receive, send] = first;
    bed.order_target(receive);
    bed.order_source(send);
    bed.until("the first", |bed| is_confirmed(bed, FIRST));
    end(&mut bed, FIRST, true);
    bed.settle();
    bed.order_both(second);
    bed.until("the second", |bed| is_confirmed(bed, SECOND));
    end(&mut bed, SECOND, true);
    bed.until("the end of streams", Bed::is_quiet);
    bed.settle();
    assert_eq!(moved(&bed), all);
}
