use super::*;

#[test]
fn dates_are_civil() {
    assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
    assert_eq!(utc(1_767_225_599), "2025-12-31 23:59:59 UTC");
}

#[test]
fn the_nearest_mount_wins() {
    let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/x xfs rw 0 0\n";
    let line = |dir| mount_of(mounts, Path::new(dir)).expect("mount");
    assert!(line("/tmp/x/y").starts_with("/dev/b"));
    assert!(line("/tmp/xy").starts_with("tmpfs"));
    assert!(line("/home").starts_with("/dev/a"));
}

#[test]
fn this_machine_can_be_read() {
    let here = read(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("environment");
    assert!(!here.cpus.is_empty() && here.memory_bytes > 0);
}
