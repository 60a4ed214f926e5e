use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};

/// A file with a secret, as `--cluster-secret-file` takes it.
fn secret_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, b"a secret of the tests").expect("written");
    file
}

fn options(line: &str) -> Result<CoordinatorOptions, String> {
    let words = ["ephesus", "coordinator"].into_iter();
    let parsed = Cli::try_parse_from(words.chain(line.split_whitespace()));
    match parsed.map_err(|error| error.to_string())?.command {
        Command::Coordinator(command) => command.flags.expect("it starts one").options(),
        other => panic!("{other:?}"),
    }
}

const LONE: &str = "--id 1 --listen 127.0.0.1:27379 --data-dir /d";

#[test]
fn flags_become_options() {
    let lone = options(LONE).expect("valid");
    assert_eq!((lone.id, lone.empty), (RaftId(1), Empty::Refused));
    assert_eq!(lone.data_dir, PathBuf::from("/d"));
    let itself = (RaftId(1), "127.0.0.1:27379".to_owned());
    assert_eq!(lone.peers, BTreeMap::from([itself]));
    assert!(lone.secret.is_none());
    let layout = ClusterOptions {
        partitions: 1024,
        min_nodes: 1,
        policy: Policy::Contiguous,
        heartbeat_timeout_ms: 2_000,
    };
    assert_eq!(lone.layout, layout);

    let secret = secret_file();
    let line = "--id 2 --listen 0.0.0.0:7 --peers 1@a:7,2@b:7,3@c:7 --data-dir d --bootstrap \
                --partitions 9 --min-nodes 3 --heartbeat-timeout 1000 --assignment round-robin \
                --log-level debug --cluster-secret-file";
    let founder = options(&format!("{line} {}", secret.path().display())).expect("valid");
    assert!(founder.secret.is_some());
    assert_eq!((founder.id, founder.empty), (RaftId(2), Empty::Founds));
    let reached: Vec<_> = founder.peers.values().map(String::as_str).collect();
    assert_eq!(reached, ["a:7", "b:7", "c:7"]);
    let layout = ClusterOptions {
        partitions: 9,
        min_nodes: 3,
        policy: Policy::RoundRobin,
        heartbeat_timeout_ms: 1_000,
    };
    assert_eq!(founder.layout, layout);
    let joins = "--id 2 --listen 127.0.0.1:7 --peers 1@a:7,2@b:7 --data-dir d --join";
    assert_eq!(options(joins).expect("valid").empty, Empty::Joins);
}

#[test]
fn bad_flags_are_refused_by_name() {
    for (flags, named) in [
        ("--id 0 --listen 127.0.0.1:7 --data-dir d", "--id"),
        ("--listen 127.0.0.1:7 --data-dir d", "--id"),
        ("--id 1 --data-dir d", "--listen"),
        ("--id 1 --listen 127.0.0.1:7", "--data-dir"),
        ("--id 1 --listen nowhere --data-dir d", "--listen"),
        ("--id 1 --listen 127.0.0.1:0 --data-dir d", "--listen"),
        (
            "--id 1 --listen 10.0.0.1:7 --data-dir d",
            "--cluster-secret-file",
        ),
        (
            "--id 1 --listen 10.0.0.1:7 --data-dir d --insecure",
            "--insecure",
        ),
        ("--id 4 --listen 127.0.0.1:7 --join --data-dir d", "--peers"),
        (
            "--id 1 --listen 127.0.0.1:7 --data-dir d --cluster-secret-file /no/such/file",
            "--cluster-secret-file",
        ),
    ] {
        let error = options(flags).err().unwrap_or_else(|| panic!("{flags}"));
        assert!(error.contains(named), "{flags}: {error}");
    }
    let secret = secret_file();
    let nowhere = "--id 1 --listen 0.0.0.0:7 --data-dir d --cluster-secret-file";
    let error = options(&format!("{nowhere} {}", secret.path().display()));
    let error = error.expect_err("nobody is told where it is");
    assert!(error.contains("--peers"), "{error}");
    for (flags, named) in [
        ("--bootstrap --join", "--join"),
        ("--partitions 0", "--partitions"),
        ("--partitions 16385", "--partitions"),
        ("--min-nodes 0", "--min-nodes"),
        ("--heartbeat-timeout 999", "--heartbeat-timeout"),
        ("--heartbeat-timeout 60001", "--heartbeat-timeout"),
        ("--assignment sometimes", "--assignment"),
        ("--log-level loud", "--log-level"),
        ("--peers 2@127.0.0.1:27379", "coordinator 1"),
        ("--peers 1@127.0.0.1:27378", "--listen"),
        ("--peers 0@a:1", "--peers"),
        ("--peers 1@a", "--peers"),
        ("--peers a:27379", "--peers"),
        ("--peers 1@a:27379,1@b:27379", "twice"),
        ("--peers 1@a:27379,2@a:27379", "both"),
        ("--peers 1@a:27379 --join", "--join"),
        (
            "--peers 1@a:1,2@a:2,3@a:3,4@a:4,5@a:5,6@a:6,7@a:7",
            "--peers",
        ),
    ] {
        let error = options(&format!("{LONE} {flags}"));
        let error = error.err().unwrap_or_else(|| panic!("{flags}"));
        assert!(error.contains(named), "{flags}: {error}");
    }
}

#[test]
fn a_stopped_coordinator_is_forced_by_its_directory_alone() {
    let parse = |line: &str| {
        let words = ["ephesus", "coordinator"].into_iter();
        let parsed = Cli::try_parse_from(words.chain(line.split_whitespace()));
        match parsed.map_err(|error| error.to_string())?.command {
            Command::Coordinator(command) => match command.offline {
                Some(Offline::Force(force)) => Ok(force),
                None => panic!("no force"),
            },
            other => panic!("{other:?}"),
        }
    };
    let force: Result<Force, String> = parse("force --data-dir d --yes");
    let force = force.expect("valid");
    assert_eq!((force.data_dir, force.yes), (PathBuf::from("d"), true));
    assert!(!parse("force --data-dir d").expect("valid").yes);
    let error = parse("force --yes").expect_err("which one?");
    assert!(error.contains("--data-dir"), "{error}");
    assert!(parse("--id 1 force --data-dir d").is_err());
}
