//! All applications and clients of `make apps`, each through a `kill -9` of its node, cluster clients through a move as
//! well; what became of them is written into `tests/applications/results.json`, for `docs/compatibility.md`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ephesus_tests::{Node, Options, TestCluster, paths};
use serde_json::{Value, json};

/// How long one of them may take.
const WITHIN: Duration = Duration::from_secs(150);

/// What a script is, and where its version is found.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A script, and the distribution.
    Python(&'static str, &'static str),
    /// A script, and the package.
    NodeJs(&'static str, &'static str),
    /// A program of `tests/applications/clients`, and the crate.
    Rust(&'static str, &'static str),
}

/// What it is run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A node of so many shards.
    Shards(u16),
    /// Two nodes.
    Cluster,
}

#[derive(Clone, Copy, Debug)]
struct Application {
    name: &'static str,
    kind: Kind,
    place: Place,
    asked: &'static str,
    /// Of what this server does not have.
    lacks: Option<&'static str>,
}

const fn python(
    name: &'static str,
    script: &'static str,
    package: &'static str,
    shards: u16,
    asked: &'static str,
) -> Application {
    Application {
        name,
        kind: Kind::Python(script, package),
        place: Place::Shards(shards),
        asked,
        lacks: None,
    }
}

const fn node_js(
    name: &'static str,
    script: &'static str,
    package: &'static str,
    shards: u16,
    asked: &'static str,
) -> Application {
    Application {
        kind: Kind::NodeJs(script, package),
        ..python(name, script, package, shards, asked)
    }
}

const fn rust(
    name: &'static str,
    program: &'static str,
    package: &'static str,
    shards: u16,
    asked: &'static str,
) -> Application {
    Application {
        kind: Kind::Rust(program, package),
        ..python(name, program, package, shards, asked)
    }
}

const fn in_cluster(application: Application) -> Application {
    Application {
        place: Place::Cluster,
        ..application
    }
}

