//! What cgroups allow the process: version 2 and 1, with all groups around its own.

use std::fs;
use std::path::Path;

/// CPUs that the quotas of the process's cgroup and of those around it amount to, rounded up; `None` without any.
pub fn cpus() -> Option<usize> {
    usize::try_from(CPUS.of_process()?).ok()
}

/// The least memory limit of the process's cgroup and of those around it, bytes; version 1 calls a number that no
/// machine has no limit.
pub fn memory_bytes() -> Option<u64> {
    MEMORY.of_process()
}

/// Something that groups limit.
struct Limited {
    /// Of version 1.
    controller: &'static str,
    version_2: fn(group: &Path) -> Option<u64>,
    version_1: fn(group: &Path) -> Option<u64>,
}

const CPUS: Limited = Limited {
    controller: "cpu",
    // Quota, or "max", and period, both in us.
    version_2: |group| {
        let text = fs::read_to_string(group.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        quota_cpus(quota.parse().ok()?, period.parse().ok()?)
    },
    // The quota is -1 for none.
    version_1: |group| {
        let quota = number(group, "cpu.cfs_quota_us")?;
        quota_cpus(quota, number(group, "cpu.cfs_period_us")?)
    },
};

const MEMORY: Limited = Limited {
    controller: "memory",
    // Or "max".
    version_2: |group| number(group, "memory.max"),
    version_1: |group| number(group, "memory.limit_in_bytes"),
};

fn quota_cpus(quota: u64, period: u64) -> Option<u64> {
    Some(quota.div_ceil(period.max(1)).max(1))
}

fn number(group: &Path, file: &str) -> Option<u64> {
    let text = fs::read_to_string(group.join(file)).ok()?;
    text.trim().parse().ok()
}

impl Limited {
    fn of_process(&self) -> Option<u64> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        self.smallest(Path::new("/sys/fs/cgroup"), &own)
    }

    /// The smallest limit of the groups that `own`, which is what `/proc/self/cgroup` says, names below `root`.
    fn smallest(&self, root: &Path, own: &str) -> Option<u64> {
        own.lines()
            .filter_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                if controllers.is_empty() {
                    return around(root, path, self.version_2);
                }
                let mut names = controllers.split(',');
                let is_limited = names.any(|name| name == self.controller);
                let mounted = [controllers, self.controller].map(|name| root.join(name));
                let mount = mounted.iter().find(|mount| mount.is_dir())?;
                is_limited
                    .then(|| around(mount, path, self.version_1))
                    .flatten()
            })
            .min()
    }
}

/// The smallest limit of the group at `path` below `mount` and of all around it. A container may see its own
/// group as the mount itself: groups that are not there have no limit.
fn around(mount: &Path, path: &str, limit: fn(&Path) -> Option<u64>) -> Option<u64> {
    let own = Path::new(path.trim_start_matches('/'));
    let groups = own.ancestors().map(|group| mount.join(group));
    groups.filter_map(|group| limit(&group)).min()
}

#[cfg(test)]
mod tests;
