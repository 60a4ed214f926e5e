use std::fs;
use std::path::PathBuf;

use super::*;

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, text).expect("a file");
}

#[test]
fn the_smallest_quota_around_a_group_counts() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path();
    let own = "0::/kube.slice/pod/container\n";
    assert_eq!(CPUS.smallest(root, own), None);
    write(
        root.join("kube.slice/pod/container/cpu.max"),
        "max 100000\n",
    );
    assert_eq!(CPUS.smallest(root, own), None);
    write(root.join("kube.slice/pod/cpu.max"), "250000 100000\n");
    assert_eq!(CPUS.smallest(root, own), Some(3));
    write(root.join("kube.slice/cpu.max"), "800000 100000\n");
    assert_eq!(CPUS.smallest(root, own), Some(3));
    write(
        root.join("kube.slice/pod/container/cpu.max"),
        "50000 100000\n",
    );
    assert_eq!(CPUS.smallest(root, own), Some(1));
}

#[test]
fn version_1_is_seen_as_well() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path();
    let own = "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n0::/\n";
    write(root.join("cpu,cpuacct/docker/a/cpu.cfs_quota_us"), "-1\n");
    write(
        root.join("cpu,cpuacct/docker/a/cpu.cfs_period_us"),
        "100000\n",
    );
    assert_eq!(CPUS.smallest(root, own), None);
    write(root.join("cpu,cpuacct/docker/cpu.cfs_quota_us"), "150000\n");
    write(
        root.join("cpu,cpuacct/docker/cpu.cfs_period_us"),
        "100000\n",
    );
    assert_eq!(CPUS.smallest(root, own), Some(2));
    // A container sees its own group as the root of the mount.
    let inside = "4:cpu,cpuacct:/elsewhere/of-the-host\n";
    write(root.join("cpu,cpuacct/cpu.cfs_quota_us"), "400000\n");
    write(root.join("cpu,cpuacct/cpu.cfs_period_us"), "100000\n");
    assert_eq!(CPUS.smallest(root, inside), Some(4));
}

#[test]
fn the_smallest_memory_limit_around_a_group_counts() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path();
    let own = "0::/kube.slice/pod\n";
    write(root.join("kube.slice/pod/memory.max"), "max\n");
    assert_eq!(MEMORY.smallest(root, own), None);
    write(root.join("kube.slice/memory.max"), "1073741824\n");
    assert_eq!(MEMORY.smallest(root, own), Some(1 << 30));
    write(root.join("kube.slice/pod/memory.max"), "268435456\n");
    assert_eq!(MEMORY.smallest(root, own), Some(256 << 20));

    let unlimited = "9223372036854771712\n";
    let own = "5:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n0::/\n";
    let limit = |group: &str| {
        root.join("memory")
            .join(group)
            .join("memory.limit_in_bytes")
    };
    write(limit("docker/a"), unlimited);
    write(limit(""), unlimited);
    assert_eq!(MEMORY.smallest(root, own), Some(9_223_372_036_854_771_712));
    write(limit("docker"), "536870912\n");
    assert_eq!(MEMORY.smallest(root, own), Some(512 << 20));
    // A container sees its own group as the root of the mount.
    let inside = "5:memory:/elsewhere/of-the-host\n";
    write(limit(""), "134217728\n");
    assert_eq!(MEMORY.smallest(root, inside), Some(128 << 20));
}

#[test]
fn what_no_kernel_writes_is_no_quota() {
    let home = tempfile::tempdir().expect("a directory");
    for text in ["", "max", "-5 100000", "100000", "a b", "1 "] {
        write(home.path().join("cpu.max"), text);
        assert_eq!(CPUS.smallest(home.path(), "0::/\n"), None, "{text:?}");
    }
    write(home.path().join("cpu.max"), "100000 0");
    assert_eq!(
        CPUS.smallest(home.path(), "garbage\n\n0::/\n"),
        Some(100_000)
    );
}
