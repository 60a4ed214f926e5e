//! Load is seen: by partition and shard, by operators.

mod hotkeys;
mod slot_stats;

use std::time::{Duration, Instant};

use ephesus_tests::coordinator::ephesus;
use ephesus_tests::paths::require;
use ephesus_tests::slots::slot;
use ephesus_tests::{Client, Node, Options, Reply};
use serde_json::Value;

/// How long what was done may take to be told.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options {
        shards: 2,
        partitions: Some(64),
        ..Options::default()
    }
}

/// `ephesus partitions --by load` of a node's own coordinator.
fn by_load(node: &Node, arguments: &[&str]) -> String {
    let coordinator = format!("127.0.0.1:{}", node.port() + 20_000);
    let asked = ["partitions", "--by", "load", "--coordinator", &coordinator];
    let told = ephesus(&[&asked, arguments].concat());
    assert_eq!(told.code, Some(0), "{told:?}");
    told.out
}

fn json(node: &Node) -> Value {
    serde_json::from_str(&by_load(node, &["--json"])).expect("JSON")
}

/// Sends a command over and over until `is_seen` says that it was.
fn until(client: &mut Client, command: &[&str], mut is_seen: impl FnMut() -> bool) {
    let began = Instant::now();
    let request: Vec<Vec<u8>> = command.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    while !is_seen() {
        assert!(began.elapsed() < TOLD_WITHIN, "{command:?}");
        for _ in 0..50 {
            let replies = client.pipeline(&vec![request.clone(); 100]);
            assert!(!matches!(replies[0], Reply::Error(_)), "{replies:?}");
        }
    }
}

#[test]
fn a_partition_that_is_used_much_is_the_first_of_those_by_load() {
    let node = Node::start(options());
    let (hot, warm) = ("hot", "warm");
    let partition = |key: &str| u64::from(slot(key.as_bytes())) * 64 / 16384;
    assert_ne!(partition(hot), partition(warm));
    let mut client = node.client();
    let value = "x".repeat(100);
    assert_eq!(client.call(&["SET", hot, &value]), Reply::ok());
    assert_eq!(client.call(&["SET", warm, &value]), Reply::ok());
    let mut last = Value::Null;
    until(&mut client, &["GET", hot], || {
        last = json(&node);
        let first = &last["partitions"][0];
        first["partition"] == partition(hot) && !first["last_1s"].is_null()
    });
    // The first looks at partitions and shards span different times.
    let began = Instant::now();
    until(&mut client, &["GET", hot], || {
        if began.elapsed() < Duration::from_secs(3) {
            return false;
        }
        last = json(&node);
        let rates = &last["partitions"][0]["last_1s"];
        rates["ops_per_s"].as_u64() > Some(1_000)
    });
    let first = &last["partitions"][0];
    let rates = &first["last_1s"];
    let number = |of: &str| rates[of].as_u64().expect("a number");
    // Requests of 22 bytes, replies of 108.
    let (bytes_in, bytes_out) = (number("bytes_in_per_s"), number("bytes_out_per_s"));
    let per_op = |bytes: u64| bytes as f64 / number("ops_per_s") as f64;
    assert!((21.0..24.0).contains(&per_op(bytes_in)), "{rates}");
    assert!((106.0..110.0).contains(&per_op(bytes_out)), "{rates}");
    assert!(number("cpu_us_per_s") > 1_000, "{rates}");
    let shard = &last["shards"][first["shard"].as_u64().expect("a shard") as usize];
    let of_shard = shard["last_1s"]["cpu_us_per_s"].as_u64().expect("told");
    assert!(number("cpu_us_per_s") <= of_shard + of_shard / 4, "{last}");
    let rows = last["partitions"].as_array().expect("rows");
    assert_eq!(rows.len(), 64);
    let of = |id: u64| {
        rows.iter()
            .find(|row| row["partition"] == id)
            .expect("a row")
    };
    let (hot, warm) = (of(partition(hot)), of(partition(warm)));
    assert!(hot["cpu_us_per_s"].as_u64() > warm["cpu_us_per_s"].as_u64());
    let text = by_load(&node, &[]);
    assert!(
        text.contains("partitions idle") && text.contains("CPU 1S"),
        "{text}"
    );
    // Bytes of keys and values come in rotation.
    until(&mut client, &["GET", "hot"], || {
        let rows = json(&node);
        let rows = rows["partitions"].as_array().expect("rows");
        let sized = rows.iter().filter(|row| row["bytes"].as_u64() > Some(50));
        sized.count() == 2 && rows.iter().all(|row| !row["cpu_us_per_s"].is_null())
    });
}

