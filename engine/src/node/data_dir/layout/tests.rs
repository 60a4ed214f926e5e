use ephesus_wire::{MigrationId, NodeId};

use super::*;

fn two_shards(partitions: u16) -> Layout {
    let logs = [LogId([1; 16]), LogId([2; 16])];
    Layout::empty(partitions, logs.into_iter())
}

fn staging(partition: u16, shard: u16, epoch: u64) -> StagingPlace {
    StagingPlace {
        partition: PartitionId(partition),
        shard: ShardId(shard),
        epoch: Epoch(epoch),
        source: Source {
            migration: MigrationId(70 + u64::from(partition)),
            node: NodeId([9; 16]),
            shard: ShardId(3),
        },
    }
}

/// Partitions 0 to 3 are served on shard 0 at epoch 4.
fn serving() -> Layout {
    let mut layout = two_shards(6);
    layout.add_copies(&[(ShardId(0), Epoch(4)); 4]);
    layout
}

#[test]
fn copies_are_added_where_there_are_none() {
    let mut layout = two_shards(3);
    assert_eq!(layout.copies().count(), 0);
    let plan = [
        (ShardId(1), Epoch(4)),
        (ShardId(0), NO_COPY),
        (ShardId(0), Epoch(2)),
    ];
    let first = layout.add_copies(&plan[..1]);
    assert_eq!(first, [(PartitionId(0), ShardId(1), Epoch(4))]);
    let second = layout.add_copies(&plan);
    assert_eq!(second, [(PartitionId(2), ShardId(0), Epoch(2))]);
    assert_eq!(layout.copies().count(), 2);
    assert_eq!(layout.add_copies(&plan), []);
}

#[test]
fn layouts_with_staging_copies_come_back() {
    let mut layout = serving();
    layout.has_image[2] = true;
    for staging in [staging(5, 1, 7), staging(0, 1, 5), staging(4, 0, 300)] {
        layout.add_staging(staging).expect("nothing is in its way");
    }
    assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
}

#[test]
fn the_first_version_is_read() {
    let layout = serving();
    let old = (&layout.logs, &layout.partitions, &layout.has_image);
    let body = postcard::to_allocvec(&old).expect("encodes");
    let mut file = crc32fast::hash(&body).to_le_bytes().to_vec();
    file.extend_from_slice(&body);
    assert_eq!(Layout::decode(&file), Ok(layout));
}

#[test]
fn the_format_stays_as_it_is() {
    let mut layout = two_shards(2);
    layout.add_copies(&[(ShardId(1), Epoch(300))]);
    layout.add_staging(staging(1, 0, 2)).expect("free");
    let encoded = layout.encode();
    let mut expected = b"LAYO".to_vec();
    expected.extend_from_slice(&crc32fast::hash(&encoded[8..]).to_le_bytes());
    expected.extend_from_slice(&[2, 2]);
    expected.extend_from_slice(&[1; 16]);
    expected.extend_from_slice(&[2; 16]);
    expected.extend_from_slice(&[2, 1, 0xac, 2, 0, 0]);
    expected.extend_from_slice(&[2, 0, 0]);
    expected.extend_from_slice(&[1, 1, 0, 2, 71]);
    expected.extend_from_slice(&[9; 16]);
    expected.push(3);
    assert_eq!(encoded, expected);
}

#[test]
fn a_later_version_and_nonsense_are_told_apart() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = serving().encode();
        change(&mut bytes);
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        Layout::decode(&bytes)
    };
    assert_eq!(with(&|bytes| bytes[8] = 3), Err(LayoutError::Version(3)));
    let cut = with(&|bytes| bytes.truncate(40));
    assert!(matches!(cut, Err(LayoutError::Body(_))), "{cut:?}");
    // The shard of the first served copy.
    let shard = 8 + 1 + 1 + 32 + 1;
    let foreign = with(&|bytes| bytes[shard] = 2);
    assert_eq!(foreign, Err(LayoutError::Inconsistent));
    assert_eq!(Layout::decode(b"LAY"), Err(LayoutError::CutOff));
}

