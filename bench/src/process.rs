//! A server process: confined from its first instruction, killed with this one, its output in a file.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{self, Signal};

use crate::affinity;
use crate::error::{BenchError, During, Result};
use crate::interrupt::wait_for;
use crate::procfs::Pid;

/// How long a stop may take after SIGTERM before SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_POLL: Duration = Duration::from_millis(5);
const LOG_TAIL_BYTES: usize = 2000;

#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` in `dir` on `cpus` with its output appended to `log`; must be called on a
    /// thread that lives as long as the process should, because the kernel kills it with that thread.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[String],
        dir: &Path,
        log: PathBuf,
        cpus: &[usize],
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(&log);
        let output = output.during(log.display())?;
        let errors = output.try_clone().during(log.display())?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let cpus = cpus.to_vec();
        let parent = process::getpid();
        // SAFETY: the closure only makes async-signal-safe system calls.
        unsafe {
            command.pre_exec(move || {
                process::set_parent_process_death_signal(Some(Signal::KILL))?;
                if process::getppid() != Some(parent) {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                // A session of its own, as a service has: Ctrl-C is not for it, and where the scheduler shares CPUs
                // among sessions first (autogroup), each server counts like the load's generators together.
                process::setsid()?;
                affinity::confine_current(&cpus)
            });
        }
        Ok(Process {
            name: name.to_owned(),
            child: command.spawn().during(program.display())?,
            log,
        })
    }

    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Fails when it has ended by itself.
    pub fn check_running(&mut self) -> Result<()> {
        let Some(status) = self.ended()? else {
            return Ok(());
        };
        let text = fs::read(&self.log).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(LOG_TAIL_BYTES)..];
        let tail = String::from_utf8_lossy(tail);
        let problem = format!("exited early ({status}); its last output:\n{tail}");
        Err(BenchError::failed(&self.name, problem))
    }

    /// Stops it with SIGTERM; when it has not ended after a long time, that is an error, and SIGKILL follows.
    pub fn stop(mut self) -> Result<()> {
        // It fails only when the process has ended.
        let _ = process::kill_process(process::Pid::from_child(&self.child), Signal::TERM);
        let state = (self.name.clone(), "stopped after SIGTERM");
        wait_for(state, STOP_TIMEOUT, STOP_POLL, || {
            Ok(self.ended()?.is_some())
        })
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().during(&self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
