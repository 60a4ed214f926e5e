//! What the operating system says about this process and machine.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use ephesus_wire::limits::CLIENT_MEMORY_BYTES_MIN;

/// Processor time so far, seconds: user, system.
#[must_use]
pub fn cpu_seconds() -> (f64, f64) {
    // SAFETY: `rusage` is plain data that the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

/// Processor time of the calling thread so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure, which is this function's own.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the calling thread so far, ms: user, system.
#[must_use]
pub fn thread_cpu_ms() -> [u64; 2] {
    // SAFETY: `rusage` is plain data that the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .map(|time| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000)
}

/// Kernel name, release and machine.
#[must_use]
pub fn os() -> String {
    static OS: OnceLock<String> = OnceLock::new();
    OS.get_or_init(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
    })
    .clone()
}

/// Path of the running executable.
#[must_use]
pub fn executable() -> String {
    std::env::current_exe()
        .map(|path| path.display().to_string())
        .unwrap_or_default()
}

/// Resident memory of the process, bytes.
#[must_use]
pub fn resident_bytes() -> u64 {
    proc_kib("/proc/self/status", "VmRSS:") * 1024
}

/// Resident memory of the process that no file is behind, bytes.
#[must_use]
pub fn anonymous_bytes() -> u64 {
    proc_kib("/proc/self/status", "RssAnon:") * 1024
}

/// Memory of the machine, bytes.
#[must_use]
pub fn system_memory_bytes() -> u64 {
    static TOTAL: OnceLock<u64> = OnceLock::new();
    *TOTAL.get_or_init(|| proc_kib("/proc/meminfo", "MemTotal:") * 1024)
}

// The allocator of the binary; what has no other use of the crate would not be linked.
use mimalloc as _;

unsafe extern "C" {
    fn mi_collect(force: bool);
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_stats_print_out(out: extern "C" fn(*const c_char, *mut c_void), arg: *mut c_void);
}

/// `mi_option_purge_delay` of mimalloc's `mimalloc.h`.
const PURGE_DELAY: c_int = 15;

/// How long the allocator keeps freed memory that may be wanted again. Its own second is long enough for clients to
/// have several times what they may hold.
const PURGE_DELAY_MS: c_long = 20;

/// Has the allocator give freed memory back soon. `MIMALLOC_PURGE_DELAY` in the environment has the last word.
pub fn give_memory_back_soon() {
    // SAFETY: may be called at any time; the option is read when memory is freed.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// Gives the system what all threads have freed in whole pages of the allocator, and all free memory of the thread that
/// calls.
pub fn give_memory_back() {
    // SAFETY: may be called by any thread.
    unsafe { mi_collect(true) }
}

/// The allocator's statistics, as text.
#[must_use]
pub fn allocator_stats() -> String {
    extern "C" fn collect(text: *const c_char, into: *mut c_void) {
        // SAFETY: the allocator hands over a text that ends, and what it was given below.
        let (text, into) = unsafe { (CStr::from_ptr(text), &mut *into.cast::<String>()) };
        into.push_str(&text.to_string_lossy());
    }
    let mut text = String::new();
    // SAFETY: `collect` is called before this returns, with the text that it fills.
    unsafe { mi_stats_print_out(collect, std::ptr::from_mut(&mut text).cast()) }
    text
}

/// Memory for clients where no flag names it: an eighth of what the machine or the container has.
#[must_use]
pub fn client_memory_default() -> u64 {
    let machine = system_memory_bytes();
    let memory = super::cgroup::memory_bytes().map_or(machine, |limit| limit.min(machine));
    (memory / 8).max(CLIENT_MEMORY_BYTES_MIN)
}

fn proc_kib(path: &str, field: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
