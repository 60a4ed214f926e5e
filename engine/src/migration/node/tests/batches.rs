//! Which migrations of a shard are a batch, how many are begun and opened, and what a node sends in all.

use ephesus_coordinator::migration::Purpose;
use ephesus_coordinator::placement::Move;

use super::*;
use crate::migration::batch::BATCH_BYTES_MAX;

/// The migrations that are to begin.
fn begins(effects: &Effects) -> Vec<MigrationId> {
    let steps = effects.steps.iter().flatten();
    let begins = steps.filter(|(_, step)| matches!(step, Step::Begin));
    begins.map(|(id, _)| *id).collect()
}

/// The migrations of each batch that is dialled.
fn dials(effects: &Effects) -> Vec<Vec<MigrationId>> {
    let ids = |dial: &Dial| dial.batch.moves().iter().map(|(id, _)| *id).collect();
    effects.dials.iter().map(ids).collect()
}

fn rolled_back(batch: MigrationId) -> Report {
    let reason = "no".to_owned();
    Report::RolledBack { batch, reason }
}

#[test]
fn a_shard_begins_three_batches_and_has_streams_of_two() {
    let mut bed = Bed::new();
    // The odd partitions are on another shard.
    let of_shard = (0..PARTITIONS).step_by(2);
    let ids: Vec<MigrationId> = of_shard.map(|p| bed.plan(p, place(B, 0))).collect();
    assert_eq!(begins(&bed.turn(A, [])), ids[..48]);
    assert_eq!(dials(&bed.turn(A, [])), [&ids[..16], &ids[16..32]]);
    for batch in [ids[0], ids[16]] {
        let effects = bed.turn(A, [dialled(batch, Ok(pair().0))]);
        let [(ShardId(0), Order::Send { batch: sent, .. })] = &effects.orders[..] else {
            panic!("{effects:?}");
        };
        assert_eq!((sent.id(), sent.moves().len()), (batch, 16));
    }
    let effects = bed.report(A, rolled_back(ids[0]));
    assert_eq!(dials(&effects), [&ids[32..48]], "one stream for another");
    assert_eq!(begins(&bed.turn(A, [])), ids[48..64]);
}

