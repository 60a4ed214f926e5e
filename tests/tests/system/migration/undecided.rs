//! Coordinators that are lost while moves wait for their decision: what is held is answered, what is refused
//! was not done, and moves go on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ephesus_tests::roaming::Roaming;
use ephesus_tests::writer_pool::Tolerance;
use ephesus_tests::{Reply, TestCluster};
use serde_json::Value;

use super::bed::{Bed, MANY};
use super::in_state;
use crate::migration::shapes::tags;

/// How soon some of the moves under way waits for a decision that nobody makes.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// How long a command is held at most, and how much later its refusal may come on a machine that others
/// use as well.
const HELD_MAX: Duration = Duration::from_secs(1);
const LATE_MAX: Duration = Duration::from_millis(700);

/// It is shown by so many commands.
const REFUSED: usize = 4;

/// How soon another leads and decides.
const LEADS_WITHIN: Duration = Duration::from_secs(5);

/// Leases last for half of it: nodes serve without coordinators.
const LONG_LEASES: [&str; 2] = ["--heartbeat-timeout", "60000"];

#[test]
fn no_writer_notices_a_leader_that_dies_while_commands_wait_for_its_decision() {
    let what = "leader lost during a hold";
    let mut bed = Bed::start(what, MANY, &LONG_LEASES, 1, Tolerance::Patient);
    bed.whole.until_settled();
    bed.begin();
    let leader = bed.whole.core.leader();
    let follower = leader % 3 + 1;
    // What is confirmed from now on waits for whoever leads next.
    for lost in [leader, follower] {
        bed.whole.core.coordinator(lost).signal(libc::SIGSTOP);
    }
    bed.whole.within(HELD_WITHIN, "commands are held", |whole| {
        whole.nodes[0].client().info("held_commands") > 0
    });
    bed.whole.core.coordinator(leader).kill();
    bed.whole.core.coordinator(follower).signal(libc::SIGCONT);
    bed.whole.within(LEADS_WITHIN, "another leads", |whole| {
        whole
            .core
            .try_status()
            .is_some_and(|status| status["leader"] != leader)
    });
    bed.goes_on(1_000, LEADS_WITHIN);
    bed.until_shared();
    let rows = bed.migrations();
    let held_us = rows.iter().filter_map(|row| row["hold_us"].as_u64());
    let held = Duration::from_micros(held_us.max().unwrap_or_default());
    let errors = bed.errors();
    eprintln!("commands were held for at most {held:?}");
    assert!(errors == 0 || held >= HELD_MAX, "{errors} errors: {rows:?}");
    bed.whole.core.coordinator(leader).start();
    bed.finish();
}

/// A tag for each of these partitions.
fn tags_of(whole: &TestCluster, partitions: &[u16]) -> Vec<String> {
    let table = whole.table();
    let rows = partitions.iter().map(|at| &table[usize::from(*at)]);
    rows.map(|row| tags(row).next().expect("a tag")).collect()
}

/// A counter, and what was answered to those who asked for it to grow.
#[derive(Debug)]
struct Probe {
    key: String,
    done: i64,
    refused: u64,
}

impl Probe {
    fn new(tag: &str) -> Self {
        Self {
            key: format!("{{{tag}}}:probe"),
            done: 0,
            refused: 0,
        }
    }

    /// Asks for one more; a refusal comes when it has been held for as long as it may.
    fn grow(&mut self, client: &mut Roaming) {
        let began = Instant::now();
        let reply = client.call(&["INCR", &self.key]);
        let waited = began.elapsed();
        match &reply {
            Reply::Integer(count) => {
                self.done += 1;
                assert_eq!(
                    *count, self.done,
                    "{}: something refused was done",
                    self.key
                );
            }
            reply => {
                let text = reply.error().expect("a number or an error");
                assert!(text.starts_with("CLUSTERDOWN "), "{text}");
                let due = HELD_MAX - Duration::from_millis(100)..HELD_MAX + LATE_MAX;
                assert!(due.contains(&waited), "refused after {waited:?}: {text}");
                self.refused += 1;
            }
        }
        assert!(waited < HELD_MAX + LATE_MAX, "{waited:?}: {reply:?}");
    }
}

#[test]
fn without_a_majority_of_coordinators_what_is_held_is_refused_undone_until_they_go_on() {
    let bed = Bed::start(
        "no majority during moves",
        MANY,
        &LONG_LEASES,
        1,
        Tolerance::Patient,
    );
    bed.whole.until_settled();
    bed.begin();
    let rows = bed.migrations();
    let partitions = |rows: &[Value]| -> Vec<u16> {
        let numbers = rows.iter().filter_map(|row| row["partition"].as_u64());
        numbers.map(|number| number as u16).collect()
    };
    let all = partitions(&rows);
    let stays = (0..).find(|partition| !all.contains(partition));
    let stays = tags_of(&bed.whole, &[stays.expect("half of them stay")]);
    let mut at_rest = Probe::new(&stays[0]);
    let copying = rows.into_iter().filter(|row| row["state"] == "copying");
    let copying = partitions(&copying.collect::<Vec<_>>());
    let tags = tags_of(&bed.whole, &copying);
    let mut probes: Vec<Probe> = tags.iter().map(|tag| Probe::new(tag)).collect();
    let mut client = bed.whole.client();
    let leader = bed.whole.core.leader();
    let lost = [leader, leader % 3 + 1];
    let signal = |signal: i32| {
        let all = bed.whole.core.coordinators.iter();
        let lost = all.filter(|one| lost.contains(&one.id));
        lost.for_each(|one| one.signal(signal));
    };
    signal(libc::SIGSTOP);
    let began = Instant::now();
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for probe in &mut probes {
            let (mut client, refused) = (bed.whole.client(), &refused);
            scope.spawn(move || {
                while refused.load(Ordering::Relaxed) < REFUSED && began.elapsed() < HELD_WITHIN {
                    probe.grow(&mut client);
                    refused.fetch_add(probe.refused as usize, Ordering::Relaxed);
                    sleep(Duration::from_millis(5));
                }
            });
        }
        while refused.load(Ordering::Relaxed) < REFUSED && began.elapsed() < HELD_WITHIN {
            at_rest.grow(&mut client);
        }
    });
    if refused.load(Ordering::Relaxed) < REFUSED {
        signal(libc::SIGCONT);
        bed.until_shared();
        panic!("nothing was held: {:#?}", bed.migrations());
    }
    assert_eq!(at_rest.refused, 0, "nothing that does not move is held");
    signal(libc::SIGCONT);
    let began = Instant::now();
    for probe in &mut probes {
        let done = probe.done;
        while probe.done == done {
            probe.grow(&mut client);
            assert!(began.elapsed() < LEADS_WITHIN, "{} is held", probe.key);
        }
    }
    bed.until_shared();
    assert_eq!(in_state(&bed.whole, "copying"), 0);
    probes.push(at_rest);
    for probe in &mut probes {
        probe.grow(&mut client);
        let refused = probe.refused;
        eprintln!("{}: {} done, {refused} refused", probe.key, probe.done);
        assert_eq!(client.call(&["DEL", &probe.key]), Reply::Integer(1));
    }
    assert_eq!(bed.whole.nodes[0].client().info("held_commands"), 0);
    bed.finish();
}
