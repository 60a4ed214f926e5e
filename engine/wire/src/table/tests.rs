use proptest::prelude::*;

use super::*;

const HERE: NodeId = NodeId([1; 16]);
const THERE: NodeId = NodeId([2; 16]);

fn replica(node: NodeId, shard: u16, role: Role) -> Replica {
    Replica {
        node,
        shard: ShardId(shard),
        role,
        in_sync: true,
    }
}

/// Four partitions: this shard, its neighbour, another node (with a backup here), nobody.
fn table() -> PartitionTable {
    let mut table = PartitionTable::unassigned(Partitioning::new(4).unwrap());
    table.version = 7;
    table.entries[0].replicas = vec![replica(HERE, 0, Role::Primary)];
    table.entries[1].replicas = vec![replica(HERE, 1, Role::Primary)];
    table.entries[2].replicas = vec![
        replica(HERE, 0, Role::Backup),
        replica(THERE, 0, Role::Primary),
    ];
    table.entries[3].replicas = vec![replica(HERE, 0, Role::Backup)];
    table
}

#[test]
fn routes_go_to_the_primary() {
    let route = |slot| route(Slot(slot), &table(), HERE, ShardId(0));
    assert_eq!(route(0), Route::Here);
    assert_eq!(route(4095), Route::Here);
    assert_eq!(route(4096), Route::Shard(ShardId(1)));
    assert_eq!(route(8192), Route::Node(THERE));
    assert_eq!(route(16383), Route::Unowned);
}

#[test]
fn a_table_without_partitions_owns_nothing() {
    let table = PartitionTable {
        version: 1,
        entries: Vec::new(),
    };
    assert!(table.partitioning().is_err());
    assert_eq!(route(Slot(0), &table, HERE, ShardId(0)), Route::Unowned);
    let table = PartitionTable {
        version: 1,
        entries: vec![PartitionEntry::default(); 70_000],
    };
    assert!(table.partitioning().is_err());
}

#[test]
fn shard_ids_are_forty_hex_digits() {
    let hex = shard_id_hex(&NodeId([0xA5; 16]), ShardId(0x1F));
    assert_eq!(&hex, b"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a50000001f");
}

#[test]
fn tables_survive_the_control_plane_codec() {
    let bytes = postcard::to_allocvec(&table()).unwrap();
    assert_eq!(postcard::from_bytes::<PartitionTable>(&bytes), Ok(table()));
}

proptest! {
    #[test]
    fn shard_ids_are_distinct(a: ([u8; 16], u16), b: ([u8; 16], u16)) {
        let id = |(node, shard): ([u8; 16], u16)| shard_id_hex(&NodeId(node), ShardId(shard));
        prop_assert_eq!(id(a) == id(b), a == b);
        prop_assert!(id(a).starts_with(NodeId(a.0).to_string().as_bytes()));
    }
}
