//! What a node refuses to start with: one clear message and an exit code.

use std::process::Command;
use std::time::Duration;

use ephesus_tests::process::Process;
use ephesus_tests::{Client, Node, Options, Reply, paths};

#[test]
fn a_second_process_on_the_same_data_directory_is_refused() {
    let first = Node::start(Options::default());
    let data = first.data_dir().to_path_buf();
    let mut second = Node::stopped_at(Options::default(), paths::scratch(), data.clone());
    let refused = second.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&[&data.display().to_string(), "in use"]);
    assert_eq!(
        first.client().say("SET a 1"),
        Reply::ok(),
        "the first goes on"
    );
}

/// Starts a node at `port` on a data directory of its own; returns exit code and output.
fn serve_at(port: u16, shards: u16) -> (Option<i32>, String) {
    let home = paths::scratch();
    let mut command = Command::new(paths::ephesus());
    command
        .args(["serve", "--no-pin", "--shards", &shards.to_string()])
        .arg("--listen")
        .arg(format!("127.0.0.1:{port}"))
        .arg("--data-dir")
        .arg(home.path().join("data"));
    run(command)
}

/// Runs a command that has to end by itself; returns exit code and output.
fn run(command: Command) -> (Option<i32>, String) {
    let home = paths::scratch();
    let mut process = Process::spawn(command, &home.path().join("output.log"));
    let status = process
        .wait_exit(Duration::from_secs(20))
        .unwrap_or_else(|| {
            panic!(
                "it runs although it should refuse:\n{}",
                process.output_tail()
            )
        });
    (status.code(), process.output())
}

#[test]
fn a_second_process_on_the_same_port_is_refused() {
    let first = Node::start(Options::default());
    // The same entry port; and an entry port whose first direct port is the other's entry port.
    for (port, taken) in [
        (first.port(), first.port()),
        (first.port() - 1, first.port()),
    ] {
        if port != first.port() && Client::connect(port).is_ok() {
            continue;
        }
        let (code, text) = serve_at(port, 2);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.to_lowercase().contains("in use"), "{text}");
        assert!(
            text.contains(&taken.to_string()),
            "the message names port {taken}:\n{text}"
        );
    }
    for i in 0..200 {
        let mut client = first.client();
        assert_eq!(client.call(&["SET", &format!("key:{i}"), "x"]), Reply::ok());
    }
}

#[test]
fn a_changed_number_of_partitions_is_refused() {
    let mut node = Node::start(Options {
        partitions: Some(64),
        ..Options::default()
    });
    node.client().say("SET a 1");
    node.stop();
    node.options.partitions = Some(128);
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["partitions", "64", "128"]);
    node.options.partitions = None;
    node.restart();
    assert_eq!(
        node.client().say("GET a"),
        Reply::bulk("1"),
        "left out, the stamp's number counts"
    );
}

#[test]
fn a_garbled_stamp_or_layout_is_refused_by_name() {
    let mut node = Node::start(Options::default());
    node.client().say("SET a 1");
    node.stop();
    for name in ["stamp", "layout"] {
        let stamp = node.data_dir().join(name);
        let good = std::fs::read(&stamp).expect("read the stamp");
        let half = good[..good.len() / 2].to_vec();
        let garbled: Vec<u8> = good.iter().map(|byte| byte ^ 0x55).collect();
        for bad in [half, garbled, Vec::new()] {
            std::fs::write(&stamp, &bad).expect("write the stamp");
            let refused = node.start_refused();
            assert_eq!(refused.code(), 1, "{}", refused.output);
            refused.assert_says(&[&stamp.display().to_string(), "damaged"]);
        }
        std::fs::write(&stamp, &good).expect("write the stamp");
    }
    node.restart();
    assert_eq!(node.client().say("GET a"), Reply::bulk("1"));
}

#[test]
fn a_stamp_of_a_later_format_is_refused_with_both_versions() {
    let mut node = Node::start(Options::default());
    node.stop();
    let stamp = node.data_dir().join("stamp");
    let text = String::from_utf8(std::fs::read(&stamp).expect("read")).expect("a stamp is text");
    let line = text
        .lines()
        .find(|line| line.to_lowercase().contains("format"))
        .unwrap_or_else(|| panic!("no line about the format in the stamp:\n{text}"));
    let digits = line
        .rfind(|c: char| c.is_ascii_digit())
        .expect("a format number");
    let mut later = line.to_owned();
    later.replace_range(digits..=digits, "99");
    std::fs::write(&stamp, text.replace(line, &later)).expect("write the stamp");
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["format", "99"]);
}

#[test]
fn a_directory_that_is_not_ours_is_left_alone() {
    let home = paths::scratch();
    let data = home.path().join("photos");
    std::fs::create_dir(&data).expect("create a directory");
    std::fs::write(data.join("holiday.jpg"), b"not a store").expect("write a file");
    let mut node = Node::stopped_at(Options::default(), home, data.clone());
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["photos"]);
    let left = std::fs::read_dir(&data)
        .expect("read the directory")
        .count();
    assert_eq!(
        left, 1,
        "something was added to a directory that is not ours"
    );
}

#[test]
fn a_bad_flag_is_one_line_and_code_2() {
    for flags in [
        &["--shards", "0"][..],
        &["--shards", "many"],
        &["--partitions", "0"],
        &["--partitions", "16385"],
        &["--durability", "sometimes"],
        &["--listen", "nonsense"],
        &["--listen", "127.0.0.1:65535", "--shards", "4"],
        &["--max-memory", "-1"],
        &["--no-such-flag"],
    ] {
        let home = paths::scratch();
        let mut command = Command::new(paths::ephesus());
        command
            .arg("serve")
            .args(flags)
            .arg("--data-dir")
            .arg(home.path().join("data"));
        let (code, text) = run(command);
        assert_eq!(code, Some(2), "{flags:?}: {text}");
        assert_eq!(
            text.trim_end().lines().count(),
            1,
            "{flags:?} is not one line:\n{text}"
        );
        let name = flags[0].trim_start_matches('-');
        assert!(
            text.contains(name),
            "{flags:?} does not name the flag: {text}"
        );
    }
}
