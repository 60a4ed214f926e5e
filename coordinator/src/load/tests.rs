//! Windows, codes and reports.

use ephesus_wire::rng::Rng;

use super::told::{HOTTEST_MAX, ROUND, ToldRange};
use super::*;

/// Of so many operations, each of 100 ns.
fn amount(ops: u64) -> Amount {
    Amount {
        ops,
        bytes_in: ops * 30,
        bytes_out: ops * 5,
        cpu_ns: ops * 100,
    }
}

fn is_near(value: f32, expected: f32, part: f32) -> bool {
    (value - expected).abs() <= expected * part
}

#[test]
fn a_steady_rate_is_told_by_all_windows_from_the_first_second_on() {
    let mut windows = Windows::default();
    assert_eq!(windows.rates(), [Rates::default(); 3]);
    for step in 1..=6_000 {
        windows.pass(&amount(1_000), 0.2);
        if [1, 5, 6_000].contains(&step) {
            for rates in windows.rates() {
                assert!(is_near(rates.ops, 5_000.0, 0.01), "{step}: {rates:?}");
                assert!(is_near(rates.cpu, 5e-4, 0.01), "{step}: {rates:?}");
            }
        }
    }
}

#[test]
fn what_is_over_is_forgotten_by_a_factor_of_e_per_window() {
    let mut windows = Windows::default();
    for _ in 0..50_000 {
        windows.pass(&amount(1_000), 0.2);
    }
    windows.pass(&Amount::default(), 60.0);
    let [second, minute, long] = windows.rates();
    assert!(second.ops < 1e-3);
    assert!(
        is_near(minute.ops, 5_000.0 * (-1.0f32).exp(), 0.02),
        "{minute:?}"
    );
    assert!(
        is_near(long.ops, 5_000.0 * (-0.1f32).exp(), 0.02),
        "{long:?}"
    );
}

#[test]
fn idle_time_may_be_passed_at_once() {
    let (mut at_once, mut stepwise) = (Windows::default(), Windows::default());
    for windows in [&mut at_once, &mut stepwise] {
        windows.pass(&amount(1_000), 0.2);
    }
    at_once.pass(&Amount::default(), 20.0);
    for _ in 0..100 {
        stepwise.pass(&Amount::default(), 0.2);
    }
    for (one, other) in at_once.rates().iter().zip(stepwise.rates()) {
        assert!(is_near(one.ops, other.ops, 0.01) || one.ops < 1e-3);
    }
}

#[test]
fn counters_that_were_set_to_0_count_from_there() {
    assert_eq!(amount(7).since(&amount(5)), amount(2));
    assert_eq!(amount(3).since(&amount(5)), amount(3));
}

#[test]
fn codes_are_as_near_as_they_say() {
    let mut rng = Rng::new(1);
    for _ in 0..10_000 {
        let value =
            (rng.below(1 << 24) + 1) as f32 * f32::from_bits((rng.below(20) as u32 + 117) << 23);
        let two = codes::of_two(codes::two(value), codes::SIZE);
        assert!(is_near(two, value, 0.004), "{value}: {two}");
        if (0.1..1e7).contains(&value) {
            let one = codes::of_one(codes::one(value, codes::OPS), codes::OPS);
            assert!(is_near(one, value, 0.0625), "{value}: {one}");
        }
    }
    for nothing in [0.0, -1.0, f32::NAN] {
        assert_eq!(codes::of_two(codes::two(nothing), codes::CPU), 0.0);
        assert_eq!(
            codes::of_one(codes::one(nothing, codes::CPU), codes::CPU),
            0.0
        );
    }
    for code in 0..=u8::MAX {
        assert_eq!(
            codes::one(codes::of_one(code, codes::CPU), codes::CPU),
            code
        );
    }
    for code in 0..=u16::MAX {
        let value = codes::of_two(code.to_le_bytes(), codes::CPU);
        assert!((0.0..=56.0).contains(&value));
    }
    assert!(codes::of_one(codes::one(f32::INFINITY, codes::SIZE), codes::SIZE).is_finite());
    let most = codes::of_one(u8::MAX, codes::OPS);
    assert_eq!(codes::of_two(codes::two(f32::INFINITY), codes::OPS), most);
}

/// The board of a node that has every partition, each of which is busy.
fn busy(shards: u16, partitions: u16) -> Board {
    let mut board = Board::new(shards, partitions, 199);
    let counted = |ops: u64| Counted {
        amount: amount(ops),
        bytes: 1 << 30,
    };
    let nothing = (0..partitions).map(|_| Some(Counted::default()));
    board.look(200, (0..shards).map(|_| Amount::default()), nothing);
    let all = (0..partitions).map(|id| Some(counted(1_000 + u64::from(id))));
    board.look(400, (0..shards).map(|_| amount(1_000_000)), all);
    board
}

