//! Clients over TLS: stock ones, wrong ones, and certificates that change.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ephesus_tests::stock::StockClient;
use ephesus_tests::{Certificates, Node, Options, Reply, TestCluster, paths};

use crate::benchmark::bench;

/// A handshake may take ten seconds.
const HANDSHAKE: Duration = Duration::from_secs(10);

const SOON: Duration = Duration::from_secs(10);

fn started(shards: u16, tls: Vec<String>) -> Node {
    Node::start(Options {
        shards,
        tls: Some(tls),
        ..Options::default()
    })
}

/// redis-cli at a TLS port, with files for `--cacert`, `--cert` and `--key`.
fn redis_cli(port: u16, ca: &Path, own: Option<&[PathBuf; 2]>, words: &[&str]) -> Output {
    let mut command = Command::new("redis-cli");
    command.args(["--no-auth-warning", "--tls", "-p", &port.to_string()]);
    command.arg("--cacert").arg(ca);
    if let Some([certificate, key]) = own {
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
    }
    command.args(words).output().expect("run redis-cli")
}

fn told(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).trim().to_owned()
}

/// A number of `INFO stats`.
fn counted(node: &Node, name: &str) -> u64 {
    let info = node.client().say("INFO stats").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.strip_prefix(':'));
    number.expect(name).trim().parse().expect("a number")
}

