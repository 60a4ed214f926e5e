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
