//! Commands, and what each of them does to a shard's keys.

use ephesus_wire::resp::reply::{self, Protocol};

use super::history::{Effect, Keys, Value, is_live};
use ephesus_wire::rng::Rng;

/// A command on keys of one shard.
pub(super) struct Command {
    pub(super) args: Vec<Vec<u8>>,
    pub(super) effect: Effect,
    /// The keys whose state its reply tells something of.
    pub(super) looked_at: Vec<Vec<u8>>,
    /// The reply, where it is easily known.
    pub(super) reply: Option<Vec<u8>>,
}

/// The name of the `n`th key; every fifth one is a counter.
pub(super) fn key(n: u64) -> Vec<u8> {
    let kind = if n.is_multiple_of(5) {
        "counter"
    } else {
        "key"
    };
    format!("{kind}:{n}").into_bytes()
}

fn is_counter(key: &[u8]) -> bool {
    key.starts_with(b"counter")
}

/// A value that is written only once.
fn value(key: &[u8], rng: &mut Rng, unique: &mut u64) -> Vec<u8> {
    *unique += 1;
    if is_counter(key) {
        return unique.to_string().into_bytes();
    }
    let mut value = format!("v{unique}.").into_bytes();
    value.resize(value.len() + rng.below(220) as usize, b'.');
    value
}

impl Command {
    pub(super) fn random(
        keys: &[Vec<u8>],
        now: &Keys,
        now_ms: u64,
        rng: &mut Rng,
        unique: &mut u64,
    ) -> Command {
        let key = rng.pick(keys).clone();
        let live = |key: &Vec<u8>| now.get(key).filter(|(_, at)| is_live(*at, now_ms)).cloned();
        let text = |word: &str| word.as_bytes().to_vec();
        match rng.below(24) {
            0..=5 => {
                let new = value(&key, rng, unique);
                Command {
                    args: vec![text("SET"), key.clone(), new.clone()],
                    effect: Effect::Keys(vec![(key.clone(), Some((new, 0)))]),
                    looked_at: vec![key],
                    reply: Some(reply::OK.to_vec()),
                }
            }
            6 => {
                let new = value(&key, rng, unique);
                let ms = 1 + rng.below(60);
                let at = now_ms + ms;
                let ms = ms.to_string().into_bytes();
                Command {
                    args: vec![text("SET"), key.clone(), new.clone(), text("PX"), ms],
                    effect: Effect::Keys(vec![(key.clone(), Some((new, at)))]),
                    looked_at: vec![key],
                    reply: Some(reply::OK.to_vec()),
                }
            }
            7..=9 => {
                let mut args = vec![text("MSET")];
                let mut effects = Vec::new();
                for _ in 0..2 + rng.below(8) {
                    let key = rng.pick(keys).clone();
                    let new = value(&key, rng, unique);
                    args.extend([key.clone(), new.clone()]);
                    effects.push((key, Some((new, 0))));
                }
                Command {
                    args,
                    looked_at: Vec::new(),
                    effect: Effect::Keys(effects),
                    reply: Some(reply::OK.to_vec()),
                }
            }
            10..=12 => {
                let chosen = [key, rng.pick(keys).clone(), rng.pick(keys).clone()];
                let mut args = vec![text("DEL")];
                args.extend(chosen.clone());
                let mut gone: Vec<_> = chosen.iter().filter(|k| live(k).is_some()).collect();
                gone.sort();
                gone.dedup();
                let mut expected = Vec::new();
                reply::integer(&mut expected, gone.len() as i64);
                let effects: Vec<_> = gone.into_iter().map(|k| (k.clone(), None)).collect();
                Command {
                    args,
                    effect: some(effects),
                    looked_at: chosen.to_vec(),
                    reply: Some(expected),
                }
            }
            13 | 14 => {
                let same_kind = |to: &&Vec<u8>| is_counter(to) == is_counter(&key);
                let to = keys.iter().filter(same_kind).nth(rng.below(20) as usize);
                let to = to.unwrap_or(&key).clone();
                let effects = match live(&key) {
                    Some(value) if to != key => {
                        vec![(key.clone(), None), (to.clone(), Some(value))]
                    }
                    _ => Vec::new(),
                };
                Command {
                    args: vec![text("RENAME"), key.clone(), to.clone()],
                    effect: some(effects),
                    looked_at: vec![key, to],
                    reply: None,
                }
            }
            15 | 16 => {
                let counters: Vec<_> = keys.iter().filter(|k| is_counter(k)).collect();
                let key = counters
                    .get(rng.below(4) as usize)
                    .map_or(&key, |k| *k)
                    .clone();
                let (old, at) = live(&key).unwrap_or((b"0".to_vec(), 0));
                let number: Option<i64> = String::from_utf8_lossy(&old).parse().ok();
                let effects = number.map(|n| {
                    let new = (n + 1).to_string().into_bytes();
                    (key.clone(), Some((new, at)))
                });
                Command {
                    args: vec![text("INCR"), key.clone()],
                    effect: some(effects.into_iter().collect()),
                    looked_at: vec![key],
                    reply: None,
                }
            }
            17 => {
                let ms = 1 + rng.below(60);
                let found = live(&key);
                let new = found.map(|(v, _)| (key.clone(), Some((v, now_ms + ms))));
                Command {
                    args: vec![text("PEXPIRE"), key.clone(), ms.to_string().into_bytes()],
                    effect: some(new.into_iter().collect()),
                    looked_at: vec![key],
                    reply: None,
                }
            }
            18 => {
                let found = live(&key).filter(|(_, at)| *at != 0);
                let new = found.map(|(v, _)| (key.clone(), Some((v, 0))));
                Command {
                    args: vec![text("PERSIST"), key.clone()],
                    effect: some(new.into_iter().collect()),
                    looked_at: vec![key],
                    reply: None,
                }
            }
            _ => {
                let mut expected = Vec::new();
                match live(&key) {
                    Some((value, _)) => reply::bulk(&mut expected, &value),
                    None => reply::null(&mut expected, Protocol::Resp2),
                }
                Command {
                    args: vec![text("GET"), key.clone()],
                    effect: Effect::None,
                    looked_at: vec![key],
                    reply: Some(expected),
                }
            }
        }
    }
}

fn some(effects: Vec<(Vec<u8>, Option<Value>)>) -> Effect {
    if effects.is_empty() {
        Effect::None
    } else {
        Effect::Keys(effects)
    }
}
