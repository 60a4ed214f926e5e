//! What a node tells the person who has started it.

use std::time::Duration;

use ephesus_tests::{Node, Options, Reply};

/// The value of one line of the banner.
fn field<'a>(banner: &'a str, name: &str) -> &'a str {
    let line = banner.lines().find_map(|line| {
        let rest = line.strip_prefix("  ")?.strip_prefix(name)?;
        rest.starts_with(' ').then(|| rest.trim())
    });
    line.unwrap_or_else(|| panic!("the banner has no {name}:\n{banner}"))
}

/// The number in front of `unit`.
fn number(text: &str, before: &str, unit: &str) -> f64 {
    let rest = text.split_once(before).map(|(_, rest)| rest);
    let number = rest.and_then(|rest| rest.split_once(unit));
    let number = number.and_then(|(number, _)| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no {before:?} and then so many {unit:?} in {text:?}"))
}

#[test]
fn the_banner_says_where_the_node_is_what_it_promises_and_what_to_try() {
    let mut node = Node::start(Options {
        partitions: Some(48),
        name: Some("smyrna".to_owned()),
        ..Options::default()
    });
    let port = node.port();
    let said = |node: &Node| node.wait_says(&["ephesus ", "  try "], Duration::from_secs(10));
    let banner = said(&node);
    let title = banner.lines().find(|line| line.starts_with("ephesus "));
    let title = title.expect("a title");
    assert!(title.contains(env!("CARGO_PKG_VERSION")), "{title}");
    assert!(title.contains("node smyrna ("), "{title}");
    assert_eq!(field(&banner, "entry port"), format!("127.0.0.1:{port}"));
    let shards = format!("2 on ports {} to {}", port + 1, port + 2);
    assert_eq!(field(&banner, "shards"), shards);
    assert_eq!(field(&banner, "partitions"), "48");
    let durability = field(&banner, "durability");
    assert!(durability.starts_with("strict"), "{durability}");
    assert!(
        number(durability, "fsync p50 ", " us") > 0.0,
        "{durability}"
    );
    assert_eq!(field(&banner, "data"), "new");

    let command = field(&banner, "try").to_owned();
    let words = command.strip_prefix(&format!("redis-cli -p {port} "));
    let words = words.unwrap_or_else(|| panic!("the node answers on port {port}: {command}"));
    assert_eq!(node.client().say(words), Reply::ok());

    node.stop();
    node.options.durability = Some("relaxed");
    node.restart();
    let banner = said(&node);
    let durability = field(&banner, "durability");
    assert!(durability.starts_with("relaxed"), "{durability}");
    assert!(number(field(&banner, "data"), "recovered in", "ms") > 0.0);
}
