//! The machine a comparison ran on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use ::procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::affinity;
use crate::disk::{self, FileSystem};
use crate::error::{BenchError, During, Result};

#[cfg(test)]
mod tests;

/// What must be known to repeat a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Environment {
    pub date: String,
    /// Commit of the directory that the run was started in, with `-dirty` behind it if files were changed.
    pub commit: Option<String>,
    pub version: String,
    pub flags: Vec<String>,
    pub cpu: String,
    pub cpus: Vec<usize>,
    pub kernel: String,
    pub memory_bytes: u64,
    pub memory_available_bytes: u64,
    pub load_average: String,
    pub data_dir: String,
    /// Device, type and options of its mount.
    pub mount: String,
    /// The block device below it: model, size, kind and cache; none when it has none of its own.
    pub disk: Option<String>,
    pub file_system: FileSystem,
    /// Frequency governor of the first CPU, when there is one.
    pub governor: Option<String>,
    pub huge_pages: Option<String>,
}

/// Reads the machine's description; call before anything is pinned.
pub fn read(dir: &Path) -> Result<Environment> {
    let text = |path: &str| {
        let text = fs::read_to_string(path).during(path)?;
        Ok::<_, BenchError>(text.trim().to_owned())
    };
    let cpus = CpuInfo::current().during("reading /proc")?;
    let memory = Meminfo::current().during("reading /proc")?;
    let date = output_of(Command::new("date").args(["-u", "+%F %T UTC"]));
    let describe = ["describe", "--always", "--dirty", "--exclude", "*"];
    let mounts = text("/proc/self/mounts")?;
    Ok(Environment {
        date: date.unwrap_or_default(),
        commit: output_of(Command::new("git").args(describe)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        flags: std::env::args().skip(1).collect(),
        cpu: cpus.model_name(0).unwrap_or("unknown").to_owned(),
        cpus: affinity::allowed()?,
        kernel: text("/proc/version")?,
        memory_bytes: memory.mem_total,
        memory_available_bytes: memory.mem_available.unwrap_or_default(),
        load_average: text("/proc/loadavg")?,
        data_dir: dir.display().to_string(),
        mount: mount_of(&mounts, dir).unwrap_or("unknown").to_owned(),
        disk: disk_of(dir),
        file_system: disk::file_system(dir)?,
        governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok(),
        huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled").ok(),
    })
}

/// What a program says on its standard output, if it succeeds.
pub fn output_of(program: &mut Command) -> Option<String> {
    let output = program.output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.trim().to_owned())
}

/// What sysfs says of the block device that holds a directory.
fn disk_of(dir: &Path) -> Option<String> {
    const SECTOR_BYTES: f64 = 512.0;
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let node = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition is a folder of its disk, which alone has a queue.
    let disk = node
        .ancestors()
        .find(|folder| folder.join("queue").is_dir())?;
    let text = |name: &str| fs::read_to_string(disk.join(name)).map(|text| text.trim().to_owned());
    let sectors: f64 = text("size").ok()?.parse().ok()?;
    let kind = match text("queue/rotational").as_deref() {
        Ok("1") => "rotating",
        _ => "not rotating",
    };
    let name = disk.file_name()?.to_string_lossy();
    let model = text("device/model").map_or(String::new(), |model| format!(", {model}"));
    let cache = text("queue/write_cache").unwrap_or_default();
    let gib = sectors * SECTOR_BYTES / f64::from(1 << 30);
    Some(format!(
        "{name}{model}, {gib:.0} GiB, {kind}, cache: {cache}"
    ))
}

/// The line of `/proc/mounts` with the longest mount point above `dir`.
fn mount_of<'a>(mounts: &'a str, dir: &Path) -> Option<&'a str> {
    let point = |line: &'a str| line.split(' ').nth(1).unwrap_or_default();
    mounts
        .lines()
        .filter(|line| dir.starts_with(point(line)))
        .max_by_key(|line| point(line).len())
}
