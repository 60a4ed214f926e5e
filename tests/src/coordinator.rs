//! `ephesus coordinator` processes, and the commands that ask them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::node::Refused;
use crate::paths;
use crate::ports::PortBlock;
use crate::process::{Process, describe};

/// How long a coordinator may take from its start until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long a cluster may take to be what a test waits for.
const LIMIT: Duration = Duration::from_secs(30);

/// Seconds after which a command that hangs is ended.
const COMMAND_LIMIT_S: &str = "60";

/// What a command has printed, and its exit code.
#[derive(Clone, Debug)]
pub struct Told {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Told {
    /// # Panics
    /// When the code is another, or stderr lacks one of the words.
    pub fn assert(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {}", self.err);
        }
    }
}

/// Runs `ephesus` with these arguments, without a terminal.
pub fn ephesus(arguments: &[&str]) -> Told {
    let output = Command::new("timeout")
        .args(["--signal", "KILL", COMMAND_LIMIT_S])
        .arg(paths::ephesus())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("run ephesus");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Told {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// One `ephesus coordinator`: running, stopped or crashed; killed when dropped.
#[derive(Debug)]
pub struct Coordinator {
    pub id: u64,
    /// Its arguments behind `ephesus coordinator`; change them between two starts.
    pub arguments: Vec<String>,
    /// What it is run by, e.g. in another namespace.
    pub wrapper: Vec<String>,
    home: PathBuf,
    process: Option<Process>,
}

impl Coordinator {
    /// One that has not been started yet; its output and, if it is named so, its data go to `home`.
    pub fn new(id: u64, arguments: &[&str], home: &Path) -> Self {
        Self {
            id,
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            wrapper: Vec::new(),
            home: home.to_owned(),
            process: None,
        }
    }

    /// Removes a flag without a value from the next start.
    ///
    /// # Panics
    /// When it is not there.
    pub fn without(&mut self, flag: &str) {
        let before = self.arguments.len();
        self.arguments.retain(|word| word != flag);
        assert!(self.arguments.len() < before, "{flag} is not there");
    }

    pub fn process(&self) -> &Process {
        self.process
            .as_ref()
            .expect("the coordinator is not running")
    }

    /// Starts the process without waiting for it; its output goes to a new file per start.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "the coordinator is already running");
        // Two of one number may share a directory, in turns.
        static STARTS: AtomicU64 = AtomicU64::new(0);
        let start = STARTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("coordinator-{}-{start}.log", self.id);
        let mut words = self.wrapper.clone();
        words.push(paths::ephesus().display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("coordinator");
        command.args(&self.arguments);
        command.current_dir(&self.home);
        self.process = Some(Process::spawn(command, &self.home.join(name)));
    }

    /// Waits until it has said that it listens, or reports how it ended.
    pub fn wait_ready(&mut self) -> Result<(), Refused> {
        let process = self.process.as_mut().expect("it was not spawned");
        let deadline = Instant::now() + START_LIMIT;
        while !process.output().contains("  try ") {
            if let Some(status) = process.exit_status() {
                let output = process.output();
                self.process = None;
                return Err(Refused { status, output });
            }
            assert!(
                Instant::now() < deadline,
                "not ready within {START_LIMIT:?}:\n{}",
                process.output_tail()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts it on what its directory holds, and waits until it listens.
    ///
    /// # Panics
    /// When it refuses, with its message.
    pub fn start(&mut self) {
        self.spawn();
        if let Err(refused) = self.wait_ready() {
            let how = describe(refused.status);
            panic!("coordinator {} ({how}):\n{}", self.id, refused.output);
        }
    }

    /// Starts it, expecting it to refuse.
    ///
    /// # Panics
    /// When it starts.
    pub fn start_refused(&mut self) -> Refused {
        self.spawn();
        match self.wait_ready() {
            Err(refused) => refused,
            Ok(()) => panic!("it started:\n{}", self.process().output_tail()),
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.take().expect("it is not running").kill();
    }

    pub fn signal(&self, signal: i32) {
        self.process().signal(signal);
    }

    /// Waits for the process to end by itself; answers how, and what it has printed.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_exit(&mut self, at_most: Duration) -> (ExitStatus, String) {
        let mut process = self.process.take().expect("it is not running");
        match process.wait_exit(at_most) {
            Some(status) => (status, process.output()),
            None => panic!("running after {at_most:?}:\n{}", process.output_tail()),
        }
    }

    /// SIGTERM, and exit code 0.
    pub fn stop(&mut self) {
        self.signal(libc::SIGTERM);
        let (status, output) = self.wait_exit(LIMIT);
        let how = describe(status);
        assert_eq!(status.code(), Some(0), "SIGTERM led to {how}:\n{output}");
    }
}

fn secret_file() -> String {
    paths::cluster_secret().display().to_string()
}

/// The coordinators of one cluster, on loopback, under one directory.
#[derive(Debug)]
pub struct Core {
    pub coordinators: Vec<Coordinator>,
    /// Of each, and last of those that are added later.
    hosts: Vec<Ipv4Addr>,
    ports: PortBlock,
    home: TempDir,
    /// The file that commands of operators name, if the cluster has a secret.
    pub secret: Option<String>,
}

impl Core {
    /// As many coordinators, none of them started; `flags` are for all of them.
    pub fn stopped(count: u16, flags: &[&str]) -> Self {
        Self::stopped_at(Ipv4Addr::LOCALHOST, count, flags)
    }

    /// The same on an address of the test's own.
    pub fn stopped_at(host: Ipv4Addr, count: u16, flags: &[&str]) -> Self {
        let places = vec![(host, Vec::new()); usize::from(count)];
        Self::stopped_on(&places, flags)
    }

    /// One on each address, run by what is named with it.
    pub fn stopped_on(places: &[(Ipv4Addr, Vec<String>)], flags: &[&str]) -> Self {
        let (ports, home) = (PortBlock::take(), paths::scratch());
        let host = |id: u16| places[usize::from(id) - 1].0;
        let at = |id: u16| format!("{}:{}", host(id), ports.base() + id - 1);
        let count = places.len() as u16;
        let peers: Vec<String> = (1..=count).map(|id| format!("{id}@{}", at(id))).collect();
        let coordinator = |id: u16| {
            let (number, directory) = (id.to_string(), format!("coordinator-{id}"));
            let (listen, peers) = (at(id), peers.join(","));
            let own = [
                "--id",
                &number,
                "--listen",
                &listen,
                "--peers",
                &peers,
                "--data-dir",
                &directory,
                "--bootstrap",
            ];
            let secret_file = secret_file();
            let secret = match host(id).is_loopback() {
                true => &[][..],
                false => &["--cluster-secret-file", &secret_file],
            };
            let words = [&own, flags, secret].concat();
            Coordinator {
                wrapper: places[usize::from(id) - 1].1.clone(),
                ..Coordinator::new(id.into(), &words, home.path())
            }
        };
        Self {
            coordinators: (1..=count).map(coordinator).collect(),
            hosts: places.iter().map(|(host, _)| *host).collect(),
            secret: (!places[0].0.is_loopback()).then(secret_file),
            ports,
            home,
        }
    }

    /// The same, started and with a cluster.
    pub fn founded(count: u16, flags: &[&str]) -> Self {
        let mut core = Self::stopped(count, flags);
        core.found();
        core
    }

    /// Starts all of them, and waits for a cluster.
    ///
    /// # Panics
    /// When one refuses, with its message.
    pub fn found(&mut self) {
        self.coordinators.iter_mut().for_each(Coordinator::spawn);
        for coordinator in &mut self.coordinators {
            if let Err(refused) = coordinator.wait_ready() {
                panic!("coordinator {}:\n{}", coordinator.id, refused.output);
            }
        }
        self.until("a cluster", |core| {
            core.try_status()
                .is_some_and(|status| status["cluster"] != "")
        });
    }

    /// Where the data and the output are.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where a coordinator is reached, also one that is added later (up to 16).
    pub fn address(&self, id: u64) -> String {
        let at = (id as usize).min(self.hosts.len()) - 1;
        let port = u64::from(self.ports.base()) + id - 1;
        format!("{}:{port}", self.hosts[at])
    }

    /// Where all of them are reached, for `--coordinator`.
    pub fn addresses(&self) -> String {
        let all = self.coordinators.iter().map(|one| self.address(one.id));
        all.collect::<Vec<_>>().join(",")
    }

    /// # Panics
    /// When there is none of that number.
    pub fn coordinator(&mut self, id: u64) -> &mut Coordinator {
        let mut all = self.coordinators.iter_mut();
        all.find(|one| one.id == id)
            .unwrap_or_else(|| panic!("no coordinator {id}"))
    }

    /// Runs a command of an operator over all coordinators.
    pub fn ask(&self, arguments: &[&str]) -> Told {
        let addresses = self.addresses();
        let secret = self.secret.iter();
        let secret = secret.flat_map(|file| ["--cluster-secret-file", file]);
        let secret: Vec<&str> = secret.collect();
        ephesus(&[arguments, &["--coordinator", &addresses], &secret].concat())
    }

    /// What such a command prints with `--json`.
    ///
    /// # Panics
    /// When nobody answers.
    pub fn json(&self, command: &str) -> Value {
        let told = self.ask(&[command, "--json"]);
        serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"))
    }

    /// `ephesus status --json`; none while nobody leads.
    pub fn try_status(&self) -> Option<Value> {
        serde_json::from_str(&self.ask(&["status", "--json", "--timeout", "1000"]).out).ok()
    }

    /// The number of the coordinator that leads.
    ///
    /// # Panics
    /// When nobody does within the time a command waits.
    pub fn leader(&self) -> u64 {
        self.json("status")["leader"].as_u64().expect("a number")
    }

    /// Whether all of them are heard of, have the log and vote.
    pub fn is_complete(&self) -> bool {
        let rows = self.json("coordinators");
        let rows = rows.as_array().expect("rows");
        let takes_part = |row: &Value| {
            row["active"] == true && row["votes"] == true && row["matched"].as_u64() > Some(0)
        };
        rows.len() == self.coordinators.len() && rows.iter().all(takes_part)
    }

    /// Waits until the cluster is as wanted.
    ///
    /// # Panics
    /// When it never is.
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: not within {LIMIT:?}: {:?}",
                self.ask(&["coordinators"])
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
