//! What is gone from a data directory is missed: nothing that was there is taken for something new.

use std::fs;
use std::path::PathBuf;

use ephesus_tests::segments::Segment;
use ephesus_tests::{Node, Options, Reply};

/// A stopped node with a key in each shard's log.
fn stopped_node() -> Node {
    let mut node = Node::start(Options::default());
    for n in 0..20 {
        assert_eq!(node.client().say(&format!("SET key:{n} v")), Reply::ok());
    }
    node.stop();
    node
}

/// Takes something away and checks that it is missed by `ephesus check` and by the start; then puts it back.
fn assert_missed(node: &mut Node, gone: PathBuf, words: &[&str]) {
    let aside = gone.with_extension("aside");
    fs::rename(&gone, &aside).expect("moved away");
    let (code, report) = node.check();
    assert_eq!(
        code,
        Some(1),
        "{} is gone, and check says\n{report}",
        gone.display()
    );
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(words);
    assert!(!gone.exists(), "nothing is made anew in its place");
    fs::rename(&aside, &gone).expect("moved back");
}

#[test]
fn logs_and_segments_that_are_gone_are_missed() {
    let mut node = stopped_node();
    let data = node.data_dir().to_owned();
    let logs: Vec<PathBuf> = fs::read_dir(data.join("logs"))
        .expect("the logs")
        .map(|log| log.expect("an entry").path())
        .collect();
    let words = ["is gone", "restore", "--on-damage cut"];
    assert_missed(&mut node, data.join("logs"), &words);
    assert_missed(&mut node, logs[1].clone(), &words);
    for log in logs {
        for segment in Segment::below(&log) {
            assert_missed(&mut node, log.join(segment.name()), &words);
        }
        let files: Vec<PathBuf> = fs::read_dir(&log)
            .expect("the log")
            .map(|file| file.expect("an entry").path())
            .collect();
        let aside = data.join("aside");
        fs::create_dir(&aside).expect("made");
        let away = |file: &PathBuf| aside.join(file.file_name().expect("a name"));
        files
            .iter()
            .for_each(|file| fs::rename(file, away(file)).expect("moved away"));
        assert_eq!(node.check().0, Some(1));
        node.start_refused()
            .assert_says(&["all files of the log are gone", "--on-damage cut"]);
        files
            .iter()
            .for_each(|file| fs::rename(away(file), file).expect("moved back"));
        fs::remove_dir(&aside).expect("empty");
    }
    node.restart();
    for n in 0..20 {
        assert_eq!(node.client().say(&format!("GET key:{n}")), Reply::bulk("v"));
    }
}

#[test]
fn a_coordinators_log_that_is_gone_is_missed() {
    let mut node = stopped_node();
    let coordinator = node.data_dir().join("coordinator");
    let log = coordinator.join("log");
    assert_missed(
        &mut node,
        log.clone(),
        &["coordinator/log", "the log is gone", "restore"],
    );
    for segment in Segment::below(&log) {
        assert_missed(
            &mut node,
            log.join(segment.name()),
            &["coordinator", "is gone"],
        );
    }
    let aside = node.data_dir().join("aside");
    fs::rename(&coordinator, &aside).expect("moved away");
    let refused = node.start_refused();
    refused.assert_says(&["no directory `coordinator`", "--coordinator", "restore"]);
    fs::rename(&aside, &coordinator).expect("moved back");
    node.restart();
}

#[test]
fn damaged_files_beside_the_logs_are_named_by_check_and_start_alike_or_made_anew() {
    let mut node = stopped_node();
    let data = node.data_dir().to_owned();
    fs::write(data.join("coordinators"), b"\xff\xfe garbage\n\0\n").expect("written");
    let (code, report) = node.check();
    assert_eq!(code, Some(0), "{report}");
    node.restart();
    node.stop();
    let made_anew = fs::read_to_string(data.join("coordinators")).expect("addresses");
    assert!(made_anew.starts_with("127.0.0.1:"), "{made_anew}");

    fs::write(data.join("incarnation"), b"\xff\xfe").expect("written");
    let (code, report) = node.check();
    assert_eq!(code, Some(1), "{report}");
    assert!(
        report.contains("incarnation is damaged: it is no number"),
        "{report}"
    );
    let refused = node.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["incarnation is damaged: it is no number", "write one"]);
    fs::write(data.join("incarnation"), "1800000000\n").expect("written");
    node.restart();
}

#[test]
fn what_relaxed_writes_have_published_is_missed() {
    let mut node = Node::start(Options {
        shards: 1,
        durability: Some("relaxed"),
        ..Options::default()
    });
    assert_eq!(node.client().say("SET a 1"), Reply::ok());
    node.kill();
    let logs = fs::read_dir(node.data_dir().join("logs")).expect("the logs");
    let mapped = logs.map(|log| log.expect("an entry").path().join("mapped"));
    let mapped = mapped.into_iter().next().expect("a log");
    assert_missed(
        &mut node,
        mapped.clone(),
        &["mapped is gone", "restore", "--on-damage cut"],
    );
    let whole = fs::read(&mapped).expect("read");
    fs::write(&mapped, vec![0xff; whole.len()]).expect("written");
    assert_eq!(node.check().0, Some(1));
    node.start_refused()
        .assert_says(&["mapped is damaged", "restore", "--on-damage cut"]);
    fs::write(&mapped, whole).expect("written");
    node.restart();
    assert_eq!(node.client().say("GET a"), Reply::bulk("1"));
}
