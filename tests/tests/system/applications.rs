//! Applications and their clients as they are shipped: `tests/applications` has what each of them is asked.

mod shipped;

use std::process::Command;

use ephesus_tests::{Node, Options, paths};

/// Runs a script, which says what it missed.
fn run(mut command: Command, node: &Node) {
    let (entry, direct) = (node.port().to_string(), node.direct_port(0).to_string());
    let output = command.args([entry, direct]).output().expect("started");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Transactions of an application may be about any keys, which one shard has.
fn one_shard() -> Node {
    Node::start(Options {
        shards: 1,
        ..Options::default()
    })
}

fn python(script: &str, node: &Node) {
    let mut command = Command::new(paths::python());
    command.arg(paths::workspace().join("tests/applications").join(script));
    run(command, node);
}

fn node_js(script: &str, node: &Node) {
    let mut command = Command::new(paths::node_js());
    command.env("NODE_PATH", paths::npm_packages());
    command.arg(paths::workspace().join("tests/applications").join(script));
    run(command, node);
}

#[test]
fn djangos_cache_keeps_what_it_is_given() {
    python("django_cache.py", &one_shard());
}

#[test]
fn celery_waits_for_results() {
    python("celery_results.py", &one_shard());
}

#[test]
fn locks_of_redis_py_exclude_each_other() {
    python("redis_py_lock.py", &Node::start(Options::default()));
}

#[test]
fn the_cache_of_node_redis_is_told_of_changes() {
    let node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    node_js("node_redis_cache.cjs", &node);
}

#[test]
fn ioredis_does_all_it_is_asked() {
    node_js("ioredis.cjs", &Node::start(Options::default()));
}

#[test]
fn rate_limiter_flexible_limits() {
    node_js("rate_limiter_flexible.cjs", &one_shard());
}

#[test]
fn scripts_of_redis_py_are_known_where_they_are_sent() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    python("redis_py_script.py", &node);
}
