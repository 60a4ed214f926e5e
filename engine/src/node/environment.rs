//! What the machine allows: checked before anything is opened, with the remedy in every message.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::cgroup;

/// Locked memory that each shard's rings and buffers need where the kernel counts it.
const MEMLOCK_BYTES_PER_SHARD: u64 = 512 << 10;

/// Descriptors that a node and each of its shards have at rest: stores, logs, rings, ports.
const FILES_PER_NODE: u64 = 40;
const FILES_PER_SHARD: u64 = 14;

/// What is left to other nodes, coordinators and segments to come is an eighth of what is there, at least this, and
/// with few files half.
const FILES_RESERVED_MIN: u64 = 64;

/// Syncs that the latency is measured with.
const SYNCS: usize = 32;

/// Something the machine does not allow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    #[error("io_uring is not available: {source}; {remedy}")]
    IoUring {
        source: io::Error,
        remedy: &'static str,
    },
    #[error(
        "{files} open files are allowed, and a node of {shards} shards needs {needed}: ulimit -n {needed}, or \
         fewer --shards"
    )]
    Files {
        files: u64,
        shards: u16,
        needed: u64,
    },
}

/// What was found out about the machine.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// CPUs this process may use: its affinity mask, bounded by its cgroup's quota.
    pub cpus: usize,
    /// Open files this process may have.
    pub files: u64,
}

impl Environment {
    /// Looks at the machine and raises the limit of open files as far as it goes.
    ///
    /// # Errors
    /// [`EnvironmentError`]: the node cannot run here.
    pub fn inspect() -> Result<Environment, EnvironmentError> {
        drop(
            crate::net::Ring::new().map_err(|source| EnvironmentError::IoUring {
                remedy: io_uring_remedy(&source),
                source,
            })?,
        );
        let cpus = allowed_cpus()
            .len()
            .min(cgroup::cpus().unwrap_or(usize::MAX))
            .max(1);
        Ok(Environment {
            cpus,
            files: raise_file_limit(),
        })
    }

    /// Clients that a shard may have, `asked` at most: the node's own files come first.
    ///
    /// # Errors
    /// [`EnvironmentError::Files`] when none is left for clients.
    pub fn clients_per_shard(&self, shards: u16, asked: usize) -> Result<usize, EnvironmentError> {
        let own = FILES_PER_NODE + FILES_PER_SHARD * u64::from(shards);
        let left = self.files.saturating_sub(own);
        let clients = left - FILES_RESERVED_MIN.max(left / 8).min(left / 2);
        let clients = clients / u64::from(shards.max(1));
        if clients == 0 {
            let (files, needed) = (self.files, own + 2 * u64::from(shards));
            return Err(EnvironmentError::Files {
                files,
                shards,
                needed,
            });
        }
        Ok(asked.min(usize::try_from(clients).unwrap_or(usize::MAX)))
    }

    /// What an operator should know before clients come, one line each; a shard may have so many clients of those that
    /// were `asked` for.
    #[must_use]
    pub fn warnings(&self, shards: u16, clients: usize, asked: usize) -> Vec<String> {
        let mut warnings = Vec::new();
        let locked = limit(libc::RLIMIT_MEMLOCK).0;
        let needed = MEMLOCK_BYTES_PER_SHARD * u64::from(shards);
        if locked < needed {
            warnings.push(format!(
                "RLIMIT_MEMLOCK is {} KiB, {} KiB are better for {shards} shards: ulimit -l {}",
                locked >> 10,
                needed >> 10,
                needed >> 10
            ));
        }
        if clients < asked {
            let own = FILES_PER_NODE + FILES_PER_SHARD * u64::from(shards);
            let asked_files = (asked as u64).saturating_mul(u64::from(shards));
            let reserved = FILES_RESERVED_MIN.max(asked_files.div_ceil(7));
            let wanted = asked_files.saturating_add(reserved).saturating_add(own);
            warnings.push(format!(
                "--max-clients {asked} is lowered to {clients} for each shard: {} open files are allowed, \
                 ulimit -n {wanted}",
                self.files
            ));
        }
        warnings
    }
}

fn io_uring_remedy(error: &io::Error) -> &'static str {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    match error.raw_os_error() {
        Some(libc::EPERM) if disabled.is_ok_and(|text| text.trim() != "0") => {
            "run: sysctl -w kernel.io_uring_disabled=0"
        }
        Some(libc::EPERM) => {
            "a seccomp profile forbids it: allow io_uring_setup, io_uring_enter \
             and io_uring_register (containers: --security-opt seccomp=unconfined)"
        }
        Some(libc::ENOMEM) => "raise RLIMIT_MEMLOCK (ulimit -l)",
        _ => "Linux 6.1 or newer is needed",
    }
}

/// CPUs of the process's affinity mask.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is plain data that the call fills.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return vec![0];
        }
        set
    };
    // SAFETY: the index is below the set's size.
    (0..libc::CPU_SETSIZE as usize)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// The CPUs that so many shards are pinned to. Only where every CPU of the mask gets one: with fewer shards others
/// would take the same ones, as a second node does, while the rest are idle; with a quota the mask is the machine's.
///
/// # Errors
/// Why they are not pinned.
pub fn pinned_cpus(
    shards: u16,
    mask: Vec<usize>,
    quota: Option<usize>,
) -> Result<Vec<usize>, String> {
    if mask.len() != usize::from(shards) {
        return Err(format!(
            "{shards} shards, and the affinity mask has {} CPUs",
            mask.len()
        ));
    }
    match quota.filter(|quota| *quota < mask.len()) {
        Some(quota) => Err(format!(
            "{shards} shards, and the cgroup's quota is {quota} CPUs"
        )),
        None => Ok(mask),
    }
}

fn limit(resource: libc::__rlimit_resource_t) -> (u64, u64) {
    // SAFETY: `rlimit` is plain data that the call fills.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(resource, &mut limit);
        (limit.rlim_cur, limit.rlim_max)
    }
}

fn raise_file_limit() -> u64 {
    let (soft, hard) = limit(libc::RLIMIT_NOFILE);
    let wanted = libc::rlimit {
        rlim_cur: hard,
        rlim_max: hard,
    };
    // SAFETY: sets a limit of this process from plain data.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &wanted) } == 0;
    if raised { hard } else { soft }
}

/// Bytes free for us on the file system of `dir`.
#[must_use]
pub fn free_bytes(dir: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: the path is terminated and `statvfs` is plain data that the call fills.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut stat) == 0)
            .then(|| stat.f_bavail as u64 * stat.f_frsize as u64)
    }
}

/// Median time to write and sync 4 KiB on the file system of `dir`.
///
/// # Errors
/// What the operating system says.
pub fn sync_latency(dir: &Path) -> io::Result<Duration> {
    let path = dir.join("sync-probe");
    let measured = measure_syncs(&path);
    // Also what a full disk has left of it.
    std::fs::remove_file(&path)?;
    measured
}

#[expect(clippy::indexing_slicing, reason = "so many were measured")]
fn measure_syncs(path: &Path) -> io::Result<Duration> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path)?;
    let block = [0u8; 4096];
    file.write_all_at(&[0; 4096 * SYNCS], 0)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(SYNCS);
    for index in 0..SYNCS {
        let started = super::clock();
        file.write_all_at(&block, (index * block.len()) as u64)?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

#[cfg(test)]
mod tests;
