use ephesus_wire::Lsn;
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::rng::Rng;

use super::*;
use crate::keyspace::tests::tape::{Taped, execute};

const START_MS: u64 = 1_700_000_000_000;
const PARTITIONS: u16 = 8;

fn run(keyspace: &mut Keyspace, words: &[&str], key: &[u8]) -> Vec<u8> {
    let mut args: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    args.insert(1, key.to_vec());
    execute(keyspace, &args)
}

#[test]
fn keys_of_other_databases_are_counted_where_they_have_changed() {
    let mut rng = Rng::new(3);
    let mut taped = Taped::new(PARTITIONS, START_MS);
    let keyspace = &mut taped.keyspace;
    let step = |keyspace: &mut Keyspace, rng: &mut Rng| {
        let key = format!("k{}", rng.below(100)).into_bytes();
        let key = Database(rng.below(4) as u8).stored(&key).into_owned();
        match rng.below(19) {
            0..10 => drop(run(keyspace, &["SET", "v"], &key)),
            10..12 => drop(run(keyspace, &["SET", "v", "PX", "50"], &key)),
            12..14 => drop(run(keyspace, &["DEL"], &key)),
            14 => drop(run(keyspace, &["EXPIRE", "100"], &key)),
            15 => drop(run(keyspace, &["PERSIST"], &key)),
            16 => drop(run(keyspace, &["MOVE", "2"], &key)),
            17 => keyspace.set_now(keyspace.now_ms() + 5),
            _ => drop(run(keyspace, &["GET"], &key)),
        }
    };
    for _ in 0..3_000 {
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        match rng.below(30) {
            0 => {
                keyspace.begin_atomic(usize::MAX);
                (0..8).for_each(|_| step(keyspace, &mut rng));
                if rng.one_in(4) {
                    keyspace.flush(&mut reply);
                }
                match rng.one_in(2) {
                    true => keyspace.roll_back_atomic(),
                    false => keyspace.commit_atomic(&mut reply).expect("it fits"),
                }
            }
            1 if rng.one_in(8) => keyspace.flush(&mut reply),
            2 => while !keyspace.sweep_slice() {},
            _ => step(keyspace, &mut rng),
        }
        keyspace.remove_lapsed(true);
        keyspace.take_changed_databases();
        assert_eq!(keyspace.others.totals, keyspace.other_databases());
    }
    run(keyspace, &["SET", "v"], &Database(1).stored(b"last"));
    for id in (0..PARTITIONS).map(PartitionId) {
        assert!(!keyspace.other_databases().is_empty() || id.0 > 0);
        keyspace.drop_copy(id).expect("served");
        keyspace.take_changed_databases();
        assert_eq!(keyspace.others.totals, keyspace.other_databases());
    }
    assert!(keyspace.others.totals.is_empty());
}

/// All partitions were counted after each GET.
#[test]
fn reads_have_nothing_counted_and_writes_their_own_partition() {
    let mut taped = Taped::new(PARTITIONS, START_MS);
    let keyspace = &mut taped.keyspace;
    let key = Database(3).stored(b"a").into_owned();
    assert!(keyspace.take_changed_databases().is_some());
    run(keyspace, &["SET", "v"], &key);
    assert_eq!(keyspace.others.touched.len(), 1);
    run(keyspace, &["SET", "v"], &key);
    assert_eq!(keyspace.others.touched.len(), 1);
    assert!(keyspace.take_changed_databases().is_some());
    run(keyspace, &["GET"], &key);
    run(keyspace, &["SET", "v"], b"of database 0");
    assert_eq!(keyspace.take_changed_databases(), None);
}
