//! Partitions of every shape move between nodes and between shards, and are the same afterwards: each
//! value, each expiry within 100 ms, and nothing besides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ephesus_tests::roaming::Roaming;
use ephesus_tests::slots::slot;
use ephesus_tests::whole::Row;
use ephesus_tests::{Reply, Rng, TestCluster, scale};

use super::{move_to, row};

/// One partition more than there are shards: wherever one of them is, the cluster is balanced.
const FLAGS: [&str; 2] = ["--partitions", "5"];

const NAMES: [&str; 2] = ["athens", "byzantium"];

/// What is moved, from where it is at first.
const PARTITION: u16 = 0;

/// The largest value and the longest key that clients may write.
const VALUE_BYTES_MAX: usize = 8 << 20;
const KEY_BYTES_MAX: usize = 64 << 10;

/// Keys that expire one after the other while a move is under way, and after it.
const SHORT_LIVED: u64 = 1_000;
const APART: Duration = Duration::from_millis(4);

/// MB per second of a move that is to take a while.
const LIMIT: &str = "20";

/// A node looks at the clock once per turn, and is not always let run.
const SLACK_MS: u64 = 100;

/// Keys in one partition without `EPHESUS_KEYS`.
const MANY_KEYS: u64 = 100_000;

const BATCH: usize = 500;

/// What a key should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    value: Vec<u8>,
    /// Milliseconds since the Unix epoch.
    expires_ms: Option<u64>,
}

/// All keys that were written, by name.
type Model = BTreeMap<Vec<u8>, Held>;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_millis() as u64
}

impl Held {
    fn new(value: Vec<u8>) -> Self {
        Self {
            value,
            expires_ms: None,
        }
    }

    fn until(value: Vec<u8>, expires_ms: u64) -> Self {
        Self {
            value,
            expires_ms: Some(expires_ms),
        }
    }

    fn request(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let mut words = vec![b"SET".to_vec(), key.to_vec(), self.value.clone()];
        if let Some(at) = self.expires_ms {
            words.extend([b"PXAT".to_vec(), at.to_string().into_bytes()]);
        }
        words
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at| at <= now_ms)
    }
}

