//! Batches of several migrations.

use std::net::{Shutdown, TcpStream};

use ephesus_wire::limits::STREAM_DATA_BYTES;
use ephesus_wire::stream::Open;
use ephesus_wire::{Epoch, MigrationId, PartitionId};

use super::bed::{Bed, EPOCH, Half, MOVING, OTHER, WIRES, Wire, open, open_other, orders, sockets};
use crate::keyspace::Partition;
use crate::keyspace::tests::tape::{Taped, execute};
use crate::migration::shard::window::WINDOW_BYTES;
use crate::migration::{Order, Report, Way};

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

/// The orders of a batch of both, the target's first.
fn both(ways: [Way; 2]) -> [Order; 2] {
    orders(&[(FIRST, open()), (SECOND, open_other())], ways)
}

/// Begins it, and answers the source's end of the connection.
fn begin(bed: &mut Bed) -> TcpStream {
    let ends = sockets();
    let cut = ends[0].try_clone().expect("a descriptor");
    bed.order_both(both(ends.map(|end| Way::Node(end.into()))));
    cut
}

fn has_rolled_back(bed: &Bed) -> bool {
    bed.source
        .has_told(|r| matches!(r, Report::RolledBack { .. }))
}

fn has_wiped(bed: &Bed, id: MigrationId) -> bool {
    let is_it = |r: &Report| matches!(r, Report::Wiped { migration, .. } if *migration == id);
    bed.target.has_told(is_it)
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
    for wire in WIRES {
        let mut bed = filled();
        let all = keys(&bed.source);
        bed.order_both(both(wire.ways()));
        bed.until("both", |bed| bed.source.is_confirmed());
        end(&mut bed, FIRST, true);
        bed.settle();
        end(&mut bed, SECOND, true);
        bed.until("the end of streams", Bed::is_quiet);
        bed.settle();
        assert_eq!(moved(&bed), all);
        assert_eq!(bed.source.reason(), None);
    }
}

#[test]
fn what_is_decided_of_a_confirmed_one_leaves_the_other_to_the_table() {
    let mut bed = filled();
    let all = keys(&bed.source);
    begin(&mut bed);
    bed.until("both", |bed| bed.source.is_confirmed());
    end(&mut bed, FIRST, false);
    bed.settle();
    assert!(!bed.source.core.is_held(MOVING));
    assert!(bed.source.core.is_held(OTHER) && !has_rolled_back(&bed));
    assert!(has_wiped(&bed, FIRST) && !has_wiped(&bed, SECOND));
    end(&mut bed, SECOND, true);
    bed.until("the end of streams", Bed::is_quiet);
    bed.settle();
    assert_eq!(moved(&bed), [None, all[1]]);
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
        assert!(!bed.source.core.is_held(MOVING), "it waits for its batch");
    }
    // No slice begins that finds the window full.
    let range = WINDOW_BYTES..WINDOW_BYTES + slice_most + STREAM_DATA_BYTES;
    assert!(range.contains(&most), "{most} of {range:?}");
    bed.until("both", |bed| bed.source.is_confirmed());
}

/// Eight partitions of 5 MB that move over one connection, to a log that writes nothing yet.
fn begin_eight(bed: &mut Bed) {
    bed.target.commits = false;
    let moves = (0..8).map(|n| {
        let partition = PartitionId(n);
        let open = Open {
            partition,
            ..open()
        };
        (MigrationId(u64::from(n) + 1), open)
    });
    let moves: Vec<_> = moves.collect();
    bed.order_both(orders(&moves, Wire::Sockets.ways()));
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
        bed.until("all", |bed| bed.source.is_confirmed());
    }
}

#[test]
fn either_end_may_have_its_order_first() {
    for wire in WIRES {
        for turns in [0, 1, 10, 30] {
            for is_source_first in [true, false] {
                if is_source_first && wire == Wire::Inboxes {
                    // The node has the source know of it before the target speaks.
                    continue;
                }
                let mut bed = filled();
                let all = keys(&bed.source);
                let [receive, send] = both(wire.ways());
                if is_source_first {
                    bed.order_source(send);
                    (0..turns).for_each(|_| bed.turn());
                    bed.order_target(receive);
                } else {
                    bed.order_both([receive, send]);
                }
                bed.until("both", |bed| bed.source.is_confirmed());
                end(&mut bed, SECOND, true);
                end(&mut bed, FIRST, true);
                bed.until("the end of streams", Bed::is_quiet);
                bed.settle();
                assert_eq!(moved(&bed), all, "{wire:?} {turns}");
            }
        }
    }
}

#[test]
fn the_end_of_one_is_the_end_of_all_that_are_not_confirmed() {
    for turns in [0, 1, 2, 3, 5, 8, 12, 20] {
        for ending in [FIRST, SECOND] {
            let other = MigrationId(3 - ending.0);
            let mut bed = filled();
            begin(&mut bed);
            for _ in 0..turns {
                bed.turn();
            }
            assert!(!bed.source.is_confirmed(), "{turns}");
            end(&mut bed, ending, false);
            bed.until("the end", has_rolled_back);
            bed.until("the other", |bed| has_wiped(bed, other));
            assert!(
                ![MOVING, OTHER]
                    .map(|p| bed.source.core.is_held(p))
                    .contains(&true)
            );
            end(&mut bed, other, false);
            bed.until("the end of streams", Bed::is_quiet);
            bed.settle();
            assert_eq!(moved(&bed), [None; 2], "{turns} {ending}");
        }
    }
}

#[test]
fn all_are_refused_if_the_shard_refuses_one() {
    for occupied in [MOVING, OTHER] {
        let mut bed = filled();
        let occupied = Taped::of(2, vec![Partition::new(occupied, EPOCH)], [1, 2, 3, 4], 0);
        bed.target.core.keyspace = occupied.keyspace;
        begin(&mut bed);
        bed.until("a refusal", has_rolled_back);
        bed.until("the end of streams", Bed::is_quiet);
        assert!(has_wiped(&bed, FIRST) && has_wiped(&bed, SECOND));
    }
}

#[test]
fn a_cut_ends_all_unless_they_are_confirmed() {
    for turns in [0, 1, 2, 4, 8, 16, 300] {
        let mut bed = filled();
        let cut = begin(&mut bed);
        for _ in 0..turns {
            bed.turn();
        }
        if turns == 300 {
            bed.until("both", |bed| bed.source.is_confirmed());
        }
        cut.shutdown(Shutdown::Both).expect("a socket");
        bed.settle();
        assert!(
            has_rolled_back(&bed) != bed.source.is_confirmed(),
            "{turns}"
        );
        for id in [FIRST, SECOND] {
            end(&mut bed, id, false);
        }
        bed.until("the end of streams", Bed::is_quiet);
        bed.settle();
        assert_eq!(moved(&bed), [None; 2]);
    }
}
