//! `ephesus-bench run` against real servers: what it says is what they have done.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use ephesus_bench::compare::CompareArgs;
use ephesus_bench::run::RunArgs;
use ephesus_bench::sweep::SweepArgs;
use ephesus_tests::node::{Node, Options};
use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Reply, paths};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;

/// The flags of `ephesus-bench run`.
#[derive(Parser)]
struct Run {
    #[command(flatten)]
    run: RunArgs,
}

/// Runs it with these flags; the record, or the one line that says what is wrong.
pub(crate) fn bench(flags: &str) -> Result<Value, String> {
    let (done, record) = bench_anyway(flags);
    done.map(|()| record)
}

/// The same, with the record of a run in which something went wrong.
fn bench_anyway(flags: &str) -> (Result<(), String>, Value) {
    let dir = paths::scratch();
    let record = dir.path().join("record.json");
    let json = format!("--json={}", record.display());
    let words = ["run"].into_iter().chain(flags.split(' ')).chain([&*json]);
    let arguments = Run::parse_from(words);
    let done = arguments.run.execute().map_err(|error| error.to_string());
    let text = fs::read_to_string(record).unwrap_or_default();
    (done, serde_json::from_str(&text).unwrap_or_default())
}

/// How often each operation was done.
fn counts(record: &Value) -> impl Fn(&str) -> u64 + use<> {
    let run = record["cases"][0]["runs"][0].clone();
    move |operation| {
        let count = run["operations"][operation]["count"].as_u64();
        count.unwrap_or(0)
    }
}

#[test]
fn every_preset_runs_on_redis_and_on_ephesus_and_finds_what_was_written() {
    let redis = Oracle::standalone();
    let node = Node::start(Options::default());
    for port in [redis.port(), node.port()] {
        for (preset, operations) in [
            ("a", &["read", "write"][..]),
            ("b", &["read", "write"]),
            ("c", &["read"]),
            ("d", &["read", "insert"]),
            ("f", &["read", "rmw"]),
            ("session", &["read", "ttl"]),
            ("cache", &["read", "ttl", "delete"]),
            ("rate-limit", &["count"]),
        ] {
            let verify = if preset == "rate-limit" {
                ""
            } else {
                " --verify --fill"
            };
            let flags = format!(
                "127.0.0.1:{port} --preset {preset} --keys 1000 --count 3000 --pipeline 4{verify}"
            );
            let record = bench(&flags).unwrap_or_else(|error| panic!("{flags}: {error}"));
            let count = counts(&record);
            let sum: u64 = operations.iter().map(|operation| count(operation)).sum();
            assert_eq!(sum, 3000, "{preset}");
            assert!(
                operations.iter().all(|operation| count(operation) > 0),
                "{preset}"
            );
        }
    }
    let mut client = redis.client();
    assert_eq!(
        client
            .say("EXISTS key:000000000000 key:000000000999")
            .integer(),
        2
    );
    let longest = client.say("TTL cnt:000000000000").integer();
    assert!(longest <= 60, "{longest}");
}

#[test]
fn a_cluster_is_driven_shard_by_shard_and_an_open_loop_keeps_its_rate() {
    let node = Node::start(Options::default());
    let flags = format!(
        "127.0.0.1:{} --cluster --fill --verify --keys 2000 --duration 1 --rate 2000 \
         --warmup 0.2 --connections 10",
        node.port()
    );
    let record = bench(&flags).expect("a run");
    let count = counts(&record);
    assert_eq!(count("read") + count("write"), 2000);
    let run = &record["cases"][0]["runs"][0];
    assert_eq!(
        (&run["misses"], &run["offered_per_s"]),
        (&0.into(), &2000.0.into())
    );
    let notes = record["cases"][0]["notes"].to_string();
    assert!(
        !notes.contains("redirected"),
        "straight to each shard: {notes}"
    );
}

