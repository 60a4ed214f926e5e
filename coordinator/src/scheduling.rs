//! What threads ask of the scheduler, and what executors have to be helped with.

use std::io;
use std::time::Duration;

/// How long a thread may hold its CPU once others wait for it: the least that the kernel takes.
const SLICE_NS: u64 = 100_000;

/// Asks for short slices for this thread: the scheduler (EEVDF, Linux 6.12 on) lets a thread that wakes
/// up take the CPU from one with longer slices, such as sled's, at once.
///
/// Without effect on older kernels: they take no notice of it.
pub fn prefer_short_slices() {
    // SAFETY: both calls read and write only the structure, of the size that they are told, and
    // concern only this thread.
    unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
        if got == 0 && attributes.sched_policy == libc::SCHED_OTHER as u32 {
            attributes.sched_runtime = SLICE_NS;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

/// Gives a thread of this process, 0 for the calling one, this policy at the lowest of its priorities; threads that
/// it starts are usual ones.
///
/// # Errors
/// The kernel's answer, for instance when the process may not or a seccomp filter forbids the call.
pub fn set_policy(thread: libc::pid_t, policy: libc::c_int) -> io::Result<()> {
    // SAFETY: plain integers and a valid pointer.
    let answer = unsafe {
        let sched_priority = libc::sched_get_priority_min(policy);
        let parameters = libc::sched_param { sched_priority };
        libc::sched_setscheduler(
            thread,
            policy | libc::SCHED_RESET_ON_FORK,
            &raw const parameters,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bounds how long the current executor may overlook ready tasks: glommio 0.9 can go to sleep although
/// there are some, but not past a timer. Goes on until the executor ends or the task is cancelled.
pub fn keep_awake(every: Duration) -> glommio::Task<()> {
    glommio::spawn_local(async move {
        loop {
            glommio::timer::sleep(every).await;
        }
    })
}