#[test]
fn a_heartbeat_grows_by_2_kib_at_most_and_tells_all_partitions_within_5_s() {
    for (shards, partitions) in [(1024, 16384), (1, 16384), (16, 1024), (2, 9), (1, 1)] {
        let mut board = busy(shards, partitions);
        let (mut told, mut sized) = (vec![0; partitions.into()], vec![0; partitions.into()]);
        let mut told_shards = vec![0; shards.into()];
        for _ in 0..ROUND {
            let report = board.report();
            assert!(report.bytes() <= LOAD_BYTES_MAX, "{} bytes", report.bytes());
            let encoded = postcard::to_allocvec(&report).expect("bytes");
            assert!(encoded.len() <= 2 << 10, "{} bytes", encoded.len());
            let report: LoadReport = postcard::from_bytes(&encoded).expect("a report");
            let said = report.read().expect("a report");
            assert_eq!(said.hottest.len(), HOTTEST_MAX.min(partitions.into()));
            assert_eq!(said.hottest[0].0, partitions - 1);
            for (shard, windows) in &said.shards {
                told_shards[usize::from(*shard)] += 1;
                assert!(is_near(windows[1].ops, 5e6, 0.01), "{windows:?}");
            }
            for (id, cpu, ops) in said.rest.entries {
                told[usize::from(id)] += 1;
                let expected = 5.0 * (1_000.0 + f32::from(id));
                assert!(is_near(ops, expected, 0.07), "{id}: {ops}");
                assert!(is_near(cpu, expected * 1e-7, 0.07), "{id}: {cpu}");
            }
            for (id, traffic, bytes) in said.sizes.entries {
                sized[usize::from(id)] += 1;
                let expected = 35.0 * 5.0 * (1_000.0 + f32::from(id));
                assert!(is_near(traffic, expected, 0.07), "{id}: {traffic}");
                assert!(is_near(bytes, f32::from_bits((127 + 30) << 23), 0.07));
            }
        }
        assert!(
            told.iter().all(|times| *times >= 1),
            "{partitions} partitions"
        );
        assert!(partitions > 1_200 || sized.iter().all(|times| *times >= 1));
        assert!(shards > 100 || told_shards.iter().all(|times| *times >= 1));
    }
}

#[test]
fn sizes_and_shards_come_in_turn() {
    let mut board = busy(1024, 16384);
    let (mut sized, mut shards) = (vec![false; 16384], vec![false; 1024]);
    for _ in 0..16384 / 48 + 1 {
        let said = board.report().read().expect("a report");
        said.sizes
            .entries
            .iter()
            .for_each(|(id, ..)| sized[usize::from(*id)] = true);
        said.shards
            .iter()
            .for_each(|(id, _)| shards[usize::from(*id)] = true);
    }
    assert!(sized.iter().all(|told| *told) && shards.iter().all(|told| *told));
}

#[test]
fn partitions_that_a_node_has_not_are_not_told() {
    let mut board = Board::new(1, 64, 0);
    let has = |id: u64| id.is_multiple_of(3);
    for look in 1..=3u64 {
        let counted = |id: u64| {
            let bytes = 100;
            has(id).then_some(Counted {
                amount: amount(id * look),
                bytes,
            })
        };
        board.look(
            200 * look,
            std::iter::once(amount(look)),
            (0..64).map(counted),
        );
    }
    assert_eq!(
        board
            .hottest(2)
            .iter()
            .map(|(id, _)| *id)
            .collect::<Vec<_>>(),
        [63, 60]
    );
    for _ in 0..ROUND {
        let said = board.report().read().expect("a report");
        let ids = said.rest.entries.iter().chain(&said.sizes.entries);
        assert!(ids.map(|(id, ..)| u64::from(*id)).all(has));
    }
    // They leave, and what is left of them goes with them.
    board.look(1_000, std::iter::once(amount(9)), (0..64).map(|_| None));
    assert_eq!(board.hottest(16), []);
    assert_eq!(board.report().read().expect("a report").rest.entries, []);
}

#[test]
fn what_is_idle_cools_down_without_being_looked_at() {
    let mut board = busy(1, 4);
    for look in 3..400 {
        let counted = (0..4).map(|id| {
            Some(Counted {
                amount: amount(1_000 + id),
                bytes: 5,
            })
        });
        board.look(200 * look, std::iter::once(amount(1_000_000)), counted);
    }
    assert_eq!(board.hottest(16), []);
    let [second, minute, _] = board.shard(0).expect("a shard");
    assert!(second.ops < 1.0 && minute.ops > 1.0);
}

#[test]
fn bytes_that_are_no_report_say_nothing() {
    assert_eq!(LoadReport::default().read(), None);
    let said = busy(2, 100).report();
    let bytes = postcard::to_allocvec(&said).expect("bytes");
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            if let Ok(report) = postcard::from_bytes::<LoadReport>(&changed) {
                let _ = report.read();
            }
            if let Ok(report) = postcard::from_bytes::<LoadReport>(&bytes[..at]) {
                assert_eq!(report.read(), None);
            }
        }
    }
    let long = postcard::to_allocvec(&vec![0u8; LOAD_BYTES_MAX + 1]).expect("bytes");
    assert!(postcard::from_bytes::<LoadReport>(&long).is_err());
    let endless = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(postcard::from_bytes::<LoadReport>(&endless).is_err());
    assert_eq!(ToldRange::default().entries, []);
}
