use std::io::Write;
use std::sync::Arc;

use ephesus_wire::rng::Rng;

use super::super::keys::{Counters, Draw, Zipfian, zeta};
use super::super::{Distribution, Indexes, Mix, Op, Sizes, Values};

const DRAWS: u64 = 400_000;

fn draws(distribution: Distribution, keys: u64) -> Vec<u64> {
    let mut random = Rng::new(7);
    let mut draw = Draw::new(Indexes::Below(keys), distribution, Arc::default());
    let mut found = vec![0; keys as usize];
    for _ in 0..DRAWS {
        found[draw.draw(&mut random).expect("a key") as usize] += 1;
    }
    found
}

/// As close as chance lets it be, by four standard deviations.
fn assert_share(found: u64, expected: f64) {
    let (mean, draws) = (expected * DRAWS as f64, DRAWS as f64);
    let deviation = (draws * expected * (1.0 - expected)).sqrt();
    let differs = (found as f64 - mean).abs();
    assert!(differs < 4.0 * deviation + 1.0, "{found} for {mean}");
}

#[test]
fn zeta_is_the_sum_it_stands_for() {
    for n in [1_u64, 2, 999, 1000, 1001, 1_000_000] {
        let sum: f64 = (1..=n).map(|i| (i as f64).powf(-0.99)).sum();
        assert!(
            (zeta(n) - sum).abs() < 1e-9 * sum,
            "{n}: {} for {sum}",
            zeta(n)
        );
    }
    let mut grown = Zipfian::new(10);
    [11, 400, 1500]
        .into_iter()
        .for_each(|ranks| grown.grow(ranks));
    let (found, whole) = (format!("{grown:.9?}"), Zipfian::new(1500));
    assert_eq!(found, format!("{whole:.9?}"));
    // YCSB's own constant.
    assert!((zeta(10_000_000_000) - 26.469_028_201_783_02).abs() < 1e-7);
}

#[test]
fn zipfian_ranks_are_as_frequent_as_the_formula_says() {
    const RANKS: u64 = 10_000;
    let (zipfian, mut random) = (Zipfian::new(RANKS), Rng::new(1));
    let mut found = vec![0; RANKS as usize];
    for _ in 0..DRAWS {
        found[zipfian.draw(&mut random) as usize] += 1;
    }
    assert_share(found[0], 1.0 / zeta(RANKS));
    assert_share(found[1], 0.5_f64.powf(0.99) / zeta(RANKS));
    for first in [10, 100, 1000] {
        let share = found[..first].iter().sum::<u64>() as f64 / DRAWS as f64;
        let expected = zeta(first as u64) / zeta(RANKS);
        assert!(
            (share - expected).abs() < 0.02,
            "first {first}: {share} for {expected}"
        );
    }
}

#[test]
fn scrambled_zipfian_has_its_popular_keys_anywhere() {
    let found = draws(Distribution::Zipfian, 1000);
    let mut ranked: Vec<(u64, usize)> = found.iter().copied().zip(0..).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let share = ranked[0].0 as f64 / DRAWS as f64;
    // That of rank 0, and a thousandth of what else hashes to the same key.
    assert!(
        (share - 1.0 / zeta(10_000_000_000)).abs() < 0.005,
        "{share}"
    );
    let places: Vec<usize> = ranked[..10].iter().map(|(_, place)| *place).collect();
    let spread = places.iter().max().expect("ten") - places.iter().min().expect("ten");
    assert!(spread > 300, "{places:?}");
}

#[test]
fn latest_keys_are_the_most_popular_ones_and_inserts_are_latest() {
    let found = draws(Distribution::Latest, 1000);
    assert_share(found[999], 1.0 / zeta(1000));
    assert!(found[999] > found[998] && found[998] > found[900] && found[900] > found[0]);
    let (counters, mut random) = (Arc::<Counters>::default(), Rng::new(3));
    let mut draw = Draw::new(Indexes::Below(10), Distribution::Latest, counters);
    assert_eq!([draw.claim(), draw.claim()], [10, 11]);
    draw.inserted();
    let mut drawn = (0..1000).map(|_| draw.draw(&mut random).expect("a key"));
    assert!(drawn.all(|key| key <= 10), "the other one is not there yet");
}

#[test]
fn hotspot_uniform_and_sequential_have_their_shares() {
    let found = draws(Distribution::Hotspot, 1000);
    assert_share(found[..200].iter().sum(), 0.8);
    assert_share(found[7], 0.8 / 200.0);
    assert_share(found[700], 0.2 / 800.0);
    assert_share(draws(Distribution::Uniform, 1000)[500], 0.001);
    let found = draws(Distribution::Sequential, 1000);
    assert!(found.iter().all(|count| *count == DRAWS / 1000));
    assert_eq!(draws(Distribution::Hotspot, 1), [DRAWS]);
}

#[test]
fn once_is_once_among_all_executors() {
    let counters = Arc::<Counters>::default();
    let indexes = Indexes::These([5, 6, 9].into());
    let new = || Draw::new(indexes.clone(), Distribution::Once, Arc::clone(&counters));
    let (mut one, mut other, mut random) = (new(), new(), Rng::new(1));
    let drawn = [&mut one, &mut other].map(|draw| draw.draw(&mut random));
    assert_eq!(drawn, [Some(5), Some(6)]);
    assert_eq!(
        [one.draw(&mut random), other.draw(&mut random)],
        [Some(9), None]
    );
}

#[test]
fn mixes_have_their_shares_and_say_what_is_wrong() {
    let mix: Mix = "read=95,write=4,delete=1".parse().expect("a mix");
    let mut random = Rng::new(9);
    let drawn: Vec<Op> = (0..DRAWS).map(|_| mix.draw(&mut random)).collect();
    let count = |op| drawn.iter().filter(|drawn| **drawn == op).count() as u64;
    assert_share(count(Op::Read), 0.95);
    assert_share(count(Op::Delete), 0.01);
    assert_eq!(count(Op::Count), 0);
    assert_eq!(mix.to_string(), "read=95,write=4,delete=1");
    for wrong in ["", "read", "read=x", "reads=1", "read=0", "read=1000001"] {
        assert!(wrong.parse::<Mix>().is_err(), "{wrong}");
    }
}

#[test]
fn sizes_are_fixed_uniform_or_of_a_histogram() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "10 1\n\n200\t3").expect("written");
    let sizes = |text: &str| {
        let values = Values::new(text.parse().expect("sizes"));
        let lengths = (0..DRAWS).map(|key| values.get(key, 1).len());
        lengths.collect::<Vec<_>>()
    };
    let count = |lengths: &[usize], wanted: usize| {
        lengths.iter().filter(|length| **length == wanted).count() as u64
    };
    assert!(sizes("100").iter().all(|length| *length == 100));
    let uniform = sizes("10-19");
    assert_share(count(&uniform, 10), 0.1);
    assert_share(count(&uniform, 19), 0.1);
    let weighted = sizes(&format!("@{}", file.path().display()));
    assert_share(count(&weighted, 10), 0.25);
    assert_share(count(&weighted, 200), 0.75);
    for wrong in ["", "0", "9-8", "1-", "x", "99999999", "@/nowhere"] {
        assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
    }
}

#[test]
fn values_are_stable_and_differ() {
    let values = Values::new(Sizes::fixed(100));
    assert_eq!(values.get(5, 0), Values::new(Sizes::fixed(100)).get(5, 0));
    assert_ne!(values.get(5, 0), values.get(6, 0));
    assert_ne!(values.get(5, 0), values.get(5, 1));
    assert!(values.pool.iter().all(u8::is_ascii_graphic));
}
