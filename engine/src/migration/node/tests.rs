//! Migrations of two nodes over one replicated state, which decides as coordinators do.

mod batches;
mod bed;

use ephesus_coordinator::command::Command;
use ephesus_coordinator::migration::{Abort, AbortReason, Confirmation};
use ephesus_wire::record::Source;
use ephesus_wire::stream::Open;
use ephesus_wire::table::PartitionStatus;

use self::bed::*;
use super::*;
use crate::migration::Way;
use crate::node::data_dir::StagingPlace;

/// Whether shard 0 is to give up its first copy, and nothing else.
fn is_given_up(effects: &Effects) -> bool {
    let partition = P;
    matches!(
        effects.orders[..],
        [(ShardId(0), Order::Drop { partition: of, epoch: Epoch(1) })] if of == partition
    )
}

#[test]
fn a_partition_moves_to_another_node() {
    let mut bed = Bed::new();
    let id = bed.plan(0, place(B, 1));
    let effects = bed.turn(A, []);
    assert_eq!(effects.steps, Some(BTreeMap::from([(id, Step::Begin)])));
    assert!(
        effects.dials.is_empty(),
        "before it is decided that it begins"
    );
    let mut effects = bed.turn(A, []);
    assert_eq!(effects.steps, Some(BTreeMap::new()));
    let dial = Dial {
        batch: single(id, open_of(0, 2)),
        target: B,
        address: "node-2:17379".to_owned(),
    };
    assert_eq!(effects.dials, std::slice::from_ref(&dial));
    assert!(bed.turn(A, []).dials.is_empty(), "once");

    let (near, offer) = offered(dial.batch.clone(), A);
    effects = bed.turn(B, [offer]);
    assert!(effects.layout.is_some() && effects.routes && !effects.hosted);
    assert!(effects.begun.is_empty());
    assert!(matches!(
        &effects.orders[..],
        [(ShardId(1), Order::Receive { batch, way: Way::Node(_) })] if *batch == dial.batch
    ));
    let staging = StagingPlace {
        partition: P,
        shard: ShardId(1),
        epoch: Epoch(2),
        source: Source {
            migration: id,
            node: A,
            shard: ShardId(0),
        },
    };
    assert_eq!(bed.b.layout.staging(), [staging]);

    effects = bed.turn(A, [dialled(id, Ok(near))]);
    assert!(matches!(
        &effects.orders[..],
        [(ShardId(0), Order::Send { batch, way: Way::Node(_), .. })] if *batch == dial.batch
    ));
    let (keys, bytes, hold_us) = (3, 4, 5);
    let migration = id;
    effects = bed.report(
        A,
        Report::Progress {
            migration,
            keys,
            bytes,
            hold_us,
        },
    );
    assert_eq!(effects.progress.expect("news")[&id].bytes, 4);
    effects = bed.report(A, confirmed(id));
    let confirmation = Confirmation {
        count: 3,
        digest: [4, 5],
    };
    let commit = BTreeMap::from([(id, Step::Commit(vec![(id, confirmation)]))]);
    assert_eq!(effects.steps, Some(commit));
    assert_eq!(bed.owner(0).0, place(B, 1), "decided");

    effects = bed.turn(A, []);
    assert!(effects.routes && effects.layout.is_none());
    assert!(is_given_up(&effects), "{effects:?}");
    assert!(effects.progress.is_some_and(|all| all.contains_key(&id)));
    assert!(bed.turn(A, []).orders.is_empty(), "once");
    effects = bed.turn(B, []);
    assert!(
        matches!(
            effects.orders[..],
            [(ShardId(1), Order::Committed { migration, partition: P, epoch: Epoch(2) })]
                if migration == id
        ),
        "{effects:?}"
    );
    assert!(effects.begun.is_empty(), "it does not begin empty");
    assert!(bed.turn(B, []).orders.is_empty(), "once");

    let (partition, epoch) = (P, Epoch(2));
    effects = bed.report(B, Report::Activated { partition, epoch });
    assert!(effects.layout.is_some() && effects.hosted);
    assert!(matches!(
        effects.orders[..],
        [(
            ShardId(1),
            Order::Settle {
                partition: P,
                epoch: Epoch(2)
            }
        )]
    ));
    assert_eq!(bed.b.layout.served(P), Some((ShardId(1), Epoch(2))));
    let epoch = Epoch(1);
    effects = bed.report(A, Report::Dropped { partition, epoch });
    assert!(effects.layout.is_some() && effects.hosted);
    assert!(matches!(
        effects.orders[..],
        [(
            ShardId(0),
            Order::Forget {
                partition: P,
                epoch: Epoch(1)
            }
        )]
    ));
    assert_eq!(bed.a.layout.served(P), None);
    bed.report(A, Report::Forgotten { partition, epoch });
    assert!(bed.a.migrations.remnants.is_empty());
    bed.now_ms += 60_000;
    let effects = bed.turn(A, []);
    assert_eq!(effects.progress, Some(BTreeMap::new()));
    assert!(!bed.a.migrations.is_waiting());
}

