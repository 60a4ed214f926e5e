//! What the kernel says about a process: CPU time, memory, block I/O, where its threads may run.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::error::{BenchError, Result};

#[cfg(test)]
mod tests;

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pid(pub u32);

/// One thread and the CPUs it may run on, as in `/proc/PID/task/TID/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// Thread id.
    pub tid: u32,
    /// Thread name.
    pub name: String,
    /// `Cpus_allowed_list`, such as `0-1,4`.
    pub cpus_allowed: String,
}

/// CPU time of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCpu {
    /// Thread id.
    pub tid: u32,
    /// Thread name.
    pub name: String,
    /// On a CPU so far.
    pub cpu: Duration,
}

/// Block I/O of a process, as in `/proc/PID/io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IoCounters {
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes sent to the device (for buffered writes: dirtied in the page cache).
    pub write_bytes: u64,
}

/// CPU time of all threads of a process, living and ended, in nanoseconds of the scheduler's clock.
///
/// The same sum as utime + stime of `/proc/PID/stat`, without its 10 ms rounding; forked children
/// are not in it.
///
/// # Errors
/// When the process is gone.
pub fn cpu_time(pid: Pid) -> Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for one clock id.
    let status = unsafe { libc::clock_getcpuclockid(pid.0 as libc::pid_t, &mut clock) };
    if status != 0 {
        let source = std::io::Error::from_raw_os_error(status);
        return Err(BenchError::Io {
            what: format!("CPU clock of process {}", pid.0),
            source,
        });
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        let source = std::io::Error::last_os_error();
        return Err(BenchError::Io {
            what: format!("CPU time of process {}", pid.0),
            source,
        });
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of children that have ended (Redis's forked rewriters), from `/proc/PID/stat`.
///
/// # Errors
/// When the process is gone.
pub fn reaped_children_cpu_time(pid: Pid) -> Result<Duration> {
    let ticks = parse_stat(&read(pid, "stat")?)?.children_ticks;
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second()))
}

/// Resident memory in bytes.
///
/// # Errors
/// When the process is gone.
pub fn resident_bytes(pid: Pid) -> Result<u64> {
    parse_status_kib(&read(pid, "status")?, "VmRSS").map(|kib| kib * 1024)
}

/// The most memory that was resident since the start or [`reset_peak`], in bytes.
///
/// # Errors
/// When the process is gone.
pub fn peak_resident_bytes(pid: Pid) -> Result<u64> {
    parse_status_kib(&read(pid, "status")?, "VmHWM").map(|kib| kib * 1024)
}

/// Lets the peak begin anew at what is resident now.
///
/// # Errors
/// When the process is gone or belongs to another user.
pub fn reset_peak(pid: Pid) -> Result<()> {
    let path = format!("/proc/{}/clear_refs", pid.0);
    fs::write(&path, "5").map_err(BenchError::io(path))
}

/// Block I/O so far.
///
/// # Errors
/// When the process is gone or belongs to another user.
pub fn io_counters(pid: Pid) -> Result<IoCounters> {
    parse_io(&read(pid, "io")?)
}

/// Every thread of the process and where it may run.
///
/// # Errors
/// When the process is gone.
pub fn thread_placements(pid: Pid) -> Result<Vec<ThreadPlacement>> {
    let placement = |tid, folder: &Path| {
        // A thread may end between the listing and the read.
        let Ok(status) = fs::read_to_string(folder.join("status")) else {
            return Ok(None);
        };
        Ok(Some(ThreadPlacement {
            tid,
            name: field(&status, "Name").unwrap_or_default().to_owned(),
            cpus_allowed: field(&status, "Cpus_allowed_list")
                .ok_or_else(|| BenchError::parse("Cpus_allowed_list", &status))?
                .to_owned(),
        }))
    };
    of_threads(pid, placement)
}

/// CPU time of every living thread, from `schedstat`.
///
/// # Errors
/// When the process is gone.
pub fn thread_cpu_times(pid: Pid) -> Result<Vec<ThreadCpu>> {
    of_threads(pid, |tid, folder| {
        let read = |file: &str| fs::read_to_string(folder.join(file));
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            return Ok(None);
        };
        Ok(Some(ThreadCpu {
            tid,
            name: name.trim_end().to_owned(),
            cpu: parse_schedstat(&stat)?,
        }))
    })
}

/// Reads the first number of a `schedstat` line: nanoseconds on a CPU.
///
/// # Errors
/// When the text is no such line.
pub fn parse_schedstat(text: &str) -> Result<Duration> {
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first
        .map(Duration::from_nanos)
        .ok_or_else(|| BenchError::parse("schedstat", text))
}

/// What `read` finds in every thread's folder; threads that are gone are left out.
fn of_threads<T>(
    pid: Pid,
    mut read: impl FnMut(u32, &Path) -> Result<Option<T>>,
) -> Result<Vec<T>> {
    let folder = format!("/proc/{}/task", pid.0);
    let mut threads = Vec::new();
    for entry in fs::read_dir(&folder).map_err(BenchError::io(&folder))? {
        let entry = entry.map_err(BenchError::io(&folder))?;
        let name = entry.file_name();
        let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        threads.extend(read(tid, &entry.path())?);
    }
    Ok(threads)
}

/// CPU ticks of a process and of its ended children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatTicks {
    /// utime + stime.
    pub own_ticks: u64,
    /// cutime + cstime.
    pub children_ticks: u64,
}

/// Reads utime, stime, cutime and cstime (fields 14 to 17); the name in field 2 may hold anything.
///
/// # Errors
/// When the text is not a `stat` line.
pub fn parse_stat(text: &str) -> Result<StatTicks> {
    let wrong = || BenchError::parse("CPU ticks", text);
    let after_name = &text[text.rfind(')').ok_or_else(wrong)? + 1..];
    let ticks: Vec<u64> = after_name
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|word| word.parse().map_err(|_| wrong()))
        .collect::<Result<_>>()?;
    match ticks[..] {
        [user, system, child_user, child_system] => Ok(StatTicks {
            own_ticks: user + system,
            children_ticks: child_user + child_system,
        }),
        _ => Err(wrong()),
    }
}

/// Reads a `Name:  123 kB` line.
///
/// # Errors
/// When there is no such line.
pub fn parse_status_kib(text: &str, name: &'static str) -> Result<u64> {
    field(text, name)
        .and_then(|value| value.strip_suffix(" kB"))
        .and_then(|value| value.trim().parse().ok())
        .ok_or_else(|| BenchError::parse(name, text))
}

/// Reads `/proc/PID/io`.
///
/// # Errors
/// When a counter is missing.
pub fn parse_io(text: &str) -> Result<IoCounters> {
    let counter = |name| {
        field(text, name)
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| BenchError::parse("io counters", text))
    };
    Ok(IoCounters {
        read_bytes: counter("read_bytes")?,
        write_bytes: counter("write_bytes")?,
    })
}

/// The CPUs named by a kernel list such as `0-2,5`.
///
/// # Errors
/// When the text is not such a list.
pub fn parse_cpu_list(text: &str) -> Result<Vec<usize>> {
    let wrong = |_| BenchError::parse("CPU list", text);
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse().map_err(wrong)?..=last.parse::<usize>().map_err(wrong)?);
    }
    Ok(cpus)
}

/// The value of the first `name: value` line.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn read(pid: Pid, file: &str) -> Result<String> {
    let path = format!("/proc/{}/{file}", pid.0);
    fs::read_to_string(&path).map_err(BenchError::io(path))
}

fn ticks_per_second() -> f64 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}