/// To another node, between its shards, back, and between the shards again.
fn way(whole: &TestCluster) -> [(&'static str, u16); 4] {
    let at = row(whole, PARTITION);
    let is_at_first = at.node == NAMES[0];
    let (here, there) = (
        NAMES[usize::from(!is_at_first)],
        NAMES[usize::from(is_at_first)],
    );
    let other = 1 - at.shard;
    [
        (there, other),
        (there, at.shard),
        (here, other),
        (here, at.shard),
    ]
}

/// Tags whose keys are all in this partition.
pub(super) fn tags(row: &Row) -> impl Iterator<Item = String> {
    let (first, last) = row.slots;
    let tags = (0..).map(|n: u64| format!("t{n}"));
    tags.filter(move |tag| (first..=last).contains(&slot(tag.as_bytes())))
}

/// One key of every kind that may matter to blocks, records, frames or groups of the log.
fn shapes(row: &Row, rng: &mut Rng) -> Model {
    let mut model = Model::new();
    let mut tags = tags(row);
    let mut tag = || tags.next().expect("there is no last one");
    let sizes = (0..=17).chain((8..23).flat_map(|power| [(1 << power) - 1, 1 << power]));
    for size in sizes.chain([4_000, 4_090, 100_000, 1_000_000, VALUE_BYTES_MAX]) {
        let key = format!("{{{}}}:{size} bytes", tag());
        model.insert(key.into_bytes(), Held::new(rng.bytes(size)));
    }
    // Many under one tag, so in one slot, with names of all lengths.
    let one = tag();
    for length in (0..300).chain([4_096, KEY_BYTES_MAX - one.len() - 2]) {
        let mut key = format!("{{{one}}}").into_bytes();
        key.extend(rng.bytes(length));
        let size = rng.below(200) as usize;
        model.insert(key, Held::new(rng.bytes(size)));
    }
    // Without a tag, with an empty one, and one that is open.
    let plain = (0..).map(|n: u64| format!("plain:{n}"));
    let empty = (0..).map(|n: u64| format!("{{}}empty:{n}"));
    let open = (0..).map(|n: u64| format!("{{open:{n}"));
    let is_here = |key: &String| (row.slots.0..=row.slots.1).contains(&slot(key.as_bytes()));
    let plain = plain.filter(is_here).take(100);
    let odd = empty
        .filter(is_here)
        .take(50)
        .chain(open.filter(is_here).take(50));
    for key in plain.chain(odd) {
        let size = rng.below(400) as usize;
        model.insert(key.into_bytes(), Held::new(rng.bytes(size)));
    }
    // Numbers, and those that live for long.
    for n in 0..200 {
        let key = format!("{{{}}}:{n} hours", tag());
        let at = now_ms() + 3_600_000 * (n + 1) + rng.below(1_000);
        model.insert(
            key.into_bytes(),
            Held::until(n.to_string().into_bytes(), at),
        );
    }
    model
}

/// Keys that expire one after the other from now on.
fn short_lived(row: &Row, round: usize) -> Model {
    let tags: Vec<String> = tags(row).take(20).collect();
    let began = now_ms() + 500;
    let keys = (0..SHORT_LIVED).map(|n| {
        let key = format!("{{{}}}:short {round} {n}", tags[n as usize % tags.len()]);
        let at = began + n * APART.as_millis() as u64;
        (key.into_bytes(), Held::until(vec![b'x'; n as usize], at))
    });
    keys.collect()
}

/// Sends requests that may all go to the same place, in batches.
fn write(client: &mut Roaming, model: &Model) {
    for (key, held) in model {
        let reply = client.call(&held.request(key));
        assert_eq!(reply, Reply::ok(), "{}", key.escape_ascii());
    }
}

/// Reads every key back: value and expiry, or that it is gone.
fn verify(client: &mut Roaming, model: &Model) {
    for (key, held) in model {
        let name = key.escape_ascii().to_string();
        let name = &name[..name.len().min(80)];
        let asked = now_ms();
        let value = client.call(&[b"GET", &**key]);
        let left = client.call(&[b"PTTL", &**key]).integer();
        let answered = now_ms();
        let is_there = value == Reply::bulk(&held.value);
        match held.expires_ms {
            None => assert!(is_there && left == -1, "{name}: {value:?}, {left}"),
            Some(at) if at + SLACK_MS < asked => {
                assert!(
                    value.is_nil() && left == -2,
                    "{name} has expired: {value:?}, {left}"
                );
            }
            Some(at) if answered + SLACK_MS < at => {
                let right = at - answered - SLACK_MS..=at - asked + SLACK_MS;
                let is_right = is_there && right.contains(&(left as u64));
                assert!(is_right, "{name}: {value:?}, {left} of {right:?}");
            }
            Some(_) => assert!(is_there || value.is_nil(), "{name}: {value:?}"),
        }
    }
}

/// All names that the nodes have; none of them twice.
pub(super) fn names(whole: &TestCluster) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    for node in &whole.nodes {
        let mut client = node.client();
        let mut cursor = "0".to_owned();
        let mut own = BTreeSet::new();
        loop {
            let reply = client.call(&["SCAN", &cursor, "COUNT", "1000"]).items();
            own.extend(reply[1].items().into_iter().map(|key| match key {
                Reply::Bulk(name) => name,
                other => panic!("SCAN answered {other:?}"),
            }));
            cursor = reply[0].text();
            if cursor == "0" {
                break;
            }
        }
        for name in own {
            assert!(names.insert(name.clone()), "twice: {}", name.escape_ascii());
        }
    }
    names
}

/// What the nodes list is what was written and has not expired.
fn verify_names(whole: &TestCluster, model: &Model) {
    let began = now_ms();
    let names = names(whole);
    let ended = now_ms();
    for name in &names {
        let held = model.get(name);
        let is_there = held.is_some_and(|held| !held.is_over(began - SLACK_MS));
        assert!(is_there, "it should not be there: {}", name.escape_ascii());
    }
    for (name, _) in model
        .iter()
        .filter(|(_, held)| !held.is_over(ended + SLACK_MS))
    {
        assert!(names.contains(name), "not listed: {}", name.escape_ascii());
    }
}

#[test]
fn a_partition_of_every_kind_of_key_is_the_same_wherever_it_goes() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("shapes"));
    let mut whole = TestCluster::started(&FLAGS, &NAMES, 2);
    let at = row(&whole, PARTITION);
    let mut client = whole.client();
    let mut model = shapes(&at, &mut rng);
    write(&mut client, &model);
    verify(&mut client, &model);
    for (round, (node, shard)) in way(&whole).into_iter().enumerate() {
        let short = short_lived(&at, round);
        write(&mut client, &short);
        model.extend(short);
        let began = now_ms();
        let place = format!("{node}/{shard}");
        let number = PARTITION.to_string();
        let words = ["move", "--partition", &number, "--to", &place];
        whole.core.ask(&words).assert(0, &[]);
        let told = whole.core.ask(&["rebalance", "--limit", LIMIT]);
        told.assert(0, &[]);
        move_to_the_end(&whole, node, shard);
        let ended = now_ms();
        let during = model
            .values()
            .filter(|held| !held.is_over(began) && held.is_over(ended));
        let during = during.count();
        eprintln!(
            "to {place} in {} ms, in which {during} keys have expired",
            ended - began
        );
        assert!(during > 0, "some expire while they move");
        verify(&mut client, &model);
        verify_names(&whole, &model);
    }
    // They are there after a crash as well, and those that expire do so.
    for node in &mut whole.nodes {
        node.kill();
        node.restart();
    }
    whole.until_healthy();
    let mut client = whole.client();
    verify(&mut client, &model);
    verify_names(&whole, &model);
}