#[test]
fn a_partition_moves_to_another_shard_of_its_node() {
    for target_is_first in [false, true] {
        let mut bed = Bed::new();
        let id = bed.plan(0, place(A, 1));
        bed.turn(A, []);
        let effects = bed.turn(A, []);
        assert!(effects.layout.is_some() && effects.dials.is_empty());
        let [
            (
                ShardId(0),
                Order::Send {
                    way: Way::Shard(ShardId(1)),
                    ref batch,
                    ..
                },
            ),
            (
                ShardId(1),
                Order::Receive {
                    way: Way::Shard(ShardId(0)),
                    ..
                },
            ),
        ] = effects.orders[..]
        else {
            panic!("{effects:?}");
        };
        assert_eq!(batch.id(), id);
        bed.report(A, confirmed(id));
        let effects = bed.turn(A, []);
        let shards: Vec<ShardId> = effects.orders.iter().map(|(shard, _)| *shard).collect();
        assert_eq!(shards, [ShardId(0), ShardId(1)], "{effects:?}");
        let partition = P;
        let activated = Report::Activated {
            partition,
            epoch: Epoch(2),
        };
        let given_up = Report::Dropped {
            partition,
            epoch: Epoch(1),
        };
        let mut reports = vec![given_up, activated];
        if target_is_first {
            reports.reverse();
        }
        for report in reports {
            assert!(bed.report(A, report).layout.is_some() || target_is_first);
        }
        assert_eq!(bed.a.layout.served(P), Some((ShardId(1), Epoch(2))));
        assert!(bed.a.layout.staging().is_empty());
        // Back again, but not before nothing is left of the first copy.
        let back = bed.plan(0, place(A, 0));
        bed.turn(A, []);
        assert!(bed.turn(A, []).orders.is_empty());
        bed.now_ms += AGAIN_MS;
        let forgotten = Report::Forgotten {
            partition,
            epoch: Epoch(1),
        };
        let effects = bed.report(A, forgotten);
        assert_eq!(effects.orders.len(), 2, "{effects:?}");
        assert!(bed.is_active(back));
    }
}

#[test]
fn a_copy_is_not_forgotten_before_the_layout_that_replaces_it_is_durable() {
    let mut bed = Bed::new();
    let id = bed.plan(0, place(A, 1));
    bed.turn(A, []);
    bed.turn(A, []);
    bed.report(A, confirmed(id));
    bed.turn(A, []);
    let (partition, old, new) = (P, Epoch(1), Epoch(2));
    let (node, now_ms) = (&mut bed.a, bed.now_ms);
    let mut turn = |event| node.migrations.turn([event], &mut node.layout, now_ms);
    let epoch = new;
    let effects = turn(Event::Report(Report::Activated { partition, epoch }));
    let number = effects.layout.expect("another copy is served");
    let epoch = old;
    let effects = turn(Event::Report(Report::Dropped { partition, epoch }));
    assert!(effects.layout.is_none(), "it names the old copy no more");
    assert!(effects.orders.is_empty(), "{effects:?}");
    let effects = turn(Event::Written(number));
    let [(ShardId(1), settle), (ShardId(0), forget)] = &effects.orders[..] else {
        panic!("{effects:?}");
    };
    assert!(matches!(settle, Order::Settle { epoch, .. } if *epoch == new));
    assert!(matches!(forget, Order::Forget { epoch, .. } if *epoch == old));
}

