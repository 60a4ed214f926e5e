use super::*;

#[test]
fn used_bytes_counts_blocks_in_all_depths() {
    let dir = tempfile::tempdir().expect("dir");
    let empty = used_bytes(dir.path()).expect("usage");
    fs::create_dir(dir.path().join("deep")).expect("dir");
    fs::write(dir.path().join("deep/file"), vec![1; 100_000]).expect("file");
    settle(dir.path()).expect("settle");
    let used = used_bytes(dir.path()).expect("usage") - empty;
    assert!((100_000..130_000).contains(&used), "{used}");
    assert!(used_bytes(&dir.path().join("gone")).is_err());
}

#[test]
fn durable_writes_are_measured_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("dir");
    let time = std::time::Duration::from_millis(20);
    let scratch = Scratch::new(dir.path()).expect("a file");
    let small = scratch.write((4096, 1), time).expect("writes");
    let synced = scratch.write_and_sync((4096, 2), time).expect("writes");
    for driven in [small, synced] {
        assert!(driven.latencies.count() > 0 && driven.mb_per_s > 0.0);
    }
    assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
}

#[test]
fn memory_file_systems_are_refused() {
    let shm = Path::new("/dev/shm");
    if file_system(shm).is_ok_and(|kind| kind == FileSystem::Memory) {
        assert!(matches!(
            refuse_memory("--dir", shm),
            Err(BenchError::Failed { .. })
        ));
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(
        refuse_memory("--dir", here).is_ok(),
        file_system(here).expect("fs") != FileSystem::Memory
    );
}

#[test]
fn writes_in_flight_have_a_rate_and_leave_nothing_behind() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("dir");
    let time = std::time::Duration::from_millis(50);
    let scratch = Scratch::new(dir.path()).expect("a file");
    for rate in scratch.log_mb_per_s(time).expect("rates") {
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
    assert!(Scratch::new(&dir.path().join("gone")).is_err());
}

#[test]
fn a_disk_is_waited_for_until_it_is_calm_or_time_is_up() {
    let dir = tempfile::tempdir().expect("dir");
    let ms = std::time::Duration::from_millis;
    assert!(await_calm(dir.path(), ms(0), ms(5_000)).expect("calm"));
    assert!(!await_calm(dir.path(), ms(5_000), ms(20)).expect("not calm for so long"));
    assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
    assert!(await_calm(&dir.path().join("gone"), ms(0), ms(20)).is_err());
}