#[test]
fn a_move_between_two_shards_has_two_copies_and_then_one() {
    let (partition, mut layout) = (PartitionId(2), serving());
    layout.has_image[2] = true;
    layout.add_staging(staging(2, 1, 5)).expect("another shard");
    assert_eq!(layout.served(partition), Some((ShardId(0), Epoch(4))));
    assert_eq!(layout.staging_of(partition), Some(&staging(2, 1, 5)));
    assert!(layout.names(partition, Epoch(4)) && layout.names(partition, Epoch(5)));
    assert!(!layout.names(partition, Epoch(6)));
    assert!(!layout.promote(partition, Epoch(4)), "that one is served");
    assert!(layout.promote(partition, Epoch(5)));
    assert_eq!(layout.served(partition), Some((ShardId(1), Epoch(5))));
    assert!(layout.staging().is_empty() && !layout.has_image[2]);
    assert!(!layout.promote(partition, Epoch(5)), "once");
    assert!(
        !layout.remove_copy(partition, Epoch(4)),
        "a newer one is here"
    );
    assert!(layout.names(partition, Epoch(5)));
    assert!(layout.remove_copy(partition, Epoch(5)));
    assert_eq!(layout.served(partition), None);
}

#[test]
fn a_source_that_is_first_to_leave_leaves_the_staging_copy() {
    let (partition, mut layout) = (PartitionId(2), serving());
    layout.add_staging(staging(2, 1, 5)).expect("another shard");
    assert!(layout.remove_copy(partition, Epoch(4)));
    let planned = vec![(ShardId(1), Epoch(5)); 6];
    let added = layout.add_copies(&planned);
    let added: Vec<u16> = added.iter().map(|(partition, ..)| partition.0).collect();
    assert_eq!(added, [4, 5], "it is not empty: its own data is here");
    assert!(layout.promote(partition, Epoch(5)));
}

#[test]
fn what_is_in_a_staging_copys_way_is_named() {
    let mut layout = serving();
    let in_the_way = |layout: &mut Layout, new| {
        let before = layout.clone();
        let occupied = layout.add_staging(new).expect_err("occupied");
        assert_eq!(*layout, before);
        (occupied.shard.0, occupied.epoch.0)
    };
    assert_eq!(
        in_the_way(&mut layout, staging(1, 0, 5)),
        (0, 4),
        "same shard"
    );
    assert_eq!(
        in_the_way(&mut layout, staging(1, 1, 4)),
        (0, 4),
        "no newer"
    );
    layout.add_staging(staging(1, 1, 5)).expect("free");
    assert_eq!(in_the_way(&mut layout, staging(1, 1, 6)), (1, 5), "another");
    assert_eq!(layout.remove_staging(PartitionId(1), Epoch(6)), None);
    let removed = layout.remove_staging(PartitionId(1), Epoch(5));
    assert_eq!(removed, Some(staging(1, 1, 5)));
    layout.add_staging(staging(1, 1, 5)).expect("free again");
}

#[test]
fn a_staging_copy_on_the_shard_of_the_served_one_is_no_layout() {
    let mut layout = serving();
    layout.add_staging(staging(2, 1, 5)).expect("another shard");
    assert_eq!(Layout::decode(&layout.encode()).as_ref(), Ok(&layout));
    layout.staging[0].shard = ShardId(0);
    let decoded = Layout::decode(&layout.encode());
    assert_eq!(decoded, Err(LayoutError::Inconsistent));
}

#[test]
fn a_table_with_more_partitions_gives_none_of_them_to_a_layout() {
    let mut layout = serving();
    let partitions = layout.partitions.len();
    let plan = vec![(ShardId(0), Epoch(9)); partitions + 1];
    let added = layout.add_copies(&plan);
    assert!(
        added
            .iter()
            .all(|(partition, ..)| usize::from(partition.0) < partitions)
    );
}
