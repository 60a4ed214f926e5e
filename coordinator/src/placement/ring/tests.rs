use super::super::{Place, Spec};
use super::*;
use ephesus_wire::{NodeId, ShardId};

#[test]
fn points_are_equally_far_from_one_another() {
    assert_eq!([0, 1, 2, 3].map(|p| position(p, 4) >> 62), [0, 1, 2, 3]);
    assert_eq!(position(16_383, 16_384), u64::MAX << 50);
    assert_eq!(position(0, 0), 0);
}

#[test]
fn more_tokens_than_there_is_room_for_are_fewer_and_it_is_said() {
    let place = |shard| Place {
        node: NodeId([1; 16]),
        shard: ShardId(shard),
    };
    let spec = |shard| Spec {
        place: place(shard),
        weight: 10_000,
        rack: None,
    };
    let ring = Ring {
        vnodes: 1024,
        ..Ring::default()
    };
    let plan = ring.plan(&Request {
        partitions: 4,
        places: &(0..21).map(spec).collect::<Vec<_>>(),
        current: &[],
        moves_max: 0,
    });
    assert_eq!(plan.owners.iter().flatten().count(), 4);
    let tokens = 21 * 1024 * 100;
    let divisor = 2;
    assert!(plan.unmet.contains(&Unmet::Tokens { tokens, divisor }));
}
