//! Child processes that cannot outlive the test: signalled by pid, killed on drop, and by the kernel
//! if the test itself dies.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running child with its stderr and stdout in one file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    exited: Option<ExitStatus>,
    output: PathBuf,
}

impl Process {
    /// Starts `command` with its output appended to `output`.
    pub fn spawn(mut command: Command, output: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(output)
            .unwrap_or_else(|error| panic!("open {}: {error}", output.display()));
        let stdout = file.try_clone().expect("duplicate the output file");
        command.stdin(Stdio::null()).stdout(stdout).stderr(file);
        // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        Self {
            child,
            exited: None,
            output: output.to_path_buf(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal unless the child has already been waited for.
    pub fn signal(&self, signal: i32) {
        if self.exited.is_none() {
            // SAFETY: the pid is ours and not yet reaped, so it cannot have been reused.
            unsafe { libc::kill(self.child.id() as i32, signal) };
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.exited = Some(self.child.wait().expect("wait for a killed child"));
    }

    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().expect("poll a child");
        }
        self.exited
    }

    /// Waits for the child to end by itself.
    pub fn wait_exit(&mut self, at_most: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + at_most;
        loop {
            match self.exit_status() {
                None if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                status => return status,
            }
        }
    }

    /// Everything the child has written so far.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of the output, for a failure message.
    pub fn output_tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.stat()[0] == "T"
    }

    /// The fields of /proc stat from the state on, the third of proc(5).
    fn stat(&self) -> Vec<String> {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = std::fs::read_to_string(path).expect("read the child's /proc stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        fields.split_whitespace().map(str::to_owned).collect()
    }

    /// Time on a CPU so far, all threads together; exact to ten milliseconds.
    pub fn cpu_time(&self) -> Duration {
        let fields = self.stat();
        let ticks = |index: usize| fields[index].parse::<u64>().expect("a number of ticks");
        // User and system time, fields 14 and 15 of proc(5), in hundredths of a second.
        Duration::from_millis(10 * (ticks(11) + ticks(12)))
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most resident memory since [`forget_peak`](Self::forget_peak), in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Has [`peak_bytes`](Self::peak_bytes) begin anew (`5` in proc_pid_clear_refs(5)).
    pub fn forget_peak(&self) {
        let path = format!("/proc/{}/clear_refs", self.pid());
        std::fs::write(path, "5").expect("reset the child's peak");
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).expect("read the child's /proc status");
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{name} in /proc status"))
            * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit_status().is_none() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!(
                "--- output of process {} ({}) ---\n{}\n---",
                self.pid(),
                self.output.display(),
                self.output_tail()
            );
        }
    }
}

/// How a child ended, in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown end".to_owned(),
    }
}
