use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::super::ledger::{Ledger, STALE, WRONG};
use super::super::{Indexes, Op, Plan, Sizes, Span, Values, run};
use super::{half_and_half, listen, of, serve};

const KEYS: u64 = 100;

fn stamped(ledger: &Ledger, key: u64, version: u64) -> Vec<u8> {
    let mut value = Vec::new();
    ledger.stamp((key, version), &Values::new(Sizes::fixed(50)), &mut value);
    value
}

#[test]
fn a_read_finds_what_was_confirmed_before_it_or_something_newer() {
    let ledger = Ledger::new(1, KEYS);
    let judge = |floor, value: Option<&[u8]>| ledger.judge(3, floor, value);
    let of = |version| stamped(&ledger, 3, version);
    // Nothing is known of what was there before.
    assert_eq!(judge(0, Some(b"of somebody else")), Ok(()));
    assert_eq!(judge(0, None), Ok(()));
    assert_eq!(ledger.begin(3, false), Some(1));
    assert_eq!(ledger.begin(3, false), None, "one at a time");
    assert_eq!(judge(0, Some(&of(1))), Ok(()), "it may be there already");
    assert_eq!(judge(0, Some(&of(2))), Err(WRONG));
    let before = ledger.floor(3);
    ledger.confirm(3, 1);
    assert_eq!((before, ledger.floor(3)), (0, 1));
    assert_eq!(judge(0, None), Ok(()), "it was sent before that");
    assert_eq!(judge(1, None), Err(STALE));
    assert_eq!(ledger.begin(3, false), Some(2));
    ledger.confirm(3, 2);
    assert_eq!(judge(1, Some(&of(1))), Ok(()));
    assert_eq!(judge(2, Some(&of(1))), Err(STALE));
    assert_eq!(judge(2, Some(&of(2))), Ok(()));
    assert_eq!(judge(2, Some(&stamped(&ledger, 4, 2))), Err(WRONG));
    assert_eq!(
        judge(2, Some(&stamped(&Ledger::new(2, KEYS), 3, 9))),
        Err(STALE)
    );
    assert_eq!(judge(2, Some(b"short")), Err(WRONG));
}

#[test]
fn what_was_removed_may_be_gone_and_does_not_come_back() {
    let ledger = Ledger::new(1, KEYS);
    let judge = |floor, value: Option<&[u8]>| ledger.judge(3, floor, value);
    ledger.begin(3, false).expect("a version");
    ledger.confirm(3, 1);
    assert_eq!(ledger.begin(3, true), Some(2));
    assert_eq!(judge(1, None), Ok(()), "under way");
    assert_eq!(judge(1, Some(&stamped(&ledger, 3, 1))), Ok(()));
    ledger.confirm(3, 2);
    assert_eq!(judge(2, None), Ok(()));
    assert_eq!(judge(2, Some(&stamped(&ledger, 3, 1))), Err(STALE));
    ledger.begin(3, false).expect("a version");
    ledger.confirm(3, 3);
    assert_eq!(judge(2, None), Ok(()), "it was sent before");
    assert_eq!(judge(3, None), Err(STALE));
}

fn words(command: &str) -> Vec<String> {
    let lines = command.split("\r\n").skip(2).step_by(2);
    lines.map(str::to_owned).collect()
}

/// A store that keeps each `forgets`-th write from taking effect.
fn store(forgets: u64) -> impl Fn(&str) -> Option<String> + Clone + Send + 'static {
    let kept = Arc::new(Mutex::new((BTreeMap::<String, String>::new(), 0)));
    move |command| {
        let mut kept = kept.lock().expect("a lock");
        let (keys, writes) = &mut *kept;
        let words = words(command);
        Some(match &words[0][..] {
            "GET" => match keys.get(&words[1]) {
                Some(value) => format!("${}\r\n{value}\r\n", value.len()),
                None => "$-1\r\n".to_owned(),
            },
            "DEL" => format!(":{}\r\n", u8::from(keys.remove(&words[1]).is_some())),
            _ => {
                *writes += 1;
                if forgets == 0 || *writes % forgets != 0 {
                    keys.insert(words[1].clone(), words[2].clone());
                }
                "+OK\r\n".to_owned()
            }
        })
    }
}

fn plan(address: std::net::SocketAddr, mix: &str) -> Plan {
    let mut plan = half_and_half(address, 0);
    plan.pace.connections = 20;
    plan.pace.pipeline = 8;
    plan.pace.cpus = vec![crate::affinity::allowed().expect("CPUs")[0]; 2];
    plan.pace.count = Some(20_000);
    plan.workload.mix = mix.parse().expect("a mix");
    plan.workload.keys = Indexes::Below(20);
    plan.workload.sizes = Sizes::uniform(32, 64);
    plan.workload.ledger = Some(Arc::new(Ledger::new(1, 2 * KEYS)));
    plan
}

#[test]
fn there_is_no_false_alarm_with_writers_readers_and_removers_of_the_same_few_keys() {
    let (listener, address) = listen();
    serve(listener, store(0));
    let mix = "read=50,write=20,rmw=20,delete=10,ttl=5,insert=1";
    let outcome = run(&plan(address, mix), Span::default()).expect("run");
    let outcome = outcome.flawless().expect("no errors");
    assert!(of(&outcome, Op::Rmw).count() > 500 && of(&outcome, Op::Delete).count() > 100);
}

#[test]
fn a_store_that_forgets_writes_is_found_out() {
    let (listener, address) = listen();
    serve(listener, store(100));
    let outcome = run(&plan(address, "read=50,write=50"), Span::default()).expect("run");
    let outcome = outcome.complete().expect("it goes on");
    assert!(
        outcome.run.errors["STALE-VALUE"] > 0,
        "{:?}",
        outcome.run.errors
    );
    assert!(
        outcome
            .complaint()
            .expect("a complaint")
            .contains("STALE-VALUE of key:")
    );
}

#[test]
fn a_store_that_mixes_keys_up_is_found_out() {
    let (listener, address) = listen();
    let right = store(0);
    serve(listener, move |command| {
        right(&command.replace("key:000000000003", "key:000000000004"))
    });
    let outcome = run(&plan(address, "read=50,write=50"), Span::default()).expect("run");
    assert!(
        outcome.run.errors["WRONG-VALUE"] > 0,
        "{:?}",
        outcome.run.errors
    );
}