fn wait_counted(node: &Node, name: &str, at_least: u64, within: Duration) {
    let began = Instant::now();
    while counted(node, name) < at_least {
        assert!(began.elapsed() < within, "{name} is below {at_least}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn python(node: &Node, files: &[&Path]) {
    let output = Command::new(paths::python())
        .arg(paths::workspace().join("tests/python/tls.py"))
        .arg(node.tls_port().to_string())
        .arg((node.tls_port() + 1).to_string())
        .args(files)
        .output()
        .expect("run python");
    assert!(output.status.success(), "{}", told(&output));
}

#[test]
fn stock_clients_come_over_tls_with_a_certificate_and_without() {
    paths::require("redis-cli");
    let files = Certificates::new();
    let own = files.issue("client");
    let ca = files.authority();
    let node = started(2, files.flags());
    python(&node, &[&ca, &own[0], &own[1]]);
    let say = |words: &[&str]| told(&redis_cli(node.tls_port(), &ca, Some(&own), words));
    assert_eq!(say(&["set", "b", "2"]), "OK");
    assert_eq!(say(&["-3", "get", "b"]), "2");
    let direct = redis_cli(
        node.tls_port() + 1,
        &ca,
        Some(&own),
        &["-c", "set", "c", "3"],
    );
    assert_eq!(told(&direct), "OK");
    assert_eq!(
        node.client().say("GET c"),
        Reply::bulk("3"),
        "of both kinds"
    );
    assert_eq!(counted(&node, "tls_connections_refused"), 0);
    let node = started(2, files.flags_without_authority());
    python(&node, &[&ca]);
}

#[test]
fn a_load_with_large_values_and_pipelines_goes_over_tls() {
    let files = Certificates::new();
    let [certificate, key] = files.issue("client");
    let node = started(2, files.flags());
    let load = "--keys 100 --fill --count 5000 --verify --value-bytes 32-20000 --pipeline 16";
    let port = node.tls_port();
    let flags = format!(
        "127.0.0.1:{port} {load} --tls --ca-file {} --cert-file {} --key-file {}",
        files.authority().display(),
        certificate.display(),
        key.display()
    );
    bench(&flags).expect("a load");
    bench(&flags.replacen(load, &format!("--cluster {load}"), 1)).expect("a load");
}

#[test]
fn over_tls_clients_are_led_to_tls_ports_and_without_it_to_the_others() {
    paths::require("redis-cli");
    let files = Certificates::new();
    let node = started(2, files.flags_without_authority());
    let ca = files.authority();
    let say = |words: &[&str]| told(&redis_cli(node.tls_port(), &ca, None, words));
    let (plain, tls) = (node.port(), node.tls_port());
    let nodes = say(&["cluster", "nodes"]);
    for shard in 1..=2 {
        assert!(nodes.contains(&format!(":{}@", tls + shard)), "{nodes}");
        assert!(!nodes.contains(&format!(":{}@", plain + shard)), "{nodes}");
    }
    let nodes = node.client().say("CLUSTER NODES").text();
    assert!(nodes.contains(&format!(":{}@", plain + 1)), "{nodes}");
    assert!(!nodes.contains(&format!(":{}@", tls + 1)), "{nodes}");
    let slots = say(&["cluster", "slots"]);
    assert!(slots.contains(&(tls + 2).to_string()), "{slots}");
    for shards in [
        say(&["cluster", "shards"]),
        format!("{:?}", node.client().say("CLUSTER SHARDS")),
    ] {
        for word in ["tls-port", &(tls + 1).to_string(), &(plain + 1).to_string()] {
            assert!(shards.contains(word), "{word} in {shards}");
        }
    }
    let moved = |port: u16| {
        let mut all =
            (0..50).map(|n| told(&redis_cli(port, &ca, None, &["get", &format!("k{n}")])));
        all.find(|reply| reply.starts_with("MOVED")).expect("moved")
    };
    let text = moved(tls + 1);
    assert!(text.ends_with(&format!(":{}", tls + 2)), "{text}");
    let config = say(&["config", "get", "tls-*"]);
    let port = tls.to_string();
    for word in [
        "tls-port",
        &*port,
        "tls-auth-clients",
        "node.pem",
        "node.key",
    ] {
        assert!(config.contains(word), "{word} in {config}");
    }
    let without = Node::start(Options::default());
    let shards = format!("{:?}", without.client().say("CLUSTER SHARDS"));
    assert!(!shards.contains("tls-port"), "{shards}");
}

#[test]
fn clients_with_wrong_certificates_or_without_tls_are_refused_counted_and_told_of_once() {
    paths::require("redis-cli");
    let (files, strangers) = (Certificates::new(), Certificates::new());
    let own = files.issue("client");
    let expired = files.issue_expired("expired");
    let stranger = strangers.issue("stranger");
    let ca = files.authority();
    let node = started(1, files.flags());
    let port = node.tls_port();
    let ping = |ca: &Path, own: Option<&[PathBuf; 2]>| told(&redis_cli(port, ca, own, &["ping"]));
    let mut refused = 0;
    for (ca, own, what) in [
        (&ca, None, "no certificate"),
        (&ca, Some(&expired), "an expired one"),
        (&ca, Some(&stranger), "one of another authority"),
        (&strangers.authority(), Some(&own), "it trusts others"),
    ] {
        let text = ping(ca, own);
        assert_ne!(text, "PONG", "{what}");
        refused += 1;
        wait_counted(&node, "tls_connections_refused", refused, SOON);
    }
    for bytes in [
        &b"*1\r\n$4\r\nPING\r\n"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 20_000],
    ] {
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        client.set_read_timeout(Some(SOON)).expect("set");
        client.write_all(bytes).expect("sent");
        let mut heard = Vec::new();
        let _ = client.read_to_end(&mut heard);
        assert!(!heard.contains(&b'+'), "an alert at most: {heard:?}");
        refused += 1;
        wait_counted(&node, "tls_connections_refused", refused, SOON);
    }
    // TLS at a port without it is a malformed request.
    assert_ne!(
        told(&redis_cli(node.port(), &ca, Some(&own), &["ping"])),
        "PONG"
    );
    assert_eq!(ping(&ca, Some(&own)), "PONG");
    let output = node.process().output();
    let lines = output.lines().filter(|line| line.contains("at a TLS port"));
    assert_eq!(lines.count(), 1, "{output}");
    // A certificate need not be shown, but a shown one has to be right.
    let mut flags = files.flags();
    flags.extend(["--tls-auth-clients", "optional"].map(str::to_owned));
    let node = started(1, flags);
    let ping = |own| told(&redis_cli(node.tls_port(), &ca, own, &["ping"]));
    assert_eq!([ping(None), ping(Some(&own))], ["PONG", "PONG"]);
    assert_ne!(ping(Some(&stranger)), "PONG");
    assert_ne!(ping(Some(&expired)), "PONG");
}

#[test]
fn a_handshake_that_does_not_end_is_closed_and_in_nobodys_way() {
    paths::require("redis-cli");
    let files = Certificates::new();
    let node = started(1, files.flags_without_authority());
    let ca = files.authority();
    let begun = Instant::now();
    let connect = |bytes: &[u8]| {
        let mut client = TcpStream::connect(("127.0.0.1", node.tls_port())).expect("connected");
        client.write_all(bytes).expect("sent");
        client
            .set_read_timeout(Some(HANDSHAKE + SOON))
            .expect("set");
        client
    };
    // Nothing; and the beginning of a hello of 512 bytes.
    let held: Vec<TcpStream> = (0..100)
        .flat_map(|_| [connect(b""), connect(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc])])
        .collect();
    let pinging = Instant::now();
    assert_eq!(
        told(&redis_cli(node.tls_port(), &ca, None, &["ping"])),
        "PONG"
    );
    assert!(pinging.elapsed() < Duration::from_secs(3));
    for mut client in held {
        let mut heard = Vec::new();
        let _ = client.read_to_end(&mut heard);
        assert!(heard.is_empty());
    }
    let took = begun.elapsed();
    assert!(took >= HANDSHAKE - Duration::from_secs(1), "{took:?}");
    wait_counted(&node, "tls_connections_refused", 200, SOON);
    assert_eq!(
        told(&redis_cli(node.tls_port(), &ca, None, &["ping"])),
        "PONG"
    );
}