#[test]
fn a_run_outlives_a_crash_of_the_node_which_loses_nothing_that_was_confirmed() {
    let mut node = Node::start(Options {
        durability: Some("strict"),
        ..Options::default()
    });
    let flags = format!(
        "127.0.0.1:{} --cluster --fill --verify --keys 500 --duration 5 --rate 2000 \
         --connections 10 --mix read=50,write=45,delete=5",
        node.port()
    );
    let mut client = node.client();
    let load = thread::spawn(move || bench_anyway(&flags));
    // The load begins once all keys are there.
    let filled = Instant::now() + Duration::from_secs(30);
    while client.say("DBSIZE") != Reply::Integer(500) {
        assert!(Instant::now() < filled, "500 keys take too long");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(2500));
    node.kill();
    node.restart();
    let (done, record) = load.join().expect("a run");
    let told = done.expect_err("operations were lost");
    assert!(told.contains("connection to 127.0.0.1:"), "{told}");
    let run = &record["cases"][0]["runs"][0];
    let errors = run["errors"].as_object().expect("errors");
    // It may be asked before it serves: that is told, and not waited for by clients.
    let known = ["CONNECTION-LOST", "CLUSTERDOWN", "LOADING", "TRYAGAIN"];
    assert!(
        errors.keys().all(|why| known.contains(&&**why)),
        "{errors:?}"
    );
    assert!(errors.contains_key("CONNECTION-LOST"), "{errors:?}");
    let events = run["events"].as_array().expect("events");
    assert!(
        events.iter().any(|event| event["kind"] == "outage"),
        "{events:?}"
    );
    let count = counts(&record);
    let failed: u64 = errors.values().filter_map(Value::as_u64).sum();
    assert_eq!(
        count("read") + count("write") + count("delete") + failed,
        10_000
    );
}

/// The flags of `ephesus-bench sweep`.
#[derive(Parser)]
struct Sweep {
    #[command(flatten)]
    sweep: SweepArgs,
}

/// Server and label of each run of a sweep, and the names of its curves.
fn sweep(flags: &str) -> (Vec<String>, Vec<String>) {
    let dir = paths::scratch();
    let json = dir.path().join("record.json");
    let flags = format!("sweep {flags} --json {}", json.display());
    let arguments = Sweep::parse_from(flags.split(' '));
    arguments.sweep.execute().expect("a sweep");
    let text = fs::read_to_string(json).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let case = &record["cases"][0];
    let text = |of: &Value| of.as_str().expect("text").to_owned();
    let all = |of: &Value, name: &dyn Fn(&Value) -> String| {
        let of = of.as_array().expect("a list").iter();
        of.map(name).collect()
    };
    let run = |run: &Value| text(&run["server"]) + " " + &text(&run["label"]);
    let curves = &case["plots"][0]["series"];
    (
        all(&case["runs"], &run),
        all(curves, &|of| text(&of["name"])),
    )
}

#[test]
fn a_sweep_has_a_run_for_each_value_and_a_curve() {
    let redis = Oracle::standalone();
    let here = format!("127.0.0.1:{}", redis.port());
    for (over, values, runs) in [
        ("rate", "10,20", ["redis rate 10", "redis rate 20"]),
        ("pipeline", "1,8", ["redis pipeline 1", "redis pipeline 8"]),
    ] {
        // Long enough that a pause of this machine at the end is no knee.
        let flags = format!("--over {over} --values {values} --duration 3 --warmup 0 --keys 10");
        let (found, curves) = sweep(&format!("{here} {flags}"));
        assert_eq!(found, runs);
        assert_eq!(curves, ["p50", "p99", "p99.9"]);
    }
}

#[test]
fn servers_of_a_sweep_take_turns_in_beginning_and_have_a_curve_each() {
    let (redis, node) = (Oracle::standalone(), Node::start(Options::default()));
    let flags = "--over connections --values 1,2 --duration 0.3 --warmup 0 --keys 10";
    let (runs, curves) = sweep(&format!(
        "127.0.0.1:{} 127.0.0.1:{} {flags}",
        redis.port(),
        node.port()
    ));
    let order = [
        "redis connections 1",
        "ephesus connections 1",
        "ephesus connections 2",
        "redis connections 2",
    ];
    assert_eq!(runs, order);
    assert_eq!(curves, ["ephesus, p99", "redis, p99"]);
}

#[test]
fn servers_that_run_are_compared_by_their_addresses_with_keys_as_the_load_writes_them() {
    #[derive(Parser)]
    struct Compare {
        #[command(flatten)]
        compare: CompareArgs,
    }
    let redis = Oracle::standalone();
    let node = Node::start(Options::default());
    let dir = paths::scratch();
    let json = dir.path().join("record.json");
    let flags = format!(
        "compare 127.0.0.1:{} 127.0.0.1:{} --preset session --fill --rounds 2 --count 2000 --keys 500 --json {}",
        redis.port(),
        node.port(),
        json.display()
    );
    let arguments = Compare::parse_from(flags.split(' '));
    arguments.compare.execute().expect("a comparison");
    let text = fs::read_to_string(json).expect("a record");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    let rate = &record["cases"][0]["rows"][0];
    assert_eq!(rate["name"], "rate");
    for server in ["redis", "ephesus"] {
        let rounds = rate["samples"][server].as_array().expect("samples");
        assert_eq!(rounds.len(), 2, "{rate}");
    }
    assert!(rate["ratios"]["best peer"]["median"].as_f64() > Some(0.0));
    // Loaded with the time to live that writes have, in the last round too.
    let mut clients = [redis.client(), node.client()];
    for client in &mut clients {
        let left_s = client.say("TTL key:000000000499").integer();
        assert!((1..=1800).contains(&left_s), "{left_s}");
    }
}