/// Applications whose transactions are about any keys want one shard.
const APPLICATIONS: &[Application] = &[
    python(
        "Django cache",
        "django_cache.py",
        "django",
        1,
        "get, set, add, incr, touch, set_many, versions",
    ),
    python(
        "django-redis",
        "django_redis_app.py",
        "django-redis",
        1,
        "the same, locks, expiry, patterns",
    ),
    python(
        "Celery",
        "celery_results.py",
        "celery",
        1,
        "results of tasks, groups, failures",
    ),
    python(
        "redis-py",
        "redis_py_lock.py",
        "redis",
        2,
        "Lock: exclusion, extension, expiry",
    ),
    python(
        "redis-py",
        "redis_py_script.py",
        "redis",
        3,
        "register_script at a direct port and as a cluster client",
    ),
    in_cluster(python(
        "redis-py",
        "redis_py_cluster.py",
        "redis",
        2,
        "RedisCluster: scripts, transactions",
    )),
    python(
        "limits, Flask-Limiter",
        "flask_limiter_app.py",
        "Flask-Limiter",
        1,
        "fixed window, sliding window counter, a Flask application",
    ),
    Application {
        lacks: Some("lists"),
        ..python(
            "limits",
            "limits_moving_window.py",
            "limits",
            1,
            "moving window",
        )
    },
    Application {
        lacks: Some("KEYS in a script, and keys that a script has found"),
        ..python(
            "limits",
            "limits_reset.py",
            "limits",
            1,
            "reset of all limits",
        )
    },
    python(
        "redlock-py",
        "redlock_py.py",
        "redlock-py",
        2,
        "lock, unlock",
    ),
    python(
        "Flask-Session",
        "flask_session_app.py",
        "Flask-Session",
        2,
        "sessions of two visitors, expiry",
    ),
    python(
        "dogpile.cache",
        "dogpile_cache_app.py",
        "dogpile.cache",
        1,
        "regions, several values, the distributed lock",
    ),
    node_js(
        "rate-limiter-flexible",
        "rate_limiter_flexible.cjs",
        "rate-limiter-flexible",
        1,
        "consume, get, penalty, reward, block",
    ),
    node_js(
        "rate-limit-redis",
        "rate_limit_redis.cjs",
        "rate-limit-redis",
        1,
        "express-rate-limit's store in an Express application",
    ),
    node_js(
        "redlock",
        "redlock.cjs",
        "redlock",
        2,
        "lock, extend, unlock; two keys",
    ),
    node_js(
        "express-session, connect-redis",
        "express_session.cjs",
        "connect-redis",
        2,
        "sessions of two visitors, all of the store",
    ),
    node_js(
        "keyv",
        "keyv.cjs",
        "@keyv/redis",
        2,
        "get, set, several, expiry, namespaces, clear",
    ),
    node_js(
        "ioredis",
        "ioredis.cjs",
        "ioredis",
        2,
        "pipelines, transactions, scripts, Pub/Sub, scans",
    ),
    in_cluster(node_js(
        "ioredis",
        "ioredis_cluster.cjs",
        "ioredis",
        2,
        "Cluster: pipelines, transactions",
    )),
    node_js(
        "node-redis",
        "node_redis.cjs",
        "redis",
        2,
        "RESP2 and RESP3, transactions, scripts, Pub/Sub, scans",
    ),
    in_cluster(node_js(
        "node-redis",
        "node_redis_cluster.cjs",
        "redis",
        2,
        "createCluster: transactions, scripts",
    )),
    python(
        "valkey-glide",
        "valkey_glide_client.py",
        "valkey-glide",
        2,
        "batches, WATCH, scripts, scans",
    ),
    in_cluster(python(
        "valkey-glide",
        "valkey_glide_cluster.py",
        "valkey-glide",
        2,
        "GlideClusterClient: batches",
    )),
    rust(
        "redis-rs",
        "redis_rs",
        "redis",
        2,
        "pipelines, transactions, scripts, connection manager",
    ),
    in_cluster(rust(
        "redis-rs",
        "redis_rs_cluster",
        "redis",
        2,
        "ClusterClient",
    )),
    rust(
        "fred",
        "fred_client",
        "fred",
        2,
        "pipelines, transactions, scripts, Pub/Sub",
    ),
    in_cluster(rust(
        "fred",
        "fred_cluster",
        "fred",
        2,
        "clustered: transactions, scripts",
    )),
];

/// What an application is run against, at work.
enum Servers {
    Node(Box<Node>),
    Cluster(Box<TestCluster>, usize),
}

const NAMES: [&str; 2] = ["athens", "byzantium"];

impl Servers {
    fn start(place: Place) -> Self {
        match place {
            Place::Shards(shards) => Self::Node(Box::new(Node::start(Options {
                shards,
                ..Options::default()
            }))),
            Place::Cluster => {
                let whole = TestCluster::started(&["--partitions", "32"], &NAMES, 2);
                Self::Cluster(Box::new(whole), 0)
            }
        }
    }

    fn ports(&self) -> Vec<u16> {
        match self {
            Self::Node(node) => vec![node.port(), node.direct_port(0)],
            Self::Cluster(whole, _) => whole.nodes.iter().map(|node| node.direct_port(0)).collect(),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Node(node) => {
                node.kill();
                node.restart();
            }
            Self::Cluster(whole, _) => {
                // The one that has all.
                whole.node(NAMES[1]).kill();
                whole.node(NAMES[1]).restart();
                whole.until_healthy();
            }
        }
    }

    /// All that one node has goes to the other.
    fn move_all(&mut self) {
        let Self::Cluster(whole, moves) = self else {
            panic!("a node alone has nowhere to move to");
        };
        let from = NAMES[*moves % 2];
        if *moves > 0 {
            let other = NAMES[(*moves + 1) % 2];
            whole.core.ask(&["drain", other, "--end"]).assert(0, &[]);
        }
        whole.core.ask(&["drain", from, "--wait"]).assert(0, &[]);
        *moves += 1;
    }
}

fn programs() -> PathBuf {
    paths::workspace().join("target/apps/debug")
}

