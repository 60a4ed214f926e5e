//! Stock clients as processes of their own, which must not meet any error.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::certificates::Certificates;
use crate::paths;
use crate::whole::TestCluster;

/// What a script says once it is at work.
const READY: &[u8] = b"ready\n";

/// redis-py's RedisCluster at work, without any patience, until it is told to end.
#[derive(Debug)]
pub struct StockClient(Child);

impl StockClient {
    /// Runs a script of `tests/python`, which begins at the nodes that there are.
    ///
    /// # Panics
    /// When it ends before it says that it is ready.
    pub fn start(script: &str, whole: &TestCluster) -> Self {
        let mut command = command(script);
        command.args(whole.nodes.iter().map(|node| node.port().to_string()));
        Self::run(command)
    }

    /// The same over TLS, with a certificate of its own.
    ///
    /// # Panics
    /// As there.
    pub fn start_over_tls(script: &str, whole: &TestCluster, files: &Certificates) -> Self {
        let mut command = command(script);
        command.args(whole.nodes.iter().map(|node| node.tls_port().to_string()));
        let [certificate, key] = files.issue("client");
        command.env("EPHESUS_TLS_CA", files.authority());
        command.env("EPHESUS_TLS_CERT", certificate);
        command.env("EPHESUS_TLS_KEY", key);
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        let mut client = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start python");
        let mut ready = [0; READY.len()];
        let output = client.stdout.as_mut().expect("its output");
        output.read_exact(&mut ready).expect("it is ready");
        assert_eq!(ready, READY);
        Self(client)
    }

    /// Ends it, and answers what it has printed.
    ///
    /// # Panics
    /// When it has met an error.
    pub fn finish(mut self) -> String {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().expect("its end");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "redis-py: {text}");
        eprintln!("redis-py: {}", text.trim());
        text
    }
}

fn command(script: &str) -> Command {
    let mut command = Command::new(paths::python());
    command.arg(paths::workspace().join("tests/python").join(script));
    command
}