#[test]
fn a_hangup_has_the_files_read_again_and_wrong_ones_change_nothing() {
    paths::require("redis-cli");
    let (first, second) = (Certificates::new(), Certificates::new());
    let node = started(1, first.flags());
    let own = first.issue("client");
    let ping = |files: &Certificates, own: &[PathBuf; 2]| {
        told(&redis_cli(
            node.tls_port(),
            &files.authority(),
            Some(own),
            &["ping"],
        ))
    };
    assert_eq!(ping(&first, &own), "PONG");
    // Half written: the old ones stay.
    fs::write(first.dir().join("node.pem"), "-----BEGIN").expect("written");
    node.signal(libc::SIGHUP);
    let output = node.wait_says(&["as they were read before", "node.pem"], SOON);
    let lines = output.lines().filter(|line| line.contains("SIGHUP"));
    assert_eq!(lines.count(), 1, "{output}");
    assert_eq!(ping(&first, &own), "PONG");
    // All files of another authority: those who trust the first one are strangers now.
    let connected = node.client();
    second.issue("node");
    for name in ["node.pem", "node.key", "ca.pem"] {
        fs::copy(second.dir().join(name), first.dir().join(name)).expect("copied");
    }
    node.signal(libc::SIGHUP);
    node.wait_says(&["were read again"], SOON);
    let other = second.issue("client");
    assert_eq!(ping(&second, &other), "PONG");
    assert_ne!(ping(&second, &own), "PONG");
    drop(connected);
    // A node without TLS goes on.
    let node = Node::start(Options::default());
    node.signal(libc::SIGHUP);
    node.wait_says(&["no files to read again"], SOON);
    assert_eq!(node.client().say("PING"), Reply::Simple("PONG".to_owned()));
}

