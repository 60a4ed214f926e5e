//! How many CPUs cgroups allow: version 2 and 1, with all groups around the process's own.

use std::path::Path;

/// CPUs that the quotas of the process's cgroup and of those around it amount to, rounded up; `None` without any.
pub fn quota_cpus() -> Option<usize> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    smallest(Path::new("/sys/fs/cgroup"), &own)
}

/// The smallest quota of the groups that `own`, which is what `/proc/self/cgroup` says, names below `root`.
fn smallest(root: &Path, own: &str) -> Option<usize> {
    own.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            if controllers.is_empty() {
                return around(root, path, version_2);
            }
            let has_cpu = controllers.split(',').any(|name| name == "cpu");
            let mounted = [controllers, "cpu"].map(|name| root.join(name));
            let mount = mounted.iter().find(|mount| mount.is_dir())?;
            has_cpu.then(|| around(mount, path, version_1)).flatten()
        })
        .min()
}

/// The smallest quota of the group at `path` below `mount` and of all around it. A container may see its own
/// group as the mount itself: groups that are not there have no quota.
fn around(mount: &Path, path: &str, quota: fn(&Path) -> Option<usize>) -> Option<usize> {
    let own = Path::new(path.trim_start_matches('/'));
    let groups = own.ancestors().map(|group| mount.join(group));
    groups.filter_map(|group| quota(&group)).min()
}

/// `cpu.max`: quota, or "max", and period, both in us.
fn version_2(group: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    cpus(quota, period)
}

/// `cpu.cfs_quota_us`, -1 for none, and `cpu.cfs_period_us`.
fn version_1(group: &Path) -> Option<usize> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
    cpus(quota.trim(), period.trim())
}

fn cpus(quota: &str, period: &str) -> Option<usize> {
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    Some(quota.div_ceil(period.max(1)).max(1))
}

#[cfg(test)]
mod tests;
