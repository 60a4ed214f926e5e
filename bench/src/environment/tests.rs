use super::*;

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
    let date = here.date.as_bytes();
    assert!(
        date.len() == 23 && date[..2] == *b"20" && here.date.ends_with(" UTC"),
        "{}",
        here.date
    );
}
