//! The bounds of the sketch against exact counts, and keys that are hot for a while.

use std::collections::BTreeMap;

use ephesus_wire::Database;

use super::*;

/// A key of 10,000 by a zipfian distribution with exponent 0.99: of a uniform draw, by the sums of all.
struct Zipfian(Vec<f64>);

impl Zipfian {
    fn new(keys: u64) -> Zipfian {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        });
        Zipfian(sums.collect())
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let all = self.0[self.0.len() - 1];
        let at = rng.below(1 << 52) as f64 / (1u64 << 52) as f64 * all;
        self.0.partition_point(|sum| *sum <= at) as u64
    }
}

fn hash(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn counts_are_within_their_bounds_of_the_exact_ones() {
    let (zipfian, mut rng) = (Zipfian::new(10_000), Rng::new(1));
    for counters in [16, 128, 1_000] {
        let (mut sketch, mut exact) = (Sketch::new(counters), BTreeMap::<u64, u64>::new());
        for _ in 0..50_000 {
            let key = zipfian.draw(&mut rng);
            *exact.entry(key).or_default() += 1;
            sketch.add(hash(key), &key.to_le_bytes(), 1);
        }
        assert_eq!(sketch.total(), 50_000);
        let bound = sketch.total() / counters as u64;
        for (key, count) in &exact {
            let least = sketch.least(hash(*key));
            assert!(least <= *count, "{key}: {least} of {count}");
            if *count > bound {
                assert!(least > 0, "{key} has {count} and no counter");
                assert!(*count - least <= bound, "{key}: {least} of {count}");
            }
        }
        let mut ranked: Vec<(u64, u64)> = exact.iter().map(|(key, n)| (*n, *key)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        let hottest: Vec<Vec<u8>> = sketch
            .top(4)
            .iter()
            .map(|(key, _)| key.name.to_vec())
            .collect();
        assert!(
            hottest.contains(&ranked[0].1.to_le_bytes().to_vec()),
            "{counters}"
        );
    }
}

#[test]
fn weights_count_as_so_many() {
    let mut sketch = Sketch::new(2);
    sketch.add(1, b"a", 500);
    sketch.add(2, b"b", 20);
    sketch.add(1, b"a", 1);
    sketch.add(3, b"c", 0);
    assert_eq!((sketch.total(), sketch.least(3)), (521, 0));
    sketch.add(3, b"c", 7);
    assert_eq!(
        (sketch.least(1), sketch.least(2), sketch.least(3)),
        (501, 0, 7)
    );
    let top: Vec<(&[u8], u64)> = sketch
        .top(9)
        .iter()
        .map(|(key, n)| (&*key.name, *n))
        .collect();
    assert_eq!(top, [(&b"a"[..], 501), (b"c", 7)]);
    sketch.halve();
    assert_eq!((sketch.least(1), sketch.total()), (250, 264));
}

#[test]
fn what_is_halved_stays_within_its_bounds_and_is_forgotten() {
    let mut rng = Rng::new(2);
    let mut sketch = Sketch::new(8);
    let mut exact = [0.0; 32];
    for _ in 0..200 {
        for _ in 0..50 {
            let key = rng.below(32).min(rng.below(32));
            exact[key as usize] += 1.0;
            sketch.add(hash(key), b"", 1);
        }
        sketch.halve();
        exact.iter_mut().for_each(|count| *count /= 2.0);
        for (key, count) in (0..).zip(exact) {
            assert!(sketch.least(hash(key)) as f64 <= count + 1.0);
        }
    }
    for _ in 0..64 {
        sketch.halve();
    }
    assert!(sketch.top(8).is_empty());
}

#[test]
fn the_hottest_keys_are_those_of_now() {
    let mut hot = HotKeys::new(3);
    let uses = |hot: &mut HotKeys, key: u64, seconds: u64| {
        for _ in 0..seconds {
            for other in 0..10_000u64 {
                // Every second use is of that key.
                let used = if other % 2 == 0 { key } else { 1_000 + other };
                if hot.is_due() {
                    hot.count(hash(used), &used.to_le_bytes());
                }
            }
            hot.pass(Duration::from_secs(1));
        }
    };
    uses(&mut hot, 7, 20);
    let hottest = hot.hottest(3);
    assert_eq!(*hottest[0].key.name, 7u64.to_le_bytes());
    assert!(
        (3_500.0..6_500.0).contains(&hottest[0].per_second),
        "{hottest:?}"
    );
    assert!((0.4..0.6).contains(&hottest[0].share), "{hottest:?}");
    assert!(hot.frequency(hash(7)) > 100 && hot.frequency(hash(5)) == 0);
    uses(&mut hot, 8, 60);
    assert_eq!(*hot.hottest(1)[0].key.name, 8u64.to_le_bytes());
    assert!(hot.frequency(hash(7)) < hot.frequency(hash(8)));
    hot.pass(Duration::from_secs(1_000_000));
    assert_eq!(hot.hottest(3), []);
    assert_eq!(hot.frequency(hash(8)), 0);
}

#[test]
fn rates_are_those_of_now_however_idle_a_shard_was() {
    let mut hot = HotKeys::new(4);
    for round in 0..20 {
        // Many keys and then idleness: what remains of their counters must not keep the time of it.
        for key in 0..50_000 {
            if hot.is_due() {
                hot.count(hash(key), b"cold");
            }
        }
        hot.pass(Duration::from_secs(200));
        hot.pass(Duration::from_millis(500 * round));
        for _ in 0..100_000 {
            if hot.is_due() {
                hot.count(hash(1 << 40), b"hot");
            }
        }
        hot.pass(Duration::from_secs(1));
        let hottest = hot.hottest(1);
        assert!(
            (90_000.0..110_000.0).contains(&hottest[0].per_second) && hottest[0].share > 0.99,
            "{round}: {hottest:?}"
        );
    }
}

#[test]
fn long_keys_are_kept_by_their_beginning() {
    let mut sketch = Sketch::new(4);
    let long = vec![b'x'; 60_000];
    sketch.add(1, &long, 1);
    sketch.add(2, &long[..128], 1);
    let top = sketch.top(2);
    assert_eq!((top[0].0.len, top[0].0.name.len()), (60_000, 128));
    assert_eq!((top[1].0.len, top[1].0.name.len()), (128, 128));
    let mut sketch = Sketch::new(4);
    for (first, kept) in [(0, 126), (1, 127), (2, 128)] {
        let text = "x".repeat(first) + &"\u{30ad}".repeat(60);
        sketch.add(first as u64, text.as_bytes(), 1);
        let text = text.get(..kept).expect("a character's end");
        assert_eq!(*sketch.top(4)[first].0.name, *text.as_bytes());
    }
    sketch.add(9, &[0x80; 200], 1);
    assert_eq!(*sketch.top(4)[3].0.name, [0x80; 128]);
}

#[test]
fn keys_of_other_databases_are_kept_as_long_as_clients_name_them() {
    let mut sketch = Sketch::new(4);
    let stored = Database(1).stored(&[b'x'; 128]).into_owned();
    sketch.add(1, &stored, 1);
    let longer = [&stored[..], b"y"].concat();
    sketch.add(2, &longer, 1);
    let kept: Vec<_> = sketch.top(2).iter().map(|(key, _)| &key.name[..]).collect();
    assert_eq!(kept, [&stored[..], &stored]);
}