#[test]
fn a_copy_stays_when_the_end_of_an_earlier_one_of_its_epoch_is_told_again() {
    let mut bed = Bed::new();
    let first = bed.copying();
    let wiped = |migration| Report::Wiped {
        migration,
        partition: P,
        epoch: Epoch(2),
        reason: String::new(),
    };
    let (reason, text) = (AbortReason::Cancelled, String::new());
    let abort = Abort { reason, text };
    let abort = Command::AbortMigration { id: first, abort };
    bed.state.apply(&abort).expect("cancelled");
    bed.turn(A, []);
    let effects = bed.turn(B, []);
    assert!(
        matches!(effects.orders[..], [(ShardId(1), Order::Aborted { .. })]),
        "{effects:?}"
    );
    let batch = first;
    let reason = String::new();
    bed.report(A, Report::RolledBack { batch, reason });
    bed.report(B, wiped(first));
    let (partition, epoch) = (P, Epoch(2));
    bed.report(B, Report::Forgotten { partition, epoch });
    let second = bed.copying();
    let effects = bed.report(B, wiped(first));
    assert!(
        effects.layout.is_none() && effects.orders.is_empty(),
        "{effects:?}"
    );
    let staging = bed.b.layout.staging_of(P).expect("named still");
    assert_eq!(staging.source.migration, second);
    let effects = bed.report(B, wiped(second));
    assert!(effects.layout.is_some() && bed.b.layout.staging().is_empty());
}

#[test]
fn a_source_that_has_started_again_gives_up_what_it_has_begun() {
    let mut bed = Bed::new();
    let id = bed.copying();
    let view = Arc::new(View::of(&bed.state).expect("founded"));
    bed.a.migrations = NodeMigrations::new(A, view, Arc::default());
    bed.a.incarnation = 2;
    bed.state.apply(&registration(A, 2)).expect("a member");
    bed.turn(A, []);
    let abort = bed.abort_of(id);
    assert_eq!(
        (abort.reason, &*abort.text),
        (AbortReason::Source, RESTARTED)
    );
    let effects = bed.turn(A, []);
    assert!(effects.orders.is_empty(), "its shards know of nothing");
    let effects = bed.turn(B, []);
    assert!(matches!(
        effects.orders[..],
        [(
            ShardId(1),
            Order::Aborted {
                partition: P,
                epoch: Epoch(2),
                ..
            }
        )]
    ));
}

#[test]
fn what_a_source_gives_up_is_aborted_and_what_the_target_has_of_it_is_removed() {
    let mut bed = Bed::new();
    let id = bed.copying();
    let (migration, reason) = (id, "it does not converge".to_owned());
    bed.report(
        A,
        Report::RolledBack {
            batch: migration,
            reason,
        },
    );
    assert_eq!(bed.abort_of(id).text, "it does not converge");
    assert_eq!(
        bed.owner(0),
        (place(A, 0), Epoch(1), PartitionStatus::Online)
    );
    let effects = bed.turn(A, []);
    assert!(effects.orders.is_empty() && effects.steps == Some(BTreeMap::new()));
    let wiped = Report::Wiped {
        migration,
        partition: P,
        epoch: Epoch(2),
        reason: String::new(),
    };
    let effects = bed.report(B, wiped);
    assert!(effects.layout.is_some() && effects.steps.is_none());
    assert!(matches!(
        effects.orders[..],
        [(
            ShardId(1),
            Order::Forget {
                partition: P,
                epoch: Epoch(2)
            }
        )]
    ));
    assert!(bed.b.layout.staging().is_empty());
    assert!(bed.b.migrations.has_remnant(P) && !bed.b.migrations.has_remnant(PartitionId(1)));
}

#[test]
fn a_target_whose_stream_has_broken_says_so() {
    let mut bed = Bed::new();
    let migration = bed.copying();
    let wiped = Report::Wiped {
        migration,
        partition: P,
        epoch: Epoch(2),
        reason: "the stream broke".to_owned(),
    };
    bed.report(B, wiped);
    let abort = bed.abort_of(migration);
    assert_eq!(
        (abort.reason, &*abort.text),
        (AbortReason::Target, "the stream broke")
    );
    let effects = bed.turn(A, []);
    assert!(matches!(
        effects.orders[..],
        [(ShardId(0), Order::Aborted { .. })]
    ));
    assert_eq!(bed.turn(B, []).steps, Some(BTreeMap::new()));
}

