//! Load is seen: by partition and shard, by operators.

use std::time::{Duration, Instant};

use ephesus_tests::coordinator::ephesus;
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
    // What the first look found may be of the very first commands.
    until(&mut client, &["GET", hot], || {
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
