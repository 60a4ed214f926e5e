use super::*;

#[test]
fn shards_are_pinned_where_every_cpu_of_the_mask_gets_one() {
    assert_eq!(pinned_cpus(2, vec![4, 7], None), Ok(vec![4, 7]));
    assert_eq!(pinned_cpus(2, vec![4, 7], Some(2)), Ok(vec![4, 7]));
    assert_eq!(pinned_cpus(1, vec![3], None), Ok(vec![3]));
    // Two nodes of one shard each on two CPUs would meet on the first.
    assert!(pinned_cpus(1, vec![0, 1], None).is_err());
    assert!(pinned_cpus(3, vec![0, 1], None).is_err());
    // The machine is shared with others.
    let many: Vec<usize> = (0..64).collect();
    assert!(pinned_cpus(2, many.clone(), Some(2)).is_err());
    assert!(pinned_cpus(64, many, Some(2)).is_err());
}

fn clients(files: u64, shards: u16, asked: usize) -> Option<usize> {
    let environment = Environment { cpus: 1, files };
    environment.clients_per_shard(shards, asked).ok()
}

#[test]
fn clients_leave_files_to_the_node_and_none_is_a_refusal() {
    assert_eq!(clients(1 << 20, 2, 10_000), Some(10_000));
    assert_eq!(clients(300, 2, 10_000), Some((300 - 68 - 64) / 2));
    assert_eq!(clients(160, 2, 10_000), Some((160 - 68) / 2 / 2));
    // Links of other nodes are not kept out by clients that take all they may.
    assert_eq!(clients(1_268, 2, 10_000), Some((1_200 - 150) / 2));
    assert_eq!(clients(22_926, 2, 10_000), Some(10_000));
    assert_eq!(clients(22_924, 2, 10_000), Some(9_999));
    assert_eq!(clients(160, 6, 10_000), Some(3));
    assert_eq!(clients(160, 6, 2), Some(2));
    for (files, shards) in [(0, 1), (54, 1), (100, 6), (4_000, 300)] {
        assert_eq!(clients(files, shards, 10_000), None);
    }
    let environment = Environment {
        cpus: 1,
        files: 300,
    };
    let warnings = environment.warnings(2, 84, 10_000).join(";");
    assert!(warnings.contains("is lowered to 84"), "{warnings}");
    assert!(warnings.contains("ulimit -n 22926"), "{warnings}");
}