#[test]
fn a_source_that_is_not_answered_says_abort_behind_its_commit() {
    let mut bed = Bed::new();
    let migration = bed.copying();
    // Nothing that it says arrives.
    bed.a.incarnation = 0;
    let effects = bed.report(A, confirmed(migration));
    assert!(matches!(
        effects.steps.expect("news")[&migration],
        Step::Commit(_)
    ));
    let effects = bed.report(A, Report::Overdue { batch: migration });
    assert_eq!(
        effects.steps.expect("news")[&migration],
        Step::Abort("it was not decided in time".to_owned())
    );
    assert!(effects.orders.is_empty(), "it goes on holding");
    bed.a.incarnation = 1;
    bed.turn(A, []);
    assert_eq!(bed.abort_of(migration).reason, AbortReason::Source);
    let effects = bed.turn(A, []);
    assert!(matches!(
        effects.orders[..],
        [(ShardId(0), Order::Aborted { .. })]
    ));
}

#[test]
fn a_target_that_is_not_there_is_dialled_again_and_then_given_up() {
    let mut bed = Bed::new();
    let id = bed.plan(0, place(B, 1));
    bed.turn(A, []);
    let mut dials = bed.turn(A, []).dials.len();
    for _ in 0..100 {
        if !bed.is_active(id) {
            break;
        }
        bed.turn(A, [dialled(id, Err("nobody there"))]);
        bed.now_ms += AGAIN_MS;
        dials += bed.turn(A, []).dials.len();
    }
    assert_eq!(bed.abort_of(id).text, "nobody there");
    assert_eq!(dials as u64, PATIENCE_MS / AGAIN_MS);
    // A stream that opens too late ends at once.
    let effects = bed.turn(A, [dialled(id, Ok(pair().0))]);
    assert!(effects.orders.is_empty());
}

#[test]
fn a_stream_waits_for_a_table_that_knows_it_and_is_refused_otherwise() {
    let mut bed = Bed::new();
    let offer = |id, open, from| offered(single(MigrationId(id), open), from).1;
    let effects = bed.turn(B, [offer(1, open_of(0, 2), A)]);
    assert!(effects.refusals.is_empty() && effects.orders.is_empty());
    assert!(bed.b.migrations.is_waiting());
    bed.now_ms += PATIENCE_MS;
    let effects = bed.turn(B, []);
    assert_eq!(effects.refusals.len(), 1);
    assert!(effects.refusals[0].1.contains("does not know"));

    let effects = bed.turn(B, [offer(1, open_of(0, 2), A)]);
    assert!(effects.refusals.is_empty());
    let id = bed.plan(0, place(B, 1));
    assert!(bed.turn(B, []).orders.is_empty(), "it has not begun");
    bed.turn(A, []);
    let other_shard = Open {
        target_shard: ShardId(0),
        ..open_of(0, 2)
    };
    for (open, from) in [
        (open_of(1, 2), A),
        (open_of(0, 3), A),
        (other_shard, A),
        (open_of(0, 2), B),
    ] {
        let effects = bed.turn(A, []);
        drop(effects);
        let node = &mut bed.b;
        let effects = node
            .migrations
            .turn([offer(id.0, open, from)], &mut node.layout, bed.now_ms);
        assert_eq!(effects.refusals.len(), 1, "{open:?} from {from}");
    }
    assert_eq!(bed.turn(B, []).orders.len(), 1, "the first one is taken");

    let text = String::new();
    let reason = AbortReason::Cancelled;
    let abort = Abort { reason, text };
    bed.state
        .apply(&Command::AbortMigration { id, abort })
        .expect("cancelled");
    let effects = bed.turn(B, [offer(1, open_of(0, 2), A)]);
    assert!(effects.refusals[0].1.contains("over"));
}

