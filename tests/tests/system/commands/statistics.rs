//! What INFO, SLOWLOG, LATENCY and CONFIG tell of commands.

use super::{Pair, Port};
use ephesus_tests::{Client, Node, Options, Reply};

fn field(text: &str, line: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find(|found| found.starts_with(&format!("{line}:")));
    let line = line.unwrap_or_else(|| panic!("no line {name} in {text}"));
    let (_, fields) = line.split_once(':').expect("fields");
    let mut fields = fields.split(',').filter_map(|field| field.split_once('='));
    let found = fields.find(|(found, _)| *found == name);
    found.expect("a field").1.parse().expect("a number")
}

#[test]
fn commands_errors_and_times_are_counted_wherever_they_are_executed() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    for n in 0..500 {
        assert_eq!(client.call(&["SET", &format!("k{n}"), "1"]), Reply::ok());
    }
    let mut direct = node.direct_client(0);
    let mut moved = 0;
    for n in 0..100 {
        let reply = direct.call(&["GET", &format!("k{n}")]);
        moved += u64::from(
            reply
                .error()
                .is_some_and(|error| error.starts_with("MOVED ")),
        );
    }
    client.say("GET");
    client.say("INCRBY k1 x");
    client.say("CONFIG GET maxmemory");
    client.say("NOSUCH");
    let text = client.say("INFO commandstats").text();
    assert_eq!(field(&text, "cmdstat_set", "calls"), 500.0);
    assert!(field(&text, "cmdstat_set", "usec") > 0.0, "{text}");
    assert_eq!(field(&text, "cmdstat_get", "calls"), (100 - moved) as f64);
    assert_eq!(
        field(&text, "cmdstat_get", "rejected_calls"),
        (moved + 1) as f64
    );
    assert_eq!(field(&text, "cmdstat_incrby", "failed_calls"), 1.0);
    assert_eq!(field(&text, "cmdstat_config|get", "calls"), 1.0);
    let text = client.say("INFO errorstats").text();
    assert_eq!(field(&text, "errorstat_ERR", "count"), 3.0, "{text}");
    assert_eq!(field(&text, "errorstat_MOVED", "count"), moved as f64);
    let text = client.say("INFO latencystats").text();
    let percentiles = "latency_percentiles_usec_set";
    let p50 = field(&text, percentiles, "p50");
    assert!(
        p50 > 0.0 && p50 <= field(&text, percentiles, "p99.9"),
        "{text}"
    );
    let histogram = client.say("LATENCY HISTOGRAM set nosuch");
    let items = histogram.items();
    assert_eq!((items.len(), &items[0]), (2, &Reply::bulk("set")));
    assert_eq!(items[1].items()[1], Reply::Integer(500));
    let counts = items[1].items()[3].items();
    assert_eq!(counts.last(), Some(&Reply::Integer(500)), "{counts:?}");

    assert_eq!(client.say("CONFIG RESETSTAT"), Reply::ok());
    let text = client.say("INFO everything").text();
    assert!(
        !text.contains("cmdstat_set") && !text.contains("errorstat_"),
        "{text}"
    );
    assert_eq!(client.say("LATENCY HISTOGRAM set").items(), []);
}

fn entries(client: &mut Client) -> Vec<Vec<Reply>> {
    let entries = client.say("SLOWLOG GET -1").items();
    entries.iter().map(Reply::items).collect()
}

