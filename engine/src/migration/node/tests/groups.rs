//! Which moves of a shard are begun and opened together, and what a node sends in all.

use super::*;
use crate::migration::Line;

#[test]
fn a_shard_begins_whole_groups_and_opens_a_few_streams_at_a_time() {
    let mut bed = Bed::new();
    // The odd partitions are on another shard.
    let of_shard = (0..PARTITIONS).step_by(2);
    let ids: Vec<MigrationId> = of_shard.map(|p| bed.plan(p, place(B, 0))).collect();
    let begins = |effects: &Effects| -> Vec<MigrationId> {
        let steps = effects.steps.iter().flatten();
        let begins = steps.filter(|(_, step)| matches!(step, Step::Begin));
        begins.map(|(id, _)| *id).collect()
    };
    let dials = |effects: &Effects| -> Vec<MigrationId> {
        let dials = effects.dials.iter();
        let opens = dials.flat_map(|dial| &dial.opens);
        opens.map(|(migration, _)| *migration).collect()
    };
    assert_eq!(begins(&bed.turn(A, [])), ids[..48], "three groups");
    assert_eq!(dials(&bed.turn(A, [])), ids[..32], "two of them");
    let mut groups = Vec::new();
    for id in &ids[..32] {
        let mut effects = bed.turn(A, [dialled(*id, Ok(pair().0))]);
        match effects.orders.pop() {
            Some((ShardId(0), Order::Send { group, .. })) => groups.push(group),
            other => panic!("{other:?}"),
        }
    }
    assert!(groups[..16].iter().all(|group| *group == groups[0]));
    assert!(groups[16..].iter().all(|group| *group == groups[16]));
    assert_ne!(groups[0], groups[16]);
    for (over, id) in ids[..16].iter().enumerate() {
        let (migration, reason) = (*id, "no".to_owned());
        let effects = bed.report(A, Report::RolledBack { migration, reason });
        assert_eq!(dials(&effects), [ids[32 + over]], "one stream for another");
        let begun = begins(&bed.turn(A, []));
        let is_new = begun.contains(&ids[48]);
        assert_eq!(
            is_new,
            over == 15,
            "no group before there is room for all of it"
        );
        assert!(!is_new || begun.contains(&ids[63]));
    }
}

#[test]
fn a_group_has_one_connection_to_each_shard() {
    let mut bed = Bed::new();
    let to = [place(B, 1), place(B, 0), place(B, 1), place(B, 0)];
    let plan = (0..).step_by(2).zip(to);
    let ids: Vec<MigrationId> = plan.map(|(p, to)| bed.plan(p, to)).collect();
    bed.turn(A, []);
    let dials = bed.turn(A, []).dials;
    let of = |at: usize| -> Vec<MigrationId> {
        let opens = dials[at].opens.iter();
        opens.map(|(migration, _)| *migration).collect()
    };
    assert_eq!(dials.len(), 2);
    assert_eq!([of(0), of(1)], [[ids[0], ids[2]], [ids[1], ids[3]]]);
    let (near, offer) = offered(dials[0].opens.clone(), A);
    let lines = |effects: Effects| -> Vec<Line> {
        let orders = effects.orders.into_iter();
        let lines = orders.filter_map(|(_, order)| match order {
            Order::Send { way, .. } | Order::Receive { way, .. } => match way {
                Way::Node(line) => Some(line),
                Way::Shard(_) => None,
            },
            _ => None,
        });
        lines.collect()
    };
    let received = lines(bed.turn(B, [offer]));
    let migrations = of(0);
    let result = Ok(near);
    let sent = lines(bed.turn(A, [Event::Dialled { migrations, result }]));
    for lines in [received, sent] {
        assert!(lines.len() == 2 && lines[0].is_same(&lines[1]));
        assert!(
            lines[0]
                .take()
                .is_some_and(|taken| taken.refused.is_empty())
        );
        assert!(lines[1].take().is_none(), "once");
    }
}

#[test]
fn one_of_a_connection_may_be_refused() {
    let mut bed = Bed::new();
    let ids = [0, 2].map(|p| bed.plan(p, place(B, 1)));
    bed.turn(A, []);
    let mut dials = bed.turn(A, []).dials;
    let (_near, offer) = offered(dials.remove(0).opens, A);
    bed.turn(A, [dialled(ids[0], Ok(pair().0))]);
    let (migration, reason) = (ids[0], "no".to_owned());
    bed.report(A, Report::RolledBack { migration, reason });
    let orders = bed.turn(B, [offer]).orders;
    let [
        (
            _,
            Order::Receive {
                migration,
                way: Way::Node(line),
                ..
            },
        ),
    ] = &orders[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(*migration, ids[1]);
    let refused = line.take().expect("the first").refused;
    assert_eq!(refused, [(ids[0], "the migration is over".to_owned())]);
}

#[test]
fn a_group_goes_to_one_node() {
    let mut bed = Bed::new();
    let to = [place(B, 1), place(A, 1), place(B, 1), place(A, 1)];
    let plan = (0..).step_by(2).zip(to);
    let ids: Vec<MigrationId> = plan.map(|(p, to)| bed.plan(p, to)).collect();
    bed.turn(A, []);
    let mut orders = bed.turn(A, []).orders;
    for id in &ids {
        orders.extend(bed.turn(A, [dialled(*id, Ok(pair().0))]).orders);
    }
    let mut groups = BTreeMap::new();
    for (_, order) in orders {
        if let Order::Send {
            migration, group, ..
        } = order
        {
            groups.insert(migration, group);
        }
    }
    let of = |at: usize| groups[&ids[at]];
    assert!(
        of(0) == of(2) && of(1) == of(3) && of(0) != of(1),
        "{groups:?}"
    );
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
    let migration = ids[1];
    let effects = bed.report(A, Report::RolledBack { migration, reason });
    assert_eq!(limits(&effects), [(0, 9_000_000)]);
}
