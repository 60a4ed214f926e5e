//! A real `redis-server`: what a command should answer is what Redis answers.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::paths;
use crate::ports::PortBlock;
use crate::process::Process;
use crate::resp::Client;

/// Stands for a port that is not known yet.
const TLS_PORT: &str = "TLS-PORT";

/// A redis-server without persistence; killed when dropped.
#[derive(Debug)]
pub struct Oracle {
    process: Process,
    ports: PortBlock,
    _dir: TempDir,
}

impl Oracle {
    /// One standalone Redis.
    pub fn standalone() -> Self {
        Self::start(&[])
    }

    /// One Redis Cluster node that owns every slot.
    pub fn cluster() -> Self {
        paths::require("redis-server");
        Self::with_every_slot(Path::new("redis-server"), &[])
    }

    /// The same of Valkey 9.1, with databases.
    pub fn valkey_cluster() -> Self {
        Self::with_every_slot(&paths::valkey_server(), &["--cluster-databases", "16"])
    }

    fn with_every_slot(program: &Path, extra: &[&str]) -> Self {
        let oracle = Self::run(program, &[&["--cluster-enabled", "yes"], extra].concat());
        let mut client = oracle.client();
        assert_eq!(
            client.say("CLUSTER ADDSLOTSRANGE 0 16383"),
            crate::Reply::ok()
        );
        let deadline = Instant::now() + Duration::from_secs(20);
        while !client
            .say("CLUSTER INFO")
            .text()
            .contains("cluster_state:ok")
        {
            assert!(
                Instant::now() < deadline,
                "the Redis Cluster never became ok"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        oracle
    }

    /// One that also listens for TLS, as the files say: those who sign clients' certificates, its own and its key.
    pub fn behind_tls([authority, own, key]: [&str; 3], extra: &[&str]) -> Self {
        let files = [
            "--tls-ca-cert-file",
            authority,
            "--tls-cert-file",
            own,
            "--tls-key-file",
            key,
        ];
        let tls = ["--tls-port", TLS_PORT];
        Self::start(&[&tls[..], &files, extra].concat())
    }

    /// One standalone Valkey 9.1, for what Redis 7.0 does not have.
    pub fn valkey() -> Self {
        Self::run(&paths::valkey_server(), &[])
    }

    /// One standalone Redis with these options.
    pub fn with(options: &[&str]) -> Self {
        Self::start(options)
    }

    fn start(extra: &[&str]) -> Self {
        paths::require("redis-server");
        Self::run(Path::new("redis-server"), extra)
    }

    fn run(program: &Path, extra: &[&str]) -> Self {
        let ports = PortBlock::take();
        let dir = paths::scratch();
        let mut command = Command::new(program);
        command.arg("--port").arg(ports.base().to_string());
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        // What has expired is removed soon.
        command.args(["--hz", "500"]);
        // By default 10000 above, where a port of somebody else may be.
        let bus = (ports.base() + 1).to_string();
        if extra.contains(&"--cluster-enabled") {
            command.args(["--cluster-port", &bus]);
        }
        let tls = (ports.base() + 2).to_string();
        let port = |word: &&str| {
            if *word == TLS_PORT {
                tls.clone()
            } else {
                (*word).to_owned()
            }
        };
        command
            .arg("--dir")
            .arg(dir.path())
            .args(extra.iter().map(port));
        let mut process = Process::spawn(command, &dir.path().join("redis.log"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while Client::connect(ports.base())
            .and_then(|mut c| c.try_call(&["PING"]))
            .is_err()
        {
            assert!(
                process.exit_status().is_none() && Instant::now() < deadline,
                "{} does not answer:\n{}",
                program.display(),
                process.output_tail()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Self {
            process,
            ports,
            _dir: dir,
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.ports.base()).unwrap_or_else(|error| {
            panic!(
                "connect to redis-server: {error}\n{}",
                self.process.output_tail()
            )
        })
    }

    pub fn port(&self) -> u16 {
        self.ports.base()
    }

    /// Of one behind TLS.
    pub fn tls_port(&self) -> u16 {
        self.ports.base() + 2
    }
}