/// Uses keys so that one is hot in each of two partitions, until `is_seen`.
fn use_keys(client: &mut Client, hot: &[&str], mut is_seen: impl FnMut() -> bool) {
    let began = Instant::now();
    let mut cold = 0u64;
    while !is_seen() {
        assert!(began.elapsed() < TOLD_WITHIN, "{hot:?}");
        let mut requests = Vec::new();
        for _ in 0..500 {
            for key in hot {
                requests.push(vec![b"INCR".to_vec(), key.as_bytes().to_vec()]);
                cold += 1;
                requests.push(vec![b"GET".to_vec(), format!("cold:{cold}").into_bytes()]);
            }
        }
        client.pipeline(&requests);
    }
}

/// `ephesus hot --keys --json` of a node's own coordinator.
fn hot_keys(node: &Node) -> Value {
    let coordinator = format!("127.0.0.1:{}", node.port() + 20_000);
    let told = ephesus(&["hot", "--keys", "--json", "--coordinator", &coordinator]);
    assert_eq!(told.code, Some(0), "{told:?}");
    serde_json::from_str(&told.out).expect("JSON")
}

#[test]
fn hot_keys_of_all_shards_are_named() {
    let node = Node::start(options());
    let mut client = node.client();
    // One of each shard, whose partitions are halves of the slots.
    let keys = (0..).map(|n| format!("hot:{n}"));
    let low: Vec<String> = keys
        .clone()
        .filter(|key| slot(key.as_bytes()) < 8192)
        .take(1)
        .collect();
    let high: Vec<String> = keys
        .filter(|key| slot(key.as_bytes()) >= 8192)
        .take(1)
        .collect();
    let (low, high) = (low[0].as_str(), high[0].as_str());
    let mut last = Value::Null;
    use_keys(&mut client, &[low, high], || {
        last = hot_keys(&node);
        let first = last["keys"].as_array().expect("keys").iter().take(2);
        let names: Vec<&str> = first.filter_map(|key| key["key"].as_str()).collect();
        names.len() == 2 && names.contains(&low) && names.contains(&high)
    });
    let first = &last["keys"][0];
    assert!(first["share_of_shard"].as_f64() > Some(0.2), "{last}");
    assert!(first["ops_per_s"].as_u64() > Some(100), "{last}");
    assert_eq!(first["database"], 0);
    assert_ne!(last["keys"][0]["shard"], last["keys"][1]["shard"], "{last}");
    let partitions: Vec<u64> = last["partitions"].as_array().expect("rows")[..2]
        .iter()
        .filter_map(|row| row["partition"].as_u64())
        .collect();
    let of = |key: &str| u64::from(slot(key.as_bytes())) * 64 / 16384;
    assert!(
        partitions.contains(&of(low)) && partitions.contains(&of(high)),
        "{last}"
    );
    let coordinator = format!("127.0.0.1:{}", node.port() + 20_000);
    let told = ephesus(&["hot", "--keys", "--coordinator", &coordinator]);
    assert!(
        told.out.contains("OF SHARD") && told.out.contains(low),
        "{told:?}"
    );
    let told = ephesus(&["hot", "--coordinator", &coordinator]);
    assert!(!told.out.contains(low), "keys were not asked for: {told:?}");
}

#[test]
fn redis_cli_finds_hot_keys_at_the_entry_port_and_at_a_direct_one() {
    require("redis-cli");
    let node = Node::start(options());
    let mut client = node.client();
    let keys = (0..).map(|n| format!("hot:{n}"));
    let mut of_first = keys.filter(|key| slot(key.as_bytes()) < 8192);
    let hot = of_first.next().expect("a key");
    for n in 0..100 {
        client.call(&["SET", &format!("cold:{n}"), "1"]);
    }
    let mut ask = node.client();
    ask.call(&["SET", &hot, "0"]);
    use_keys(&mut client, &[&hot], || {
        ask.call(&["OBJECT", "FREQ", &hot]).integer() > 80
    });
    assert_eq!(ask.call(&["OBJECT", "FREQ", "cold:7"]).integer(), 0);
    assert!(ask.call(&["OBJECT", "FREQ", "nosuchkey"]).is_nil());
    for port in [node.port(), node.direct_port(0)] {
        let output = std::process::Command::new("redis-cli")
            .args(["-p", &port.to_string(), "--hotkeys"])
            .output()
            .expect("run redis-cli");
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text
            .lines()
            .find(|line| line.contains("hot key found with counter"));
        assert!(
            found.is_some_and(|line| line.contains(&hot)),
            "{port}: {text}"
        );
    }
}