#[test]
fn a_batch_goes_from_one_shard_to_one_other() {
    let mut bed = Bed::new();
    let to = [place(B, 1), place(B, 0), place(B, 1), place(B, 0)];
    let plan = (0..).step_by(2).zip(to);
    let ids: Vec<MigrationId> = plan.map(|(p, to)| bed.plan(p, to)).collect();
    bed.turn(A, []);
    let effects = bed.turn(A, []);
    assert_eq!(dials(&effects), [[ids[0], ids[2]], [ids[1], ids[3]]]);
    let (_near, offer) = offered(effects.dials[0].batch.clone(), A);
    let effects = bed.turn(B, [offer]);
    let [(ShardId(1), Order::Receive { batch, .. })] = &effects.orders[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(batch.id(), ids[0]);
    assert_eq!(bed.b.layout.staging().len(), 2, "one layout for both");
}

#[test]
fn a_partition_that_is_large_or_of_unknown_size_is_a_batch_of_its_own() {
    let unknown = u64::MAX;
    for large in [BATCH_BYTES_MAX + 1, unknown] {
        let mut bed = Bed::new();
        let bytes = [1, large, 1, BATCH_BYTES_MAX - 1, 1];
        let sizes = bytes.iter().flat_map(|bytes| [*bytes, 0]);
        bed.a.migrations.partition_bytes = sizes.map(Counter::of).collect();
        let ids = [0, 2, 4, 6, 8].map(|p| bed.plan(p, place(B, 0)));
        assert_eq!(begins(&bed.turn(A, [])), ids);
        let batches = dials(&bed.turn(A, []));
        assert_eq!(
            batches,
            [vec![ids[0], ids[2]], vec![ids[1]], ids[3..].to_vec()]
        );
    }
}

#[test]
fn what_has_failed_twice_with_others_goes_alone() {
    let mut bed = Bed::new();
    let to = place(B, 0);
    let moves = [0, 2]
        .map(|p| Move {
            partition: PartitionId(p),
            to,
        })
        .to_vec();
    let purpose = Purpose::Rebalance;
    bed.state
        .apply(&Command::PlanMoves { moves, purpose })
        .expect("planned");
    let mut sizes = Vec::new();
    for _ in 0..3 {
        bed.turn(A, []);
        let batches = dials(&bed.turn(A, []));
        sizes.push(batches.len());
        for id in batches.concat() {
            let (reason, text) = (AbortReason::Target, String::new());
            let abort = Abort { reason, text };
            bed.state
                .apply(&Command::AbortMigration { id, abort })
                .expect("aborted");
            bed.state
                .apply(&Command::RetryMigration { id })
                .expect("again");
        }
    }
    assert_eq!(sizes, [1, 1, 2]);
}

#[test]
fn a_batch_goes_without_those_that_have_lost_their_turn() {
    let mut bed = Bed::new();
    let apply = |bed: &mut Bed, command: Command| {
        let applied = bed.state.apply(&command);
        applied.expect("applied");
    };
    apply(&mut bed, Command::MovesMax { moves: 2 });
    let to = place(B, 0);
    let moves = [0, 2].map(PartitionId);
    let moves = moves.map(|partition| Move { partition, to }).to_vec();
    let purpose = Purpose::Rebalance;
    apply(&mut bed, Command::PlanMoves { moves, purpose });
    let ids = [1, 2].map(MigrationId);
    // Nothing that it says arrives before its target has failed and is there again.
    bed.a.incarnation = 0;
    assert_eq!(begins(&bed.turn(A, [])), ids);
    let (node, incarnation) = (B, 1);
    apply(&mut bed, Command::Fail { node, incarnation });
    apply(&mut bed, Command::MovesMax { moves: 1 });
    apply(&mut bed, Command::Started { node, incarnation });
    bed.a.incarnation = 1;
    assert_eq!(begins(&bed.turn(A, [])), ids[..1]);
    assert_eq!(dials(&bed.turn(A, [])), [&ids[..1]]);
    let (reason, text) = (AbortReason::Cancelled, String::new());
    let abort = Abort { reason, text };
    let id = ids[0];
    apply(&mut bed, Command::AbortMigration { id, abort });
    assert_eq!(begins(&bed.turn(A, [])), ids[1..]);
    assert_eq!(dials(&bed.turn(A, [])), [&ids[1..]]);
}

#[test]
fn the_end_of_one_is_the_end_of_its_batch() {
    for is_confirmed in [false, true] {
        let mut bed = Bed::new();
        let ids = [0, 2].map(|p| bed.plan(p, place(B, 1)));
        bed.turn(A, []);
        bed.turn(A, []);
        bed.turn(A, [dialled(ids[0], Ok(pair().0))]);
        let (reason, text) = (AbortReason::Cancelled, String::new());
        let abort = Abort { reason, text };
        let cancel = Command::AbortMigration { id: ids[1], abort };
        if is_confirmed {
            // Nothing that it says arrives before.
            bed.a.incarnation = 0;
            let contents = ids.map(|id| (id, CONTENTS)).to_vec();
            let batch = ids[0];
            bed.report(A, Report::Confirmed { batch, contents });
            bed.a.incarnation = 1;
        }
        bed.state.apply(&cancel).expect("cancelled");
        let effects = bed.turn(A, []);
        let [(ShardId(0), Order::Aborted { migration, .. })] = effects.orders[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(migration, ids[1]);
        let abort = bed.abort_of(ids[0]);
        let text = format!("migration {} of its batch is over", ids[1]);
        assert_eq!((abort.reason, abort.text), (AbortReason::Source, text));
        let effects = bed.turn(A, []);
        let [(ShardId(0), Order::Aborted { migration, .. })] = effects.orders[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(migration, ids[0], "its shard may hold it");
        assert!(bed.a.migrations.batches.is_empty());
    }
}

#[test]
fn a_batch_is_refused_if_one_of_it_is() {
    let mut bed = Bed::new();
    let ids = [0, 2].map(|p| bed.plan(p, place(B, 1)));
    bed.turn(A, []);
    let mut dials = bed.turn(A, []).dials;
    let (_near, offer) = offered(dials.remove(0).batch, A);
    let (reason, text) = (AbortReason::Cancelled, String::new());
    let abort = Abort { reason, text };
    let cancel = Command::AbortMigration { id: ids[1], abort };
    bed.state.apply(&cancel).expect("cancelled");
    let effects = bed.turn(B, [offer]);
    assert!(effects.orders.is_empty() && bed.b.layout.staging().is_empty());
    assert_eq!(effects.refusals[0].1, "the migration is over");
}

#[test]
fn what_a_node_may_send_is_divided_among_the_shards_that_send() {
    let mut bed = Bed::new();
    let ids = [0, 1].map(|p| bed.plan(p, place(B, 0)));
    let limit = Command::LimitMoves { mb_s: 9 };
    bed.state.apply(&limit).expect("it moves");
    bed.turn(A, []);
    bed.turn(A, []);
    let limits = |effects: &Effects| -> Vec<(u16, u64)> {
        let orders = effects.orders.iter();
        let limits = orders.filter_map(|(shard, order)| match order {
            Order::Limit(bytes) => Some((shard.0, *bytes)),
            _ => None,
        });
        limits.collect()
    };
    let effects = bed.turn(A, [dialled(ids[0], Ok(pair().0))]);
    assert_eq!(limits(&effects), [(0, 9_000_000)]);
    let mut effects = bed.turn(A, [dialled(ids[1], Ok(pair().0))]);
    effects.orders.sort_by_key(|(shard, _)| *shard);
    assert_eq!(limits(&effects), [(0, 4_500_000), (1, 4_500_000)]);
    let reason = "no".to_owned();
    let batch = ids[1];
    let effects = bed.report(A, Report::RolledBack { batch, reason });
    assert_eq!(limits(&effects), [(0, 9_000_000)]);
}