#[test]
fn a_start_with_a_prepared_copy_does_what_was_decided() {
    for is_committed in [false, true] {
        let mut bed = Bed::new();
        let migration = bed.copying();
        // The target starts again, and knows only its layout.
        let view = Arc::new(View::of(&bed.state).expect("founded"));
        bed.b.migrations = NodeMigrations::new(B, view, Arc::default());
        assert!(bed.turn(B, []).orders.is_empty(), "it is open");
        if is_committed {
            bed.report(A, confirmed(migration));
        } else {
            let reason = "no".to_owned();
            bed.report(
                A,
                Report::RolledBack {
                    batch: migration,
                    reason,
                },
            );
        }
        let effects = bed.turn(B, []);
        let [(ShardId(1), order)] = &effects.orders[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(matches!(order, Order::Committed { .. }), is_committed);
        assert_eq!(matches!(order, Order::Aborted { .. }), !is_committed);
    }
}

#[test]
fn a_partition_that_comes_back_waits_until_its_old_copy_is_forgotten() {
    let mut bed = Bed::new();
    let migration = bed.copying();
    let partition = P;
    bed.report(A, confirmed(migration));
    bed.turn(A, []);
    bed.turn(B, []);
    bed.report(
        B,
        Report::Activated {
            partition,
            epoch: Epoch(2),
        },
    );
    bed.plan(0, place(A, 1));
    bed.turn(B, []);
    let dial = bed.turn(B, []).dials.remove(0);
    let (_, offer) = offered(dial.batch, B);
    assert!(bed.turn(A, [offer]).orders.is_empty());
    let epoch = Epoch(1);
    bed.report(A, Report::Dropped { partition, epoch });
    let effects = bed.report(A, Report::Forgotten { partition, epoch });
    assert!(
        matches!(effects.orders[..], [(ShardId(1), Order::Receive { .. })]),
        "{effects:?}"
    );
}

#[test]
fn what_rests_on_a_layout_waits_for_it_and_the_table_s_word_behind_that() {
    let mut bed = Bed::new();
    let id = bed.plan(0, place(A, 1));
    bed.turn(A, []);
    let view = |bed: &Bed| Event::Table(Arc::new(View::of(&bed.state).expect("founded")));
    let (table, now_ms) = (view(&bed), bed.now_ms);
    let node = &mut bed.a;
    let effects = node.migrations.turn([table], &mut node.layout, now_ms);
    let number = effects.layout.expect("it names the staging copy");
    assert!(effects.orders.is_empty() && effects.routes);
    let (reason, text) = (AbortReason::Cancelled, String::new());
    let abort = Abort { reason, text };
    let abort = Command::AbortMigration { id, abort };
    bed.state.apply(&abort).expect("cancelled");
    let table = view(&bed);
    let node = &mut bed.a;
    let effects = node.migrations.turn([table], &mut node.layout, now_ms);
    assert!(effects.orders.is_empty(), "{effects:?}");
    let written = [Event::Written(number)];
    let effects = node.migrations.turn(written, &mut node.layout, now_ms);
    let orders = effects.orders.iter();
    let kinds: Vec<(u16, &str)> = orders
        .map(|(shard, order)| match order {
            Order::Send { .. } => (shard.0, "send"),
            Order::Receive { .. } => (shard.0, "receive"),
            Order::Aborted { .. } => (shard.0, "aborted"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [(0, "send"), (1, "receive"), (0, "aborted"), (1, "aborted")]
    );
}

#[test]
fn copies_that_begin_are_with_nobody_before_the_layout_names_them() {
    let mut bed = Bed::new();
    let lost = Command::Fail {
        node: A,
        incarnation: 1,
    };
    bed.state.apply(&lost).expect("a member");
    let remove = Command::Remove {
        node: A,
        lose_data: true,
    };
    bed.state.apply(&remove).expect("given up");
    let table = Event::Table(Arc::new(View::of(&bed.state).expect("founded")));
    let (node, now_ms) = (&mut bed.b, bed.now_ms);
    let effects = node.migrations.turn([table], &mut node.layout, now_ms);
    let number = effects.layout.expect("all begin at B");
    assert!(effects.begun.is_empty() && !effects.hosted);
    assert!(!node.migrations.is_begun(P));
    let written = [Event::Written(number)];
    let effects = node.migrations.turn(written, &mut node.layout, now_ms);
    assert_eq!(effects.begun.len(), usize::from(PARTITIONS));
    assert!(effects.hosted && effects.routes && node.migrations.is_begun(P));
}

/// Partition 0 arrives at B, which goes on with it, while A sees no table.
fn moved_behind_the_back_of_a(bed: &mut Bed) -> MigrationId {
    let migration = bed.copying();
    bed.report(A, confirmed(migration));
    assert_eq!(bed.owner(0).0, place(B, 1), "decided");
    bed.turn(B, []);
    let (partition, epoch) = (P, Epoch(2));
    bed.report(B, Report::Activated { partition, epoch });
    migration
}

#[test]
fn a_source_that_misses_the_table_of_its_commit_gives_up_when_the_partition_has_moved_on() {
    let mut bed = Bed::new();
    moved_behind_the_back_of_a(&mut bed);
    // B passes it on to its other shard, by a migration that A knows nothing of.
    bed.plan(0, place(B, 0));
    bed.turn(B, []);
    let effects = bed.turn(B, []);
    let [(_, Order::Send { batch, .. }), _] = &effects.orders[..] else {
        panic!("{effects:?}");
    };
    bed.report(B, confirmed(batch.id()));
    assert_eq!(bed.owner(0).1, Epoch(3));
    let effects = bed.turn(A, []);
    assert!(is_given_up(&effects) && effects.routes, "{effects:?}");
}

#[test]
fn a_source_that_misses_its_commit_gives_up_when_the_target_was_removed_with_the_data() {
    let mut bed = Bed::new();
    moved_behind_the_back_of_a(&mut bed);
    let (node, incarnation) = (B, 1);
    let fail = Command::Fail { node, incarnation };
    bed.state.apply(&fail).expect("a member");
    let lose_data = true;
    let remove = Command::Remove { node, lose_data };
    bed.state.apply(&remove).expect("given up");
    assert_eq!((bed.owner(0).0.node, bed.owner(0).1), (A, Epoch(3)));
    let effects = bed.turn(A, []);
    assert!(is_given_up(&effects), "{effects:?}");
    // Its own again, and empty, as soon as nothing is left of the old copy: no other table has to come for that.
    let (partition, epoch) = (P, Epoch(1));
    bed.report(A, Report::Dropped { partition, epoch });
    let (node, now_ms) = (&mut bed.a, bed.now_ms);
    let forgotten = Event::Report(Report::Forgotten { partition, epoch });
    let effects = node.migrations.turn([forgotten], &mut node.layout, now_ms);
    let number = effects.layout.expect("it names the new copy");
    let written = [Event::Written(number)];
    let effects = node.migrations.turn(written, &mut node.layout, now_ms);
    let place = bed.owner(0).0;
    assert_eq!(effects.begun, [(P, place.shard, Epoch(3))]);
}

#[test]
fn a_copy_that_nothing_moves_is_given_up_too_when_its_partition_has_arrived_elsewhere() {
    let mut bed = Bed::new();
    moved_behind_the_back_of_a(&mut bed);
    // Whatever A has known of the migration.
    bed.a.migrations.sending.clear();
    bed.a.migrations.batches.clear();
    assert!(is_given_up(&bed.turn(A, [])));
}

#[test]
fn a_copy_that_becomes_void_before_its_shard_has_it_is_given_up_once_it_does() {
    let mut bed = Bed::new();
    let fail = |node| Command::Fail {
        node,
        incarnation: 1,
    };
    let remove = |node| Command::Remove {
        node,
        lose_data: true,
    };
    bed.state.apply(&fail(A)).expect("a member");
    bed.state.apply(&remove(A)).expect("given up");
    let view = |bed: &Bed| Event::Table(Arc::new(View::of(&bed.state).expect("founded")));
    let (table, now_ms) = (view(&bed), bed.now_ms);
    let node = &mut bed.b;
    let effects = node.migrations.turn([table], &mut node.layout, now_ms);
    let number = effects.layout.expect("all begin at B");
    // They arrive elsewhere before the layout is durable.
    let mut newer = View::of(&bed.state).expect("founded");
    newer
        .migrations
        .arrivals
        .get_mut(&P)
        .expect("assigned")
        .epoch = Epoch(9);
    newer.table.entries[0].epoch = Epoch(9);
    newer.table.entries[0].replicas[0].node = A;
    let table = Event::Table(Arc::new(newer));
    let effects = node.migrations.turn([table], &mut node.layout, now_ms);
    assert!(effects.orders.is_empty(), "{effects:?}");
    let written = [Event::Written(number)];
    let effects = node.migrations.turn(written, &mut node.layout, now_ms);
    assert!(effects.begun.iter().any(|(partition, ..)| *partition == P));
    assert!(
        matches!(effects.orders[..], [(_, Order::Drop { partition: P, .. })]),
        "{effects:?}"
    );
}

#[test]
fn a_move_to_a_node_that_recovers_begins_once_it_serves() {
    let mut bed = Bed::new();
    bed.state.apply(&registration(B, 2)).expect("a member");
    let id = bed.plan(0, place(B, 1));
    bed.turn(A, []);
    bed.now_ms += 60_000;
    assert!(bed.turn(A, []).steps.is_none() && bed.is_active(id));
    let (node, incarnation) = (B, 2);
    let started = Command::Started { node, incarnation };
    bed.state.apply(&started).expect("a member");
    let effects = bed.turn(A, []);
    assert_eq!(effects.steps, Some(BTreeMap::from([(id, Step::Begin)])));
}
