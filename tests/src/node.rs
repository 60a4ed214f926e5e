//! One `ephesus serve` process with its data directory and its ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::failpoint::{self, Failpoints};
use crate::paths;
use crate::ports::{BLOCK, PortBlock};
use crate::process::{Process, describe};
use crate::resp::{Client, Reply};

/// Where the TLS ports are in a node's block.
const TLS: u16 = BLOCK / 2;

/// How long a node may take from its start to its first PONG.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The flags of `ephesus serve`; what is `None` is left to the default.
#[derive(Clone, Debug)]
pub struct Options {
    pub shards: u16,
    pub partitions: Option<u32>,
    pub durability: Option<&'static str>,
    pub max_memory: Option<u64>,
    pub wal_budget: Option<u64>,
    pub max_clients: Option<u32>,
    pub on_damage: Option<&'static str>,
    /// Where the node listens.
    pub host: IpAddr,
    /// Where coordinators are, each as `host:port`; none: the node brings its own.
    pub coordinators: Vec<String>,
    pub name: Option<String>,
    /// The flags that name files of TLS, if the node has a TLS port.
    pub tls: Option<Vec<String>>,
    /// More flags, as they stand on the command line.
    pub flags: Vec<String>,
    pub failpoints: Option<Failpoints>,
    /// Runs the node under this command, e.g. `["strace", "-f"]`.
    pub wrapper: Vec<String>,
}

impl Default for Options {
    /// Two unpinned shards and few partitions: tests share the machine.
    fn default() -> Self {
        Self {
            shards: 2,
            partitions: Some(64),
            durability: None,
            max_memory: None,
            wal_budget: None,
            max_clients: None,
            on_damage: None,
            host: Ipv4Addr::LOCALHOST.into(),
            coordinators: Vec::new(),
            name: None,
            tls: None,
            flags: Vec::new(),
            failpoints: None,
            wrapper: Vec::new(),
        }
    }
}

/// Why a node did not start.
#[derive(Debug)]
pub struct Refused {
    pub status: ExitStatus,
    pub output: String,
}

impl Refused {
    /// The exit code; a node that refuses never dies of a signal.
    ///
    /// # Panics
    /// When it did.
    pub fn code(&self) -> i32 {
        let how = describe(self.status);
        self.status
            .code()
            .unwrap_or_else(|| panic!("ended by {how}:\n{}", self.output))
    }

    /// # Panics
    /// When the output lacks one of the words, compared without case.
    pub fn assert_says(&self, words: &[&str]) {
        let output = self.output.to_lowercase();
        for word in words {
            assert!(
                output.contains(&word.to_lowercase()),
                "the message does not mention {word:?}:\n{}",
                self.output
            );
        }
    }
}

/// A running, stopped or crashed node; killed when dropped.
#[derive(Debug)]
pub struct Node {
    pub options: Options,
    /// Before its home: it tells the end of its output when a test fails.
    process: Option<Process>,
    data: PathBuf,
    home: TempDir,
    ports: PortBlock,
    starts: usize,
}

impl Node {
    /// Starts a node on a fresh data directory and waits until it answers.
    pub fn start(options: Options) -> Self {
        let mut node = Self::stopped(options);
        node.restart();
        node
    }

    /// A node that has not been started yet, on a fresh data directory.
    pub fn stopped(options: Options) -> Self {
        let home = paths::scratch();
        let data = home.path().join("data");
        Self::stopped_at(options, home, data)
    }

    /// The same with its data at `data`, which may be on a mount of the test's own.
    pub fn stopped_at(options: Options, home: TempDir, data: PathBuf) -> Self {
        let room = if options.tls.is_some() { TLS } else { BLOCK };
        assert!(
            options.shards < room,
            "a port block has room for {} shards",
            room - 1
        );
        Self {
            options,
            data,
            home,
            ports: PortBlock::take(),
            process: None,
            starts: 0,
        }
    }

    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// The entry port.
    pub fn port(&self) -> u16 {
        self.ports.base()
    }

    /// The same with the host.
    pub fn entry(&self) -> SocketAddr {
        SocketAddr::new(self.options.host, self.port())
    }

    /// The port of one shard.
    pub fn direct_port(&self, shard: u16) -> u16 {
        assert!(shard < self.options.shards);
        self.ports.base() + 1 + shard
    }

    /// The entry port for TLS, with the port of each shard behind it.
    pub fn tls_port(&self) -> u16 {
        self.ports.base() + TLS
    }

    pub fn client(&self) -> Client {
        self.connect(self.port())
    }

    pub fn direct_client(&self, shard: u16) -> Client {
        self.connect(self.direct_port(shard))
    }

