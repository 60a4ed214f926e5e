use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};

fn parse(line: &str) -> Result<Command, String> {
    let words = ["ephesus"].into_iter().chain(line.split_whitespace());
    let parsed = Cli::try_parse_from(words);
    parsed
        .map(|cli| cli.command)
        .map_err(|error| error.to_string())
}

#[test]
fn the_embedded_coordinator_is_asked_by_default() {
    for line in ["status", "nodes", "partitions", "coordinators"] {
        let command = parse(line).expect("valid");
        let (Command::Status(look)
        | Command::Nodes(look)
        | Command::Partitions(LookAtPartitions { by: None, look })
        | Command::Coordinators(look)) = command
        else {
            panic!("{command:?}");
        };
        assert_eq!(look.asking.coordinator, ["127.0.0.1:27379"]);
        assert_eq!(look.asking.limit(), Duration::from_secs(5));
        assert!(!look.json && look.asking.cluster_secret_file.is_none());
    }
    let line = "status --json --coordinator a:1,b:2 --timeout 100 --cluster-secret-file s";
    let Ok(Command::Status(look)) = parse(line) else {
        panic!("{line}");
    };
    assert_eq!(look.asking.coordinator, ["a:1", "b:2"]);
    assert_eq!(look.asking.limit(), Duration::from_millis(100));
    assert!(look.json && look.asking.cluster_secret_file.is_some());
}

#[test]
fn partitions_may_be_sorted_by_load() {
    let Ok(Command::Partitions(partitions)) = parse("partitions --by load --json") else {
        panic!("partitions --by load");
    };
    assert_eq!(partitions.by, Some(By::Load));
    assert!(partitions.look.json);
    let error = parse("partitions --by age").expect_err("no such order");
    assert!(error.contains("load"), "{error}");
}

#[test]
fn changes_name_what_they_are_about() {
    let Ok(Command::Node(NodeCommand::Remove(remove))) =
        parse("node remove athens --yes --coordinator a:1")
    else {
        panic!("node remove");
    };
    assert!(remove.yes && remove.name == "athens");
    let Ok(Command::CoordinatorMember(MemberCommand::Add { address, .. })) =
        parse("coordinator-member add host:27380")
    else {
        panic!("coordinator-member add");
    };
    assert_eq!(address, "host:27380");
    let Ok(Command::CoordinatorMember(MemberCommand::Remove { id, .. })) =
        parse("coordinator-member remove 3 --coordinator a:1,b:1")
    else {
        panic!("coordinator-member remove");
    };
    assert_eq!(id, RaftId(3));
}

#[test]
fn bad_flags_are_refused_by_name() {
    for (line, named) in [
        ("status --coordinator nowhere", "--coordinator"),
        ("status --coordinator a:1,b", "--coordinator"),
        ("status --timeout 99", "--timeout"),
        ("nodes --jsn", "--jsn"),
        ("node remove", "NAME"),
        ("coordinator-member add here", "HOST:PORT"),
        ("coordinator-member remove 0", "ID"),
        ("coordinator-member remove all", "ID"),
    ] {
        let error = parse(line).expect_err(line);
        assert!(error.contains(named), "{line}: {error}");
    }
}