#[test]
fn the_slow_log_names_what_took_long_and_no_secret() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    assert_eq!(client.say("SLOWLOG LEN"), Reply::Integer(0));
    client.say("CLIENT SETNAME me");
    assert_eq!(
        client.say("CONFIG SET slowlog-log-slower-than 0"),
        Reply::ok()
    );
    client.say("SELECT 3");
    for n in 0..20 {
        client.call(&["SET", &format!("key{n}"), &"v".repeat(500)]);
    }
    client.say("HELLO 2 AUTH default hunter2");
    client.say("CONFIG SET latency-monitor-threshold hunter2");
    client.say("CONFIG SET slowlog-log-slower-than -1");
    let all = entries(&mut client);
    assert!(all.len() >= 22, "{all:?}");
    assert_eq!(client.say("SLOWLOG LEN"), Reply::Integer(all.len() as i64));
    assert!(!format!("{all:?}").contains("hunter2"), "{all:?}");
    let sets = all
        .iter()
        .filter(|entry| entry[3].items()[0] == Reply::bulk("SET"));
    let sets: Vec<&Vec<Reply>> = sets.collect();
    assert_eq!(sets.len(), 20);
    for (set, n) in sets.iter().zip((0..20).rev()) {
        let args = set[3].items();
        assert_eq!(args[1], Reply::bulk(format!("key{n}")));
        assert_eq!(
            args[2],
            Reply::bulk(format!("{}... (372 more bytes)", "v".repeat(128)))
        );
    }
    // Those of this shard know who has asked.
    let named = |entry: &&&Vec<Reply>| entry[5] == Reply::bulk("me");
    assert!(sets.iter().filter(named).count() > 0, "{all:?}");
    client.say("SLOWLOG RESET");
    assert_eq!(entries(&mut client).len(), 0);
    client.say("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3");
    for _ in 0..9 {
        client.say("GET key1");
    }
    client.say("CONFIG SET slowlog-log-slower-than -1");
    assert_eq!(entries(&mut client).len(), 3);
}

#[test]
fn config_set_answers_as_redis_does() {
    let mut pair = Pair::new(Port::Entry, 2);
    for line in [
        "CONFIG SET foo 1",
        "CONFIG SET maxmemory x",
        "CONFIG SET maxmemory",
        "CONFIG SET maxmemory 1gb foo 2",
        "CONFIG GET maxmemory",
        "CONFIG SET maxmemory 100mb maxmemory 200mb",
        "CONFIG SET MaxMemory 100mb slowlog-max-len 5",
        "CONFIG GET MAXMEMORY",
        "CONFIG GET slowlog-max-le?",
        "CONFIG SET maxmemory 0",
        "CONFIG SET slowlog-log-slower-than x",
        "CONFIG SET slowlog-max-len -5",
        "CONFIG SET latency-tracking maybe",
        "CONFIG SET latency-monitor-threshold 7",
        "CONFIG GET latency-monitor-threshold",
        "CONFIG SET databases 4",
        "CONFIG REWRITE",
        "CONFIG RESETSTAT",
        "CONFIG HELP",
        "SLOWLOG GET x",
        "SLOWLOG GET -2",
        "SLOWLOG GET 0",
        "SLOWLOG RESET",
        "SLOWLOG LEN",
        "SLOWLOG HELP",
        "SLOWLOG NOSUCH",
        "LATENCY LATEST",
        "LATENCY HISTORY command",
        "LATENCY HISTORY nosuch",
        "LATENCY RESET",
        "LATENCY RESET nosuch",
    ] {
        pair.same_line(line);
    }
}

#[test]
fn a_command_that_takes_long_is_an_event() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    assert_eq!(client.say("LATENCY LATEST").items(), []);
    client.say("CONFIG SET latency-monitor-threshold 1 slowlog-log-slower-than 1000");
    // More keys than can be looked up in a millisecond.
    let keys: Vec<String> = (0..200_000).map(|n| format!("{{a}}{n}")).collect();
    let words: Vec<&str> = std::iter::once("EXISTS")
        .chain(keys.iter().map(String::as_str))
        .collect();
    assert_eq!(client.call(&words), Reply::Integer(0));
    let latest = client.say("LATENCY LATEST").items();
    assert_eq!(latest[0].items()[0], Reply::bulk("command"));
    assert_eq!(client.say("LATENCY HISTORY command").items().len(), 1);
    assert!(client.say("LATENCY DOCTOR").text().contains("SLOWLOG"));
    let drawn = client.say("LATENCY GRAPH command").text();
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(lines[0].starts_with("command - high "), "{drawn}");
    assert_eq!(lines[1], "-".repeat(80), "{drawn}");
    assert_eq!((lines[5], lines[8]), ("_", "s"), "{drawn}");
    let slowest = &entries(&mut client)[0];
    assert_eq!(slowest[3].items()[0], Reply::bulk("EXISTS"));
    assert_eq!(client.say("LATENCY RESET command"), Reply::Integer(1));
    assert_eq!(client.say("LATENCY LATEST").items(), []);
}
