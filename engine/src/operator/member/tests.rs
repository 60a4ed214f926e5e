use clap::Parser;

use super::super::text::tests::coordinator_rows;
use super::*;
use crate::cli::operator::MemberCommand;
use crate::cli::{Cli, Command};

fn asking(flags: &str) -> Asking {
    let words = ["ephesus", "coordinator-member", "remove", "1"].into_iter();
    match Cli::try_parse_from(words.chain(flags.split_whitespace())) {
        Ok(Cli {
            command: Command::CoordinatorMember(MemberCommand::Remove { asking, .. }),
        }) => asking,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_that_is_printed_is_one_that_is_understood() {
    for (address, flags, listen) in [
        ("127.0.0.1:7", "", "127.0.0.1:7"),
        ("10.0.0.1:7", "", "10.0.0.1:7"),
        ("host:7", "", "0.0.0.0:7"),
        ("[::1]:7", "", "[::1]:7"),
    ] {
        let line = command(RaftId(4), address, &coordinator_rows(), &asking(flags));
        assert!(line.contains(&format!("--listen {listen} ")), "{line}");
        let peers = format!("3@127.0.0.1:27383,4@{address} ");
        assert!(line.contains(&peers), "{line}");
        match Cli::try_parse_from(line.split_whitespace())
            .expect("understood")
            .command
        {
            Command::Coordinator(command) => {
                let flags = command.flags.expect("it starts one");
                match flags.options() {
                    // The cluster on loopback that is asked here has none.
                    Err(error) => {
                        assert!(line.ends_with("--cluster-secret-file FILE"), "{line}");
                        assert!(error.contains("FILE"), "{error}");
                    }
                    Ok(_) => assert!(!line.contains("secret"), "{line}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let line = command(
        RaftId(2),
        "host:7",
        &coordinator_rows(),
        &asking("--cluster-secret-file /etc/secret"),
    );
    assert!(line.ends_with("--join --cluster-secret-file /etc/secret"));
    assert_eq!(line.matches("2@").count(), 1, "{line}");
}

#[test]
fn words_are_quoted_for_a_shell() {
    assert_eq!(
        quoted("/etc/ephesus/secret_1.txt"),
        "/etc/ephesus/secret_1.txt"
    );
    assert_eq!(quoted("my secret"), "'my secret'");
    assert_eq!(quoted("it's"), r"'it'\''s'");
}