/// Waits for the move of the partition that is under way.
fn move_to_the_end(whole: &TestCluster, node: &str, shard: u16) {
    whole.core.until("it has moved", |_| {
        let now = row(whole, PARTITION);
        (&*now.node, now.shard, &*now.status) == (node, shard, "online")
    });
}

#[test]
fn an_empty_partition_moves_and_takes_keys_where_it_is() {
    let whole = TestCluster::started(&FLAGS, &NAMES, 2);
    let at = row(&whole, PARTITION);
    let mut client = whole.client();
    for (round, (node, shard)) in way(&whole).into_iter().enumerate() {
        move_to(&whole, PARTITION, node, shard);
        let report = whole.core.json("migrations");
        let rows = report["migrations"].as_array().expect("rows");
        assert!(rows.iter().all(|row| row["keys"] == 0), "{rows:?}");
        assert_eq!(names(&whole), BTreeSet::new());
        let tag = tags(&at).next().expect("a tag");
        let key = format!("{{{tag}}}:{round}");
        assert_eq!(client.call(&["SET", &key, "here"]), Reply::ok());
        let there = whole
            .nodes
            .iter()
            .find(|one| one.options.name.as_deref() == Some(node));
        let mut there = there.expect("the node").direct_client(shard);
        assert_eq!(there.call(&["GET", &key]), Reply::bulk("here"));
        assert_eq!(client.call(&["DEL", &key]), Reply::Integer(1));
    }
}

/// Key and content of one of many.
fn one_of_many(tag: &str, n: u64, deadline_ms: u64) -> (Vec<u8>, Held) {
    let key = format!("{{{tag}}}:{n}").into_bytes();
    let mut rng = Rng::new(n);
    let size = 20 + rng.below(120) as usize;
    let value = rng.bytes(size);
    let held = match n % 10 {
        0 => Held::until(value, deadline_ms + n),
        _ => Held::new(value),
    };
    (key, held)
}

#[test]
fn a_partition_of_very_many_keys_moves() {
    let keys = scale::keys(MANY_KEYS);
    let whole = TestCluster::started(&FLAGS, &NAMES, 2);
    let at = row(&whole, PARTITION);
    let tag = tags(&at).next().expect("a tag");
    // Long after any of this is over.
    let deadline_ms = now_ms() + 24 * 3_600_000;
    let numbers: Vec<u64> = (0..keys).collect();
    let place = |whole: &TestCluster| {
        let now = row(whole, PARTITION);
        let mut nodes = whole.nodes.iter();
        let node = nodes.find(|node| node.options.name.as_deref() == Some(&now.node));
        node.expect("its node").direct_client(now.shard)
    };
    let mut client = place(&whole);
    for batch in numbers.chunks(BATCH) {
        let requests = batch.iter().map(|n| {
            let (key, held) = one_of_many(&tag, *n, deadline_ms);
            held.request(&key)
        });
        let replies = client.pipeline(&requests.collect::<Vec<_>>());
        assert!(replies.iter().all(|reply| *reply == Reply::ok()));
    }
    for (node, shard) in way(&whole) {
        move_to(&whole, PARTITION, node, shard);
        let mut client = place(&whole);
        assert_eq!(client.say("DBSIZE"), Reply::Integer(keys as i64));
        let asked = now_ms();
        let mut read = 0;
        for batch in numbers.chunks(BATCH) {
            let all: Vec<_> = batch
                .iter()
                .map(|n| one_of_many(&tag, *n, deadline_ms))
                .collect();
            let ask = |name: &str, key: &[u8]| vec![name.as_bytes().to_vec(), key.to_vec()];
            let requests = all
                .iter()
                .flat_map(|(key, _)| [ask("GET", key), ask("PTTL", key)]);
            let replies = client.pipeline(&requests.collect::<Vec<_>>());
            let answered = now_ms();
            for ((key, held), pair) in all.iter().zip(replies.chunks(2)) {
                let left = pair[1].integer();
                let is_right = match held.expires_ms {
                    None => left == -1,
                    Some(at) => {
                        (at - answered - SLACK_MS..=at - asked + SLACK_MS).contains(&(left as u64))
                    }
                };
                let is_right = is_right && pair[0] == Reply::bulk(&held.value);
                assert!(is_right, "{}: {pair:?}", key.escape_ascii());
                read += 1;
            }
        }
        assert_eq!(read, keys);
    }
    let report = whole.core.json("migrations");
    for row in report["migrations"].as_array().expect("rows") {
        assert_eq!(row["keys"], keys, "{row}");
        eprintln!("{row}");
    }
}
