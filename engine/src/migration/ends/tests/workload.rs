//! Seeded commands for one partition.

use ephesus_wire::rng::Rng;

pub(crate) type Args = Vec<Vec<u8>>;

pub(crate) fn words(line: &str) -> Args {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// A value of mostly a few bytes, at times none, a block's size or several blocks'.
fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(200) {
        0..20 => 0,
        20..170 => 1 + rng.below(60),
        170..195 => rng.below(1_500),
        195..198 => 3_900 + rng.below(400),
        198 => rng.below(30_000),
        _ => 60_000 + rng.below(40_000),
    };
    let start = rng.draw();
    (0..len).map(|at| (start + at) as u8).collect()
}

/// The next command on the keys `k0` to `k{keys-1}`.
pub(crate) fn command(rng: &mut Rng, keys: u64) -> Args {
    let key = |rng: &mut Rng| format!("k{}", rng.below(keys)).into_bytes();
    let number = |n: u64| n.to_string().into_bytes();
    let name = |name: &str| name.as_bytes().to_vec();
    match rng.below(32) {
        0..9 => vec![name("SET"), key(rng), value(rng)],
        9..12 => {
            let ms = number(1 + rng.below(3_000));
            vec![name("SET"), key(rng), value(rng), name("PX"), ms]
        }
        12..15 => {
            let pairs = 1 + rng.below(5);
            let pairs = (0..pairs).flat_map(|_| [key(rng), value(rng)]);
            [name("MSET")].into_iter().chain(pairs).collect()
        }
        15..20 => {
            let count = 1 + rng.below(3);
            let some = (0..count).map(|_| key(rng));
            [name("DEL")].into_iter().chain(some).collect()
        }
        20..23 => vec![name("PEXPIRE"), key(rng), number(1 + rng.below(4_000))],
        23 => vec![name("PERSIST"), key(rng)],
        24..26 => vec![name("INCR"), format!("n{}", rng.below(20)).into_bytes()],
        26..28 => vec![name("RENAME"), key(rng), key(rng)],
        28 => vec![name("APPEND"), key(rng), b"+".to_vec()],
        29 => vec![name("GETDEL"), key(rng)],
        _ => vec![name("GET"), key(rng)],
    }
}
