//! A network of the test's own, in which links can be cut one way.
//!
//! ```text
//! host   10.77.0.1 clients and nodes, 10.77.0.9 coordinators; the thread's own namespace
//!   |     veth
//! netns  10.77.0.2 one node; the namespace of a process that sleeps
//! ```
//!
//! Everything is gone when the thread and the process have ended.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::needs::lacks;
use crate::paths;
use crate::process::Process;

pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const COORDINATORS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
pub const NETNS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// How long the kernel may take to make a namespace.
const LIMIT: Duration = Duration::from_secs(10);

/// A direction between the namespace and the coordinators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToCoordinators,
    FromCoordinators,
}

/// The far side of the link.
#[derive(Debug)]
pub struct Netns(Holder);

/// A process that sleeps in a namespace of its own, and keeps it.
#[derive(Debug)]
pub(crate) struct Holder {
    process: Process,
    _home: tempfile::TempDir,
}

/// Runs `test` on a thread with a network of its own: processes and sockets that it makes are in
/// there.
///
/// # Panics
/// When the test does, and where the kernel refuses to make one, unless `EPHESUS_ALLOW_SKIP=1`.
pub fn with_own_network(test: impl FnOnce(&Netns) + Send) {
    on_own_network(|| test(&Netns::make()));
}

/// Runs `test` on a thread with an empty network.
pub(crate) fn on_own_network(test: impl FnOnce() + Send) {
    let run = || {
        // SAFETY: no memory is involved; only this thread moves to the new namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = io::Error::last_os_error();
            return lacks(&format!("the kernel refuses a network namespace: {error}"));
        }
        test();
    };
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(run).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

impl Netns {
    fn make() -> Self {
        let netns = Self(Holder::new());
        let pid = netns.0.pid();
        ip("link set lo up");
        ip(&format!(
            "link add outer type veth peer name inner netns {pid}"
        ));
        ip(&format!("addr add {HOST}/24 dev outer"));
        ip(&format!("addr add {COORDINATORS}/32 dev outer"));
        ip("link set outer up");
        netns.0.ip("link set lo up");
        netns.0.ip(&format!("addr add {NETNS}/24 dev inner"));
        netns.0.ip("link set inner up");
        netns
    }

    /// What runs a program in the namespace, under its own pid.
    pub fn wrapper(&self) -> Vec<String> {
        self.0.wrapper()
    }

    /// From now on packets of this direction vanish.
    pub fn cut(&self, direction: Direction) {
        self.change("add", direction);
    }

    /// They arrive again.
    pub fn heal(&self, direction: Direction) {
        self.change("del", direction);
    }

    fn change(&self, verb: &str, direction: Direction) {
        match direction {
            Direction::ToCoordinators => {
                self.0.ip(&format!("route {verb} blackhole {COORDINATORS}"))
            }
            Direction::FromCoordinators => ip(&format!(
                "rule {verb} blackhole from {COORDINATORS} to {NETNS}"
            )),
        }
    }
}

impl Holder {
    pub(crate) fn new() -> Self {
        let home = paths::scratch();
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "600"]);
        let process = Process::spawn(command, &home.path().join("holder.log"));
        let holder = Self {
            process,
            _home: home,
        };
        let pid = holder.pid();
        let own = fs::read_link("/proc/thread-self/ns/net").expect("the own namespace");
        let deadline = Instant::now() + LIMIT;
        // It is still this program until it has become `unshare`.
        while fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|its| its == own) {
            assert!(Instant::now() < deadline, "no namespace of its own");
            std::thread::sleep(Duration::from_millis(2));
        }
        holder
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What runs a program in there, under its own pid.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let network = format!("--net=/proc/{}/ns/net", self.pid());
        vec!["nsenter".to_owned(), network, "--".to_owned()]
    }

    pub(crate) fn ip(&self, words: &str) {
        let wrapper = self.wrapper();
        let mut command = Command::new(&wrapper[0]);
        run(command.args(&wrapper[1..]).arg("ip").args(words.split(' ')));
    }
}

pub(crate) fn ip(words: &str) {
    run(Command::new("ip").args(words.split(' ')));
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
}
