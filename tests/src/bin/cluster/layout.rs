//! Which processes there are, where they listen, and where their data and logs are.
//!
//! ```text
//! DIR/coordinator-1 ... coordinator-3   replicated logs
//! DIR/athens, byzantium, cyrene         nodes' data
//! DIR/NAME.log                          what a process has printed
//! DIR/founded                           every partition was online once: no more --bootstrap
//! ```

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ephesus_tests::paths;

pub const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];

pub const COORDINATORS: u16 = 3;

/// Distance from a node's entry port to its port for other nodes.
const PEER_PORT_OFFSET: u16 = 10_000;

/// A cluster under one directory.
#[derive(Debug)]
pub struct Layout {
    dir: PathBuf,
    coordinator_port: u16,
    node_ports: [u16; NODES.len()],
    shards: u16,
    /// One for every shard of every node, in order; empty when there are too few: no pinning.
    cpus: Vec<usize>,
}

impl Layout {
    /// # Errors
    /// When the directory cannot be made, or ports do not fit beside each other.
    pub fn new(
        dir: &Path,
        coordinator_port: u16,
        node_ports: [u16; NODES.len()],
        shards: Option<u16>,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", dir.display());
        std::fs::create_dir_all(dir).map_err(failed)?;
        let cpus = allowed_cpus();
        let nodes = NODES.len();
        let third = (cpus.len() / nodes).max(1) as u16;
        let shards = shards.unwrap_or_else(|| third.min(shards_between(&node_ports)));
        let needed = nodes * usize::from(shards);
        let layout = Self {
            dir: dir.canonicalize().map_err(failed)?,
            coordinator_port,
            node_ports,
            shards,
            cpus: if cpus.len() < needed {
                Vec::new()
            } else {
                cpus[..needed].to_vec()
            },
        };
        let mut taken: Vec<u16> = Vec::new();
        for (port, what) in layout.ports()? {
            if taken.contains(&port) {
                return Err(format!("port {port} is wanted twice, also for {what}"));
            }
            taken.push(port);
        }
        Ok(layout)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn shards(&self) -> u16 {
        self.shards
    }

    pub fn node_ports(&self) -> [u16; NODES.len()] {
        self.node_ports
    }

    /// Every port and what it is for.
    fn ports(&self) -> Result<Vec<(u16, String)>, String> {
        let mut ports = Vec::new();
        let mut add = |first: u16, offset: u16, what: String| match first.checked_add(offset) {
            Some(port) if first > 0 => {
                ports.push((port, what));
                Ok(())
            }
            _ => Err(format!("there is no port {first}+{offset} for {what}")),
        };
        for id in 1..=COORDINATORS {
            add(self.coordinator_port, id - 1, format!("coordinator {id}"))?;
        }
        for (&port, name) in self.node_ports.iter().zip(NODES) {
            add(port, 0, format!("clients of {name}"))?;
            for shard in 0..self.shards {
                add(port, 1 + shard, format!("shard {shard} of {name}"))?;
            }
            add(port, PEER_PORT_OFFSET, format!("{name}'s peers"))?;
        }
        Ok(ports)
    }

    /// # Errors
    /// When somebody else listens on one of the ports.
    pub fn check_ports(&self) -> Result<(), String> {
        for (port, what) in self.ports()? {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
                format!(
                    "127.0.0.1:{port}, for {what}: {error}; stop what listens there, or choose \
                     other ports with --coordinator-port and --node-ports"
                )
            })?;
        }
        Ok(())
    }

    fn coordinator_address(&self, id: u16) -> String {
        format!("127.0.0.1:{}", self.coordinator_port + id - 1)
    }

    /// For `--coordinator`.
    pub fn coordinators(&self) -> String {
        let all: Vec<String> = (1..=COORDINATORS)
            .map(|id| self.coordinator_address(id))
            .collect();
        all.join(",")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    fn founded(&self) -> PathBuf {
        self.dir.join("founded")
    }

    /// Notes that the cluster is there.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn note_founded(&self) -> Result<(), String> {
        let path = self.founded();
        std::fs::write(&path, "").map_err(|error| format!("{}: {error}", path.display()))
    }

    /// `ephesus coordinator`, and what its data and log are called.
    pub fn coordinator(&self, id: u16, partitions: u16) -> (String, Command) {
        let peers: Vec<String> = (1..=COORDINATORS)
            .map(|id| format!("{id}@{}", self.coordinator_address(id)))
            .collect();
        let name = format!("coordinator-{id}");
        let mut command = Command::new(paths::ephesus());
        command
            .args(["coordinator", "--id", &id.to_string()])
            .args(["--listen", &self.coordinator_address(id)])
            .args(["--peers", &peers.join(",")])
            .arg("--data-dir")
            .arg(self.dir.join(&name));
        if !self.founded().exists() {
            command
                .arg("--bootstrap")
                .args(["--partitions", &partitions.to_string()])
                .args(["--min-nodes", &NODES.len().to_string()]);
        }
        (name, command)
    }

    /// `ephesus serve` for the node of that number, on CPUs of its own if there are enough.
    pub fn node(&self, number: usize) -> Command {
        let mut command = Command::new(paths::ephesus());
        command
            .args(["serve", "--name", NODES[number]])
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.node_ports[number]))
            .args(["--shards", &self.shards.to_string()])
            .args(["--coordinator", &self.coordinators()])
            .arg("--data-dir")
            .arg(self.dir.join(NODES[number]));
        let shards = usize::from(self.shards);
        match self.cpus.chunks_exact(shards).nth(number) {
            Some(cpus) => confine(&mut command, cpus),
            None => drop(command.arg("--no-pin")),
        }
        command
    }

    /// How to connect.
    pub fn guide(&self) -> String {
        let first = self.node_ports[0];
        let mut text = "\nevery partition is online\n\n".to_owned();
        for (name, port) in NODES.into_iter().zip(self.node_ports) {
            text += &format!("  {name:<12} 127.0.0.1:{port}\n");
        }
        text += &format!(
            "  {:<12} {}\n  {:<12} {}/*.log\n\n",
            "coordinators",
            self.coordinators(),
            "logs",
            self.dir.display()
        );
        text += &format!(
            "  redis-cli -c -p {first} set greeting hello\n\
             \x20 redis-benchmark --cluster -p {first} -t set,get -P 16 -q\n\
             \x20 {} status --coordinator {}\n\n\
             Ctrl-C stops it; it comes back with its data\n",
            paths::ephesus().display(),
            self.coordinators()
        );
        text
    }
}

/// How many shards fit between the entry ports of neighbouring nodes.
fn shards_between(ports: &[u16; NODES.len()]) -> u16 {
    let gaps = ports.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    gaps.min().unwrap_or(u16::MAX).saturating_sub(1).max(1)
}

fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a zeroed set is a valid empty set of the size that is passed.
    let (status, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let status = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (status, set)
    };
    // SAFETY: every index is below CPU_SETSIZE.
    let is_allowed = |cpu: &usize| status == 0 && unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect()
}

fn confine(command: &mut Command, cpus: &[usize]) {
    // SAFETY: a zeroed set is a valid empty set; the CPUs come from such a set.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        set
    };
    // SAFETY: sched_setaffinity is async-signal-safe, and `set` is valid for its size.
    unsafe {
        command.pre_exec(move || {
            match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}