/// A certificate for this machine, its key and the certificate that has signed both ends'.
fn certificates(dir: &Path) {
    let authority = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new([]).expect("parameters");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = parameters.self_signed(&authority).expect("a certificate");
    let issuer = Issuer::new(parameters, authority);
    let key = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
    // Of another name than the authority: a certificate by the same name counts as signed by itself.
    parameters
        .distinguished_name
        .push(DnType::CommonName, "own");
    let own = parameters.signed_by(&key, &issuer).expect("a certificate");
    for (name, text) in [
        ("ca.pem", root.pem()),
        ("own.pem", own.pem()),
        ("own.key", key.serialize_pem()),
        ("password", "open sesame\n".to_owned()),
        ("wrong", "wrong\n".to_owned()),
    ] {
        fs::write(dir.join(name), text).expect("written");
    }
}

#[test]
fn tls_and_passwords_are_those_of_redis() {
    let home = paths::scratch();
    certificates(home.path());
    let file = |name: &str| home.path().join(name).display().to_string();
    let redis = Oracle::behind_tls(
        [&file("ca.pem"), &file("own.pem"), &file("own.key")],
        &[
            "--requirepass",
            "open sesame",
            "--user",
            "bench",
            "on",
            ">wrong",
            "~*",
            "+@all",
        ],
    );
    let (plain, tls) = (redis.port(), redis.tls_port());
    let load = "--keys 100 --fill --count 5000 --verify --value-bytes 32-20000 --pipeline 16";
    let secure = format!(
        "127.0.0.1:{tls} {load} --tls --ca-file {} --cert-file {} --key-file {}",
        file("ca.pem"),
        file("own.pem"),
        file("own.key")
    );
    let password = format!("--password-file {}", file("password"));
    for flags in [
        format!("127.0.0.1:{plain} {load} {password}"),
        format!("{secure} {password}"),
        format!("{secure} --user bench --password-file {}", file("wrong")),
    ] {
        let count = counts(&bench(&flags).unwrap_or_else(|error| panic!("{flags}: {error}")));
        assert_eq!(count("read") + count("write"), 5000);
    }
    let anonymous = format!("127.0.0.1:{tls} {load} --tls --ca-file {}", file("ca.pem"));
    let stranger = secure.replacen("ca.pem", "own.pem", 1);
    for (flags, told) in [
        (format!("127.0.0.1:{plain} {load}"), "NOAUTH"),
        (
            format!("{secure} --password-file {}", file("wrong")),
            "WRONGPASS",
        ),
        (format!("{anonymous} {password}"), "CertificateRequired"),
        (format!("{stranger} {password}"), "UnknownIssuer"),
    ] {
        let told_by = bench(&flags).expect_err("refused");
        assert!(
            told_by.contains(told) && !told_by.contains('\n'),
            "{told_by}"
        );
    }
}

#[test]
fn what_cannot_be_run_is_one_clear_line() {
    let cluster = Oracle::cluster();
    let mut client = cluster.client();
    client.say("CONFIG SET cluster-require-full-coverage no");
    client.say("CLUSTER DELSLOTS 5 6 7");
    let missing = bench(&format!("127.0.0.1:{} --cluster --count 1", cluster.port()));
    let missing = missing.expect_err("holes");
    assert!(missing.contains("nobody has 3 of its slots"), "{missing}");
    let redis = Oracle::standalone();
    let here = format!("127.0.0.1:{}", redis.port());
    for (flags, told) in [
        (format!("{here} --cluster"), "cluster support disabled"),
        (format!("{here} --verify --preset rate-limit"), "--verify"),
        (format!("{here} --verify --value-bytes 31"), "--verify"),
        (
            format!("{here} --count 1 --csv /nowhere/rows"),
            "/nowhere/rows",
        ),
        (format!("{here} --pipeline 100000"), "--pipeline"),
        ("127.0.0.1:1 --count 1".to_owned(), "127.0.0.1:1"),
        ("nowhere --count 1".to_owned(), "nowhere"),
    ] {
        let text = bench(&flags).expect_err(&flags);
        assert!(
            text.contains(told) && !text.contains('\n'),
            "{flags}: {text}"
        );
    }
    redis.client().say("SET key:000000000000 text");
    redis.client().say("RPUSH key:000000000001 a list");
    let text = bench(&format!("{here} --keys 2 --mix read=1 --count 100")).expect_err("errors");
    assert!(
        text.contains("WRONGTYPE") && text.contains("have failed"),
        "{text}"
    );
}
