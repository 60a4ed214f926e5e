//! The machine a comparison ran on.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::affinity;
use crate::disk::{self, FileSystem};
use crate::error::{BenchError, Result};
use crate::procfs;

#[cfg(test)]
mod tests;

/// What must be known to repeat a run.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// When the run began, UTC.
    pub date: String,
    /// Commit of the directory that the run was started in, with `-dirty` behind it if files were changed.
    pub commit: Option<String>,
    /// CPU model.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: Vec<usize>,
    /// Kernel release and version.
    pub kernel: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Memory not in use at the start.
    pub memory_available_bytes: u64,
    /// One, five and fifteen minute load at the start.
    pub load_average: String,
    /// Where data is kept.
    pub data_dir: String,
    /// Device, type and options of its mount.
    pub mount: String,
    /// Its kind and free space.
    pub file_system: FileSystem,
    /// Frequency governor of the first CPU, when there is one.
    pub governor: Option<String>,
    /// Transparent huge pages.
    pub huge_pages: Option<String>,
}

/// Reads the machine's description; call before anything is pinned.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn read(dir: &Path) -> Result<Environment> {
    let text = |path: &str| fs::read_to_string(path).map_err(BenchError::io(path));
    let trimmed = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let cpuinfo = text("/proc/cpuinfo")?;
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let cpu = model
        .and_then(|line| line.split(": ").nth(1))
        .unwrap_or("unknown")
        .to_owned();
    let meminfo = text("/proc/meminfo")?;
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    Ok(Environment {
        date: utc(seconds),
        commit: commit(),
        cpu,
        cpus: affinity::allowed()?,
        kernel: text("/proc/version")?.trim().to_owned(),
        memory_bytes: procfs::parse_status_kib(&meminfo, "MemTotal")? * 1024,
        memory_available_bytes: procfs::parse_status_kib(&meminfo, "MemAvailable")? * 1024,
        load_average: text("/proc/loadavg")?.trim().to_owned(),
        data_dir: dir.display().to_string(),
        mount: mount_of(&text("/proc/self/mounts")?, dir)
            .unwrap_or("unknown")
            .to_owned(),
        file_system: disk::file_system(dir)?,
        governor: trimmed("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        huge_pages: trimmed("/sys/kernel/mm/transparent_hugepage/enabled"),
    })
}

fn commit() -> Option<String> {
    let mut git = Command::new("git");
    let output = git.args(["describe", "--always", "--dirty", "--exclude", "*"]);
    let output = output.output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}

/// The line of `/proc/mounts` with the longest mount point above `dir`.
fn mount_of<'a>(mounts: &'a str, dir: &Path) -> Option<&'a str> {
    let point = |line: &'a str| line.split(' ').nth(1).unwrap_or_default();
    mounts
        .lines()
        .filter(|line| dir.starts_with(point(line)))
        .max_by_key(|line| point(line).len())
}

/// Seconds since 1970 as `YYYY-MM-DD HH:MM:SS UTC` (civil-from-days, Howard Hinnant).
fn utc(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}
