//! What `ephesus node remove` asks a person at a terminal.

use std::process::Command;

use ephesus_tests::terminal::Terminal;
use ephesus_tests::{Core, paths};

use crate::coordinators::Host;

const FLAGS: [&str; 8] = [
    "--min-nodes",
    "3",
    "--partitions",
    "9",
    "--assignment",
    "round-robin",
    "--heartbeat-timeout",
    "1000",
];

/// What is typed at the question, none of which is a yes.
const NOT_A_YES: [(&str, &str); 6] = [
    ("a no", "n\n"),
    ("nothing", "\n"),
    ("garbage", "\u{1b}[A;rm -rf %s \u{fc}\n"),
    ("more than a yes", "yes please\n"),
    ("the end of the input", "\x04"),
    ("a yes that was taken back", "y\x7fn\n"),
];

fn remove(core: &Core, name: &str) -> Terminal {
    let mut command = Command::new(paths::ephesus());
    command.args(["node", "remove", name, "--coordinator", &core.addresses()]);
    let terminal = Terminal::start(command);
    terminal.wait_shows("Remove node cyrene? [y/N] ");
    terminal
}

#[test]
fn a_node_is_given_up_at_a_terminal_only_with_a_yes() {
    let core = Core::founded(1, &FLAGS);
    let names = [(1, "athens"), (2, "byzantium"), (3, "cyrene")];
    let mut hosts: Vec<Host> = names.map(|(n, name)| Host::start(&core, n, name)).into();
    core.until("it is healthy", |core| {
        hosts.iter().for_each(Host::host);
        core.ask(&["status"]).code == Some(0)
    });
    core.until("all figures are there", |core| {
        core.json("status")["keys"] == 6_000
    });
    drop(hosts.pop());
    core.until("cyrene has failed", |core| {
        hosts.iter().for_each(Host::host);
        core.json("nodes")[2]["status"] == "failed"
    });
    for (what, keys) in NOT_A_YES {
        let mut terminal = remove(&core, "cyrene");
        terminal.press(keys);
        let (status, screen) = terminal.wait_exit();
        assert_eq!(status.code(), Some(1), "{what}: {screen}");
        for words in [
            "3 partitions with 3000 keys",
            "lost for good",
            "nothing was changed",
        ] {
            assert!(screen.contains(words), "{what}: no {words:?} in {screen}");
        }
        assert_eq!(core.json("nodes")[2]["partitions"], 3, "{what}");
    }
    let mut terminal = remove(&core, "cyrene");
    terminal.press("\x03");
    let (status, _) = terminal.wait_exit();
    assert_eq!(status.code(), None, "an interrupt ends it");
    assert_eq!(core.json("nodes")[2]["partitions"], 3);

    let mut terminal = remove(&core, &"03".repeat(16));
    terminal.press("y\n");
    let (status, screen) = terminal.wait_exit();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(screen.contains("node cyrene is removed"), "{screen}");
    assert_eq!(core.json("nodes").as_array().map(Vec::len), Some(2));
}