/// Runs one, and answers through what it went, or what it said in the end.
fn run(application: &Application) -> Result<Vec<&'static str>, String> {
    let mut servers = Servers::start(application.place);
    let at = paths::workspace().join("tests/applications");
    let mut command = match application.kind {
        Kind::Python(script, _) => {
            let mut command = Command::new(paths::python());
            command.arg(at.join(script));
            command
        }
        Kind::NodeJs(script, _) => {
            let mut command = Command::new(paths::node_js());
            command.env("NODE_PATH", paths::npm_packages());
            command.arg(at.join(script));
            command
        }
        Kind::Rust(program, _) => Command::new(programs().join(program)),
    };
    command.args(servers.ports().iter().map(u16::to_string));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let mut input = child.stdin.take().expect("its input");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let mut errors = child.stderr.take().expect("its errors");
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let (said, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        output
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| said.send(line))
    });
    let deadline = Instant::now() + WITHIN;
    let (mut through, mut is_ok) = (Vec::new(), false);
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        match line.as_str() {
            "restart" => {
                servers.restart();
                through.push("kill -9");
            }
            "move" => {
                servers.move_all();
                through.push("move");
            }
            "ok" => is_ok = true,
            _ => {}
        }
        if line == "restart" || line == "move" {
            let _ = input.write_all(b"\n");
        }
    }
    let _ = child.kill();
    let status = child.wait().expect("its end");
    let errors = errors.join().expect("its errors");
    match is_ok {
        true => Ok(through),
        false => Err(format!("{status}\n{errors}")),
    }
}

fn version(kind: Kind) -> String {
    match kind {
        Kind::Python(_, package) => {
            let script =
                format!("from importlib.metadata import version; print(version('{package}'))");
            let output = Command::new(paths::python()).args(["-c", &script]).output();
            String::from_utf8_lossy(&output.expect("run python").stdout)
                .trim()
                .to_owned()
        }
        Kind::NodeJs(_, package) => {
            let file = paths::npm_packages().join(package).join("package.json");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let read: Value = serde_json::from_str(&text).unwrap_or_default();
            read["version"].as_str().unwrap_or_default().to_owned()
        }
        Kind::Rust(_, package) => {
            let file = paths::workspace().join("tests/applications/clients/Cargo.lock");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let head = format!("name = \"{package}\"\nversion = \"");
            let version = text
                .split_once(&head)
                .and_then(|(_, rest)| rest.split('"').next());
            version.unwrap_or_default().to_owned()
        }
    }
}

/// `EPHESUS_APPLICATION=name` runs those whose script has such a name, and writes nothing.
#[test]
#[ignore = "make apps installs what they need"]
fn applications_run_as_they_are_shipped() {
    let only = std::env::var("EPHESUS_APPLICATION").ok();
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for application in APPLICATIONS {
        let (Kind::Python(script, _) | Kind::NodeJs(script, _) | Kind::Rust(script, _)) =
            application.kind;
        if only.as_ref().is_some_and(|only| !script.contains(only)) {
            continue;
        }
        let began = Instant::now();
        let outcome = run(application);
        eprintln!(
            "{} ({script}): {outcome:?}, {:?}",
            application.name,
            began.elapsed()
        );
        let (result, through) = match (&outcome, application.lacks) {
            (Ok(through), _) => ("runs".to_owned(), through.join(", ")),
            (Err(_), Some(lacks)) => (format!("no: {lacks}"), String::new()),
            (Err(why), None) => {
                failed.push(format!("{} ({script}): {why}", application.name));
                let mut lines = why.lines().filter(|line| !line.trim().is_empty());
                (
                    format!("no: {}", lines.next_back().unwrap_or_default()),
                    String::new(),
                )
            }
        };
        results.push(json!({
            "name": application.name,
            "version": version(application.kind),
            "asked": application.asked,
            "through": through,
            "result": result,
        }));
    }
    if only.is_none() {
        let text = serde_json::to_string_pretty(&results).expect("results");
        let file = paths::workspace().join("tests/applications/results.json");
        std::fs::write(file, text + "\n").expect("the results can be written");
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
