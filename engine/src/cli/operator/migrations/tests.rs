use clap::Parser;

use crate::cli::{Cli, Command};

fn parse(line: &str) -> Result<Command, String> {
    let words = ["ephesus"].into_iter().chain(line.split_whitespace());
    let parsed = Cli::try_parse_from(words);
    parsed
        .map(|cli| cli.command)
        .map_err(|error| error.to_string())
}

#[test]
fn a_move_names_a_node_and_may_name_a_shard() {
    for (to, expected) in [
        ("athens", None),
        ("athens/3", Some(("athens", 3))),
        ("a/b/0", Some(("a/b", 0))),
        ("a/b", None),
        ("athens/65536", None),
    ] {
        let Ok(Command::Move(command)) = parse(&format!("move --partition 7 --to {to} --wait"))
        else {
            panic!("{to}");
        };
        assert!(command.wait && command.partition == 7);
        assert_eq!(command.place(), expected, "{to}");
    }
}

#[test]
fn flags_are_where_they_make_sense() {
    for line in [
        "rebalance",
        "rebalance --wait --limit 50 --coordinator a:1,b:1 --cluster-secret-file s",
        "rebalance --limit 0",
        "rebalance --dry-run",
        "drain athens --wait --coordinator a:1",
        "drain athens --end",
        "migrations --json --watch",
        "migration cancel 1",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
    }
    for line in [
        "rebalance --dry-run --wait",
        "rebalance --dry-run --limit 1",
        "rebalance --limit fast",
        "drain",
        "drain athens --end --wait",
        "move --partition 1",
        "move --to athens",
        "move --partition 65536 --to athens",
        "migration cancel 0",
        "migration cancel all",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}
