//! The clients that people really use, unmodified.

use std::process::Command;

use ephesus_tests::{Node, Options, Reply, paths};
use redis::Commands;

/// Runs a program that must succeed, and returns what it printed.
fn run(program: &str, args: &[&str]) -> String {
    paths::require(program);
    let output = Command::new(program)
        .args(args)
        .output()
        .expect("start the client");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{text}",
        output.status
    );
    text
}

fn python(script: &str, node: &Node) {
    let script = paths::workspace().join("tests/python").join(script);
    let output = Command::new(paths::python())
        .arg(&script)
        .arg(node.port().to_string())
        .arg(node.direct_port(0).to_string())
        .output()
        .expect("start python");
    assert!(
        output.status.success(),
        "{}: {}\n{}{}",
        script.display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn redis_cli_sets_and_gets() {
    let node = Node::start(Options::default());
    let port = node.port().to_string();
    assert_eq!(
        run("redis-cli", &["-p", &port, "set", "a", "1"]).trim(),
        "OK"
    );
    assert_eq!(run("redis-cli", &["-p", &port, "get", "a"]).trim(), "1");
    assert_eq!(
        run("redis-cli", &["-3", "-p", &port, "get", "a"]).trim(),
        "1"
    );
}

#[test]
fn redis_cli_in_cluster_mode_follows_every_key() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let port = node.direct_port(0).to_string();
    for i in 0..20 {
        let (key, value) = (format!("key:{i}"), format!("value:{i}"));
        assert_eq!(
            run("redis-cli", &["-c", "-p", &port, "set", &key, &value]).trim(),
            "OK"
        );
    }
    let mut entry = node.client();
    for i in 0..20 {
        assert_eq!(
            entry.say(&format!("GET key:{i}")),
            Reply::bulk(format!("value:{i}"))
        );
    }
    assert_eq!(entry.say("DBSIZE"), Reply::Integer(20));
}

#[test]
fn redis_cli_finds_nothing_wrong_with_the_cluster() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let mut client = node.client();
    for i in 0..300 {
        client.call(&["SET", &format!("key:{i}"), "x"]);
    }
    for port in [node.port(), node.direct_port(0), node.direct_port(2)] {
        let address = format!("127.0.0.1:{port}");
        let check = run("redis-cli", &["--cluster", "check", &address]);
        // The entry port's DBSIZE is the whole node's, which redis-cli takes for one master's.
        let total = if port == node.port() {
            "keys in 3 masters."
        } else {
            "[OK] 300 keys in 3 masters."
        };
        for line in [
            total,
            "[OK] All nodes agree about slots configuration.",
            "[OK] All 16384 slots covered.",
        ] {
            assert!(
                check.contains(line),
                "--cluster check {address} lacks {line:?}:\n{check}"
            );
        }
        let info = run("redis-cli", &["--cluster", "info", &address]);
        assert!(info.contains(total), "--cluster info {address}:\n{info}");
    }
}

#[test]
fn redis_benchmark_runs_plain() {
    let node = Node::start(Options::default());
    for pipeline in ["1", "16"] {
        let port = node.port().to_string();
        let output = run(
            "redis-benchmark",
            &[
                "-p",
                &port,
                "-t",
                "ping,set,get,incr,mset",
                "-n",
                "20000",
                "-r",
                "10000",
                "-P",
                pipeline,
                "-q",
            ],
        );
        for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET"] {
            assert!(
                output.contains(test),
                "redis-benchmark lacks {test}:\n{output}"
            );
        }
        assert!(
            !output.to_lowercase().contains("error"),
            "redis-benchmark:\n{output}"
        );
    }
}

#[test]
fn redis_benchmark_runs_with_cluster() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let port = node.direct_port(0).to_string();
    let output = run(
        "redis-benchmark",
        &[
            "--cluster",
            "-p",
            &port,
            "-t",
            "set,get,incr",
            "-n",
            "30000",
            "-r",
            "10000",
            "-P",
            "16",
            "-q",
        ],
    );
    assert!(
        output.contains("Cluster has 3 master nodes"),
        "redis-benchmark:\n{output}"
    );
    assert!(
        output.contains("GET") && !output.to_lowercase().contains("error"),
        "{output}"
    );
    let keys = node.client().say("DBSIZE").integer();
    assert!(
        keys > 8000,
        "{keys} keys after writing at random over 10000"
    );
}

#[test]
fn redis_py_puts_and_gets() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    python("single.py", &node);
}

#[test]
fn redis_py_cluster_puts_and_gets() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    python("cluster.py", &node);
}

#[test]
fn redis_py_transactions_are_atomic_at_both_kinds_of_port() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    python("transactions.py", &node);
}

#[test]
fn redis_pys_cache_has_nothing_stale() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    python("caching.py", &node);
}

#[test]
fn redis_rs_puts_and_gets() {
    let node = Node::start(Options::default());
    for url in [
        format!("redis://127.0.0.1:{}/", node.port()),
        format!("redis://127.0.0.1:{}/?protocol=resp3", node.port()),
    ] {
        let client = redis::Client::open(url).expect("a client");
        let mut connection = client.get_connection().expect("a connection");
        let _: () = connection.set("rs", "value").expect("set");
        assert_eq!(connection.get::<_, String>("rs").expect("get"), "value");
        let _: () = connection.set_ex("rs:ttl", 1, 100).expect("set_ex");
        assert!(connection.ttl::<_, i64>("rs:ttl").expect("ttl") > 90);
        let _: () = connection.mset(&[("rs:a", 1), ("rs:b", 2)]).expect("mset");
        assert_eq!(
            connection
                .mget::<_, Vec<i64>>(&["rs:a", "rs:b"])
                .expect("mget"),
            [1, 2]
        );
        let (first, second): (i64, i64) = redis::pipe()
            .incr("rs:a", 1)
            .incr("rs:a", 1)
            .query(&mut connection)
            .expect("a pipeline");
        assert_eq!((first, second), (2, 3));
        let mut keys: Vec<String> = connection
            .scan_match::<_, String>("rs*")
            .expect("scan")
            .map(Result::unwrap)
            .collect();
        keys.sort();
        assert_eq!(keys, ["rs", "rs:a", "rs:b", "rs:ttl"]);
        assert_eq!(
            connection
                .del::<_, i64>(&["rs", "rs:a", "rs:b", "rs:ttl"])
                .expect("del"),
            4
        );
    }
}

#[test]
fn redis_rs_cluster_puts_and_gets() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    for port in [node.port(), node.direct_port(1)] {
        let client = redis::cluster::ClusterClient::new(vec![format!("redis://127.0.0.1:{port}/")])
            .expect("a client");
        let mut connection = client.get_connection().expect("a connection");
        for i in 0..500 {
            let _: () = connection.set(format!("rs:{i}"), i).expect("set");
        }
        for i in 0..500 {
            assert_eq!(connection.get::<_, i64>(format!("rs:{i}")).expect("get"), i);
        }
        let sum: i64 = connection
            .mget::<_, Vec<i64>>((0..500).map(|i| format!("rs:{i}")).collect::<Vec<_>>())
            .expect("mget")
            .iter()
            .sum();
        assert_eq!(sum, 499 * 500 / 2);
    }
}
