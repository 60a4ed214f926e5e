//! The processes of the cluster: started together, watched, stopped in order.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ephesus_tests::process::{Process, describe};
use ephesus_tests::{Client, paths};

use crate::LOOK_EVERY;
use crate::layout::{COORDINATORS, Layout, NODES};

/// How often it is said what is waited for.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// How long a process may take to end when it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Lines of a log that explain an end.
const TAIL_LINES: usize = 5;

/// One process.
#[derive(Debug)]
struct Member {
    name: String,
    /// Its command line, for people.
    line: String,
    process: Process,
    has_told_end: bool,
}

/// All of them; killed when dropped.
#[derive(Debug)]
pub struct Processes {
    coordinators: Vec<Member>,
    nodes: Vec<Member>,
}

impl Member {
    /// Starts it in a session of its own, as services run: Ctrl-C is for the parent, which stops all in order, and
    /// the scheduler (`CONFIG_SCHED_AUTOGROUP`) gives each of them as much as it gives a client in another terminal,
    /// instead of that to all of them together.
    fn start(name: &str, mut command: Command, layout: &Layout) -> Self {
        // SAFETY: the call is async-signal-safe and concerns only the child.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Self {
            name: name.to_owned(),
            line: words.join(" "),
            process: Process::spawn(command, &layout.log(name)),
            has_told_end: false,
        }
    }

    /// How it has ended, and its last words.
    fn end(&mut self) -> Option<String> {
        let status = self.process.exit_status()?;
        let output = self.process.output();
        let lines: Vec<&str> = output.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n  ");
        Some(format!(
            "{} ended: {}\n  {tail}",
            self.name,
            describe(status)
        ))
    }
}

impl Processes {
    pub fn start(layout: &Layout, partitions: u16) -> Self {
        let coordinators = (1..=COORDINATORS).map(|id| {
            let (name, command) = layout.coordinator(id, partitions);
            Member::start(&name, command, layout)
        });
        let nodes = NODES.iter().enumerate();
        let nodes = nodes.map(|(number, name)| Member::start(name, layout.node(number), layout));
        Self {
            coordinators: coordinators.collect(),
            nodes: nodes.collect(),
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Member> {
        self.coordinators.iter_mut().chain(&mut self.nodes)
    }

    /// Waits until the coordinators call the cluster healthy and every node serves; false when it
    /// `is_over` before.
    ///
    /// # Errors
    /// When a process has ended, with its last words.
    pub fn wait_online(
        &mut self,
        layout: &Layout,
        is_over: &dyn Fn() -> bool,
    ) -> Result<bool, String> {
        let mut said = Instant::now();
        while !is_over() {
            if let Some(end) = self.all().find_map(Member::end) {
                return Err(end);
            }
            let problem = problem(layout);
            let Some(problem) = problem else {
                return Ok(true);
            };
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                println!("waiting: {problem}");
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }

    /// What has ended since the last call, each with a command that starts it again.
    pub fn newly_ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for member in self.all().filter(|member| !member.has_told_end) {
            if let Some(end) = member.end() {
                member.has_told_end = true;
                ended.push(format!(
                    "{end}\nthe others go on; start it again with\n  {}",
                    member.line
                ));
            }
        }
        ended
    }

    pub fn have_all_ended(&mut self) -> bool {
        self.all()
            .all(|member| member.process.exit_status().is_some())
    }

    /// SIGTERM to the nodes and then to the coordinators, which nodes say goodbye to.
    ///
    /// # Errors
    /// When one had to be killed, or ended with another code than 0.
    pub fn stop(&mut self) -> Result<(), String> {
        let nodes = stop(&mut self.nodes);
        nodes.and(stop(&mut self.coordinators))
    }
}

fn stop(members: &mut [Member]) -> Result<(), String> {
    let mut running: Vec<&mut Member> = members
        .iter_mut()
        .filter_map(|member| match member.process.exit_status() {
            None => Some(member),
            Some(_) => None,
        })
        .collect();
    for member in &running {
        member.process.signal(libc::SIGTERM);
    }
    let deadline = Instant::now() + STOP_LIMIT;
    let mut outcome = Ok(());
    for member in &mut running {
        let left = deadline.saturating_duration_since(Instant::now());
        let complaint = match member.process.wait_exit(left) {
            Some(status) if status.success() => continue,
            Some(_) => member.end().unwrap_or_default(),
            None => {
                member.process.kill();
                format!("{} did not stop and was killed", member.name)
            }
        };
        outcome = Err(complaint);
    }
    outcome
}

/// Why the cluster is not online; none: it is.
fn problem(layout: &Layout) -> Option<String> {
    // The coordinators may not have noticed yet that a node was gone in between.
    for (name, port) in NODES.into_iter().zip(layout.node_ports()) {
        if !serves(port) {
            return Some(format!("{name} does not serve yet"));
        }
    }
    let coordinators = layout.coordinators();
    let output = Command::new(paths::ephesus())
        .args([
            "status",
            "--timeout",
            "1000",
            "--coordinator",
            &coordinators,
        ])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("ephesus status: {error}")),
    }
}

fn serves(port: u16) -> bool {
    let info = Client::connect(port).and_then(|mut client| client.try_call(&["CLUSTER", "INFO"]));
    info.is_ok_and(|info| info.error().is_none() && info.text().contains("cluster_state:ok"))
}