#[test]
fn what_does_not_fit_is_refused_at_the_start_in_one_line() {
    let files = Certificates::new();
    files.issue("node");
    let expired = files.issue_expired("expired");
    let dir = files.dir().to_owned();
    let path = |name: &str| dir.join(name).display().to_string();
    let refuse = |flags: &[&str], words: &[&str]| {
        let mut node = Node::stopped(Options {
            flags: flags.iter().map(|&word| word.to_owned()).collect(),
            ..Options::default()
        });
        let base = node.port();
        for flag in &mut node.options.flags {
            for (name, port) in [("BASE", base), ("LAST", base + 2), ("PEER", base + 10_000)] {
                if flag == name {
                    *flag = port.to_string();
                }
            }
        }
        let refused = node.start_refused();
        assert_eq!(refused.code(), 2, "{}", refused.output);
        assert_eq!(
            refused.output.trim().lines().count(),
            1,
            "{}",
            refused.output
        );
        refused.assert_says(words);
    };
    let (certificate, key, ca) = (path("node.pem"), path("node.key"), path("ca.pem"));
    let tls = |port| {
        [
            "--tls-port",
            port,
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
        ]
    };
    refuse(&tls("BASE"), &["--tls-port", "clients without TLS"]);
    refuse(&tls("LAST"), &["--tls-port", "clients without TLS"]);
    refuse(&tls("PEER"), &["--tls-port", "other nodes"]);
    refuse(&tls("65535"), &["--tls-port", "65535"]);
    refuse(&tls("0"), &["--tls-port"]);
    refuse(&["--tls-port", "7000"], &["--tls-cert"]);
    refuse(&["--tls-ca", &ca], &["--tls-port"]);
    let asked = [&tls("7000")[..], &["--tls-auth-clients", "yes"]].concat();
    refuse(&asked, &["--tls-auth-clients", "--tls-ca"]);
    let expired = expired.map(|path| path.display().to_string());
    let flags = [
        "--tls-port",
        "7000",
        "--tls-cert",
        &expired[0],
        "--tls-key",
        &expired[1],
    ];
    refuse(&flags, &["--tls-cert", "expired.pem", "has expired"]);
    let flags = [
        "--tls-port",
        "7000",
        "--tls-cert",
        &certificate,
        "--tls-key",
        &expired[1],
    ];
    refuse(&flags, &["--tls-key", "does not fit"]);
    let flags = [
        "--tls-port",
        "7000",
        "--tls-cert",
        &path("gone"),
        "--tls-key",
        &key,
    ];
    refuse(&flags, &["--tls-cert", "gone"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("set");
    refuse(&tls("7000"), &["--tls-key", "chmod o-rwx"]);
}

#[test]
fn passwords_and_keys_are_in_no_log_and_limits_hold_before_the_password() {
    paths::require("redis-cli");
    let files = Certificates::new();
    let secret = "correct-horse-battery";
    let file = files.dir().join("password");
    fs::write(&file, secret).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    let password = file.display().to_string();
    let node = Node::start(Options {
        shards: 1,
        tls: Some(files.flags_without_authority()),
        flags: ["--password-file", &password, "--log-level", "trace"]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    });
    let ca = files.authority();
    let say = |words: &[&str]| told(&redis_cli(node.tls_port(), &ca, None, words));
    assert!(say(&["get", "a"]).contains("NOAUTH"));
    let large = "x".repeat(20_000);
    let refused = say(&["set", "a", &large]);
    assert!(!refused.contains("OK"), "{refused}");
    assert_eq!(say(&["-a", secret, "set", "a", "1"]), "OK");
    assert!(say(&["-a", "wrong-secret-guess", "get", "a"]).contains("WRONGPASS"));
    node.signal(libc::SIGHUP);
    let output = node.wait_says(&["were read again"], SOON);
    let key = fs::read_to_string(files.dir().join("node.key")).expect("a key");
    for line in key
        .lines()
        .chain([secret, "wrong-secret-guess", "PRIVATE KEY"])
    {
        assert!(!output.contains(line), "{line} in {output}");
    }
}

#[test]
fn clients_over_tls_follow_moves_between_nodes() {
    let files = Certificates::new();
    let flags = files.flags();
    let mut whole = TestCluster::started_with(
        &["--partitions", "16"],
        &["athens", "byzantium"],
        |whole, name| Options {
            tls: Some(flags.clone()),
            ..whole.options(name, 2)
        },
    );
    let client = StockClient::start_over_tls("moving.py", &whole, &files);
    std::thread::sleep(Duration::from_millis(500));
    let options = Options {
        tls: Some(flags),
        ..whole.options("cyrene", 1)
    };
    whole.add_with(options).restart();
    whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    whole
        .core
        .ask(&["drain", "athens", "--wait"])
        .assert(0, &[]);
    std::thread::sleep(Duration::from_millis(500));
    client.finish();
}