    fn connect(&self, port: u16) -> Client {
        let address = SocketAddr::new(self.options.host, port);
        Client::connect_to(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("the node is not running")
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// The command line of `ephesus serve` for these options.
    pub fn command(&self) -> Command {
        let mut words: Vec<String> = self.options.wrapper.clone();
        words.push(paths::ephesus().display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("serve").arg("--no-pin");
        command.arg("--data-dir").arg(&self.data);
        let listen = self.entry();
        command.arg("--listen").arg(listen.to_string());
        if !listen.ip().is_loopback() {
            command.arg("--insecure");
            command
                .arg("--cluster-secret-file")
                .arg(paths::cluster_secret());
        }
        let mut flag = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                command.arg(name).arg(value);
            }
        };
        let options = &self.options;
        flag("--shards", Some(options.shards.to_string()));
        flag("--partitions", options.partitions.map(|n| n.to_string()));
        flag("--durability", options.durability.map(str::to_owned));
        flag("--max-memory", options.max_memory.map(|n| n.to_string()));
        flag("--wal-budget", options.wal_budget.map(|n| n.to_string()));
        flag("--max-clients", options.max_clients.map(|n| n.to_string()));
        flag("--on-damage", options.on_damage.map(str::to_owned));
        let coordinators = options.coordinators.join(",");
        flag(
            "--coordinator",
            Some(coordinators).filter(|all| !all.is_empty()),
        );
        flag("--name", options.name.clone());
        if let Some(files) = &options.tls {
            command.arg("--tls-port").arg(self.tls_port().to_string());
            command.args(files);
        }
        if let Some(failpoints) = &options.failpoints {
            command.env(failpoint::VARIABLE, failpoints.directory());
        }
        command.args(&options.flags);
        command
    }

    /// Starts the process without waiting for it; its output goes to a new file per start.
    pub fn spawn(&mut self) {
        assert!(self.process.is_none(), "the node is already running");
        self.starts += 1;
        let output = self.home.path().join(format!("output-{}.log", self.starts));
        self.process = Some(Process::spawn(self.command(), &output));
    }

    /// Waits until the node answers PING, or reports how it ended.
    pub fn wait_ready(&mut self) -> Result<(), Refused> {
        let entry = self.entry();
        let process = self.process.as_mut().expect("the node was not spawned");
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = process.exit_status() {
                let output = process.output();
                self.process = None;
                return Err(Refused { status, output });
            }
            let pong = Reply::Simple("PONG".to_owned());
            let answer =
                Client::connect_to(entry).and_then(|mut client| client.try_call(&["PING"]));
            // A node with a password answers, too.
            let is_answer = |reply: &Reply| {
                let error = reply.error();
                *reply == pong || error.is_some_and(|error| error.starts_with("NOAUTH "))
            };
            if answer.is_ok_and(|reply| is_answer(&reply)) {
                return Ok(());
            }
            assert!(
                Instant::now() < deadline,
                "no PONG from {entry} within {START_LIMIT:?}:\n{}",
                process.output_tail()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts the node on what its data directory holds, and waits until it answers.
    ///
    /// # Panics
    /// When it refuses, with its message.
    pub fn restart(&mut self) {
        self.spawn();
        if let Err(refused) = self.wait_ready() {
            panic!(
                "the node did not start ({}):\n{}",
                describe(refused.status),
                refused.output
            );
        }
    }

    /// Starts the node, expecting it to refuse.
    ///
    /// # Panics
    /// When it starts.
    pub fn start_refused(&mut self) -> Refused {
        self.spawn();
        match self.wait_ready() {
            Err(refused) => refused,
            Ok(()) => panic!("the node started:\n{}", self.process().output_tail()),
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the node is not running");
        process.kill();
    }

    /// Whether it runs and has stopped, as at a failpoint.
    pub fn is_stopped(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_stopped)
    }

    pub fn signal(&self, signal: i32) {
        self.process().signal(signal);
    }

    /// Whether the process has ended by itself.
    pub fn has_exited(&mut self) -> bool {
        let process = self.process.as_mut().expect("the node is not running");
        process.exit_status().is_some()
    }

    /// Waits until the output has all of `words`.
    ///
    /// # Panics
    /// When it lacks one of them for so long.
    pub fn wait_says(&self, words: &[&str], at_most: Duration) -> String {
        let deadline = Instant::now() + at_most;
        loop {
            let output = self.process().output();
            if words.iter().all(|word| output.contains(word)) {
                return output;
            }
            assert!(
                Instant::now() < deadline,
                "{words:?} are not all said within {at_most:?}:\n{output}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the process to end by itself.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_exit(&mut self, at_most: Duration) -> ExitStatus {
        let mut process = self.process.take().expect("the node is not running");
        process.wait_exit(at_most).unwrap_or_else(|| {
            panic!(
                "still running after {at_most:?}:\n{}",
                process.output_tail()
            )
        })
    }

    /// SIGTERM, and exit code 0.
    pub fn stop(&mut self) {
        self.signal(libc::SIGTERM);
        let status = self.wait_exit(Duration::from_secs(60));
        assert_eq!(
            status.code(),
            Some(0),
            "SIGTERM led to {}",
            describe(status)
        );
    }

    /// `ephesus check` on the data directory: exit code and output.
    pub fn check(&self) -> (Option<i32>, String) {
        let output = Command::new(paths::ephesus())
            .arg("check")
            .arg("--data-dir")
            .arg(&self.data)
            .output()
            .expect("run ephesus check");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }
}
