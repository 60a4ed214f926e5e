//! `make demo-hot`: makes partitions of a cluster hot, and shows that they are found, named and moved apart by the cluster
//! itself.
#![expect(
    clippy::disallowed_methods,
    reason = "the demo measures real processes"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use ephesus_tests::uneven::{Uneven, cpu_of_shards, hottest};
use ephesus_tests::{Rng, TestCluster};

const NAMES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const PARTITIONS: u16 = 24;

/// These two are neighbours, and on one shard at first.
const HOT: [usize; 2] = [2, 3];

/// How much more often they are asked for than the others.
const HOTTER: f64 = 8.0;

/// Bytes of a value, and clients.
const LOAD: (usize, usize) = (1 << 20, 3);

/// How long the cluster may take: it wants to be calm for ten seconds, and to see a load of the last minute.
const WITHIN: Duration = Duration::from_secs(180);

/// How long shards are looked at.
const LOOKED_AT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("demo-hot"));
    let partitions = PARTITIONS.to_string();
    let flags = ["--partitions", &partitions, "--auto-rebalance=load"];
    let whole = TestCluster::started(&flags, &NAMES, 1);
    println!("three nodes serve {PARTITIONS} partitions, which the coordinators balance by load");
    let even = vec![1.0; usize::from(PARTITIONS)];
    let load = Uneven::start(&whole, &even, LOAD, &mut rng);
    show(&whole, "all are asked for alike");

    let mut weights = even;
    for hot in HOT {
        weights[hot] = HOTTER;
    }
    load.turn_to(&weights);
    let before = owners(&whole);
    let began = Instant::now();
    show(
        &whole,
        "partitions 2 and 3 are asked for eight times as often",
    );
    let named = whole.core.ask(&["partitions", "--by", "load"]);
    println!(
        "`ephesus partitions --by load` names them:\n{}",
        head(&named.out, 14)
    );
    while owners(&whole) == before {
        if began.elapsed() > WITHIN {
            println!("not moved within {WITHIN:?}");
            return ExitCode::FAILURE;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    println!(
        "after {:.0} s one of them is moved, and nobody has asked for it: they were on {before:?} and are on {:?}",
        began.elapsed().as_secs_f64(),
        owners(&whole)
    );
    std::thread::sleep(Duration::from_secs(5));
    show(&whole, "now");
    let migrations = whole.core.ask(&["migrations"]);
    println!("{}", migrations.out);
    println!("{} answers, all of them right", load.finish());
    ExitCode::SUCCESS
}

/// Where the hot partitions are.
fn owners(whole: &TestCluster) -> Vec<String> {
    let table = whole.table();
    let owner = |hot: &usize| table.get(*hot).map(|row| row.node.clone());
    HOT.iter().filter_map(owner).collect()
}

fn show(whole: &TestCluster, what: &str) {
    let cpu = cpu_of_shards(whole, LOOKED_AT);
    println!(
        "{what}; the hottest shard does {:.2} of the mean:",
        hottest(&cpu)
    );
    for (shard, us) in cpu {
        println!("  {shard:14} {:5.1}% of a CPU", us / 1e4);
    }
}

/// The first lines of a text.
fn head(text: &str, lines: usize) -> String {
    let lines = text.lines().take(lines).map(|line| format!("  {line}\n"));
    lines.collect()
}
