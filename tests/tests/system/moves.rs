//! `ephesus rebalance`, `move`, `drain` and `migrations`, as operators see them: real coordinators,
//! and nodes of which there is only the membership, so that moves go as each test wants.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ephesus_coordinator::migration::{Confirmation, Migration, Phase, Progress, Step};
use ephesus_tests::coordinator::Told;
use ephesus_tests::process::Process;
use ephesus_tests::{Core, paths};
use ephesus_wire::MigrationId;
use serde_json::Value;

use crate::coordinators::Host;

/// Nine partitions, of which neighbours belong to different nodes.
const NINE: [&str; 6] = [
    "--partitions",
    "9",
    "--assignment",
    "round-robin",
    "--min-nodes",
    "3",
];

const NAMES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// What becomes of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Succeeds,
    Stalls,
    Fails,
}

/// Keys that every moved partition has.
const KEYS: u64 = 1_000;

/// A cluster whose nodes carry moves out on paper.
struct Stage {
    core: Core,
    hosts: Mutex<Vec<Host>>,
    course: Mutex<Course>,
    is_over: AtomicBool,
}

impl Stage {
    fn set(course: Course, play: impl FnOnce(&Stage)) {
        let core = Core::founded(3, &NINE);
        let hosts = NAMES.iter().zip(1..);
        let hosts = hosts.map(|(name, n)| Host::start(&core, n, name)).collect();
        let stage = Stage {
            core,
            hosts: Mutex::new(hosts),
            course: Mutex::new(course),
            is_over: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            scope.spawn(|| stage.act());
            // Also when the play fails.
            let _curtain = Curtain(&stage.is_over);
            stage.core.until("it is healthy", |core| {
                core.ask(&["status"]).code == Some(0)
            });
            play(&stage);
        });
    }

    fn act(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let course = *self.course.lock().expect("the course");
            for host in self.hosts.lock().expect("the hosts").iter() {
                host.host();
                carry_out(host, course);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn goes(&self, course: Course) {
        *self.course.lock().expect("the course") = course;
    }

    /// Another node, once it is live.
    fn joins(&self, n: u8, name: &str) {
        let host = Host::start(&self.core, n, name);
        self.hosts.lock().expect("the hosts").push(host);
        self.core.until("it is live", |core| {
            let rows = core.json("nodes");
            let mut rows = rows.as_array().expect("rows").iter();
            rows.any(|row| row["name"] == name && row["status"] == "live")
        });
    }

    /// Partitions by owner.
    fn owned(&self) -> BTreeMap<String, usize> {
        let mut owned = BTreeMap::new();
        for row in self.core.json("partitions").as_array().expect("rows") {
            let owner = row["node"].as_str().expect("an owner");
            *owned.entry(owner.to_owned()).or_default() += 1;
        }
        owned
    }

    fn migrations(&self) -> Value {
        self.core.json("migrations")
    }

    fn ids(&self, state: &str) -> Vec<u64> {
        let report = self.migrations();
        let rows = report["migrations"].as_array().expect("rows").iter();
        let rows = rows.filter(|row| row["state"] == state);
        rows.map(|row| row["id"].as_u64().expect("an id")).collect()
    }
}

/// Ends the act when it is dropped.
struct Curtain<'a>(&'a AtomicBool);

impl Drop for Curtain<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a source does with its migrations.
fn carry_out(host: &Host, course: Course) {
    let Some(view) = host.membership.view() else {
        return;
    };
    let active = view.migrations.active.iter();
    let own = active.filter(|(_, migration)| migration.source.node == host.id);
    let step = |id: MigrationId, migration: &Migration| match (course, &migration.phase) {
        (Course::Stalls, _) => None,
        (_, Phase::Planned) => Some(Step::Begin),
        (Course::Succeeds, _) => {
            let (count, digest) = (KEYS, [1, 2]);
            Some(Step::Commit(vec![(id, Confirmation { count, digest })]))
        }
        (Course::Fails, _) => Some(Step::Abort("the disk is full".to_owned())),
    };
    let progress = own.clone().map(|(id, _)| {
        let progress = Progress {
            keys: KEYS / 2,
            bytes: 1 << 20,
            hold_us: 1_250,
            last_error: String::new(),
        };
        (*id, progress)
    });
    host.membership.set_migration_progress(progress.collect());
    let steps = own.filter_map(|(id, migration)| Some((*id, step(*id, migration)?)));
    host.membership.set_migration_steps(steps.collect());
}

fn assert_says(told: &Told, words: &[&str]) {
    for word in words {
        assert!(told.out.contains(word), "no {word:?} in {told:?}");
    }
}

fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let counts = counts.iter();
    counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

#[test]
fn nine_partitions_over_three_nodes_are_shared_with_a_fourth_and_taken_back() {
    Stage::set(Course::Succeeds, |stage| {
        let told = stage.core.ask(&["rebalance", "--dry-run"]);
        told.assert(0, &[]);
        assert_eq!(told.out, "nothing has to move\n");

        stage.joins(4, "ephesus");
        let told = stage.core.ask(&["rebalance", "--dry-run"]);
        told.assert(0, &[]);
        let expected = "\
PARTITIONS  FROM         TO         MIGRATIONS
7           byzantium/0  ephesus/0  -
8           cyrene/0     ephesus/0  -
2 moves would be planned
";
        assert_eq!(told.out, expected);
        assert_eq!(stage.ids("planned"), [0; 0], "it was only shown");

        let told = stage.core.ask(&["rebalance", "--wait", "--limit", "50"]);
        told.assert(0, &["2 of 2 moves done, 0 left", "MB/s", "keys/s"]);
        assert_says(&told, &["2 moves planned", "2 moves done in ", "2000 keys"]);
        let shared = counts(&[
            ("athens", 3),
            ("byzantium", 2),
            ("cyrene", 2),
            ("ephesus", 2),
        ]);
        assert_eq!(stage.owned(), shared);
        let told = stage.core.ask(&["rebalance", "--wait"]);
        told.assert(0, &[]);
        assert_eq!(told.out, "nothing has to move\n");

        let report = stage.migrations();
        assert_eq!(
            report["limit_mb_s"], 0,
            "the limit has ended with the moves"
        );
        let row = &report["migrations"][0];
        for (name, value) in [
            ("id", Value::from(1)),
            ("partition", 7.into()),
            ("state", "committed".into()),
            ("from_node", "byzantium".into()),
            ("to_node", "ephesus".into()),
            ("attempt", 1.into()),
            ("will_retry", false.into()),
            ("keys", KEYS.into()),
            ("last_error", "".into()),
        ] {
            assert_eq!(row[name], value, "{name}: {row}");
        }
        let told = stage.core.ask(&["migrations"]);
        told.assert(0, &[]);
        assert_says(&told, &["byzantium/0", "ephesus/0", "committed"]);

        let told = stage.core.ask(&["drain", "ephesus", "--wait"]);
        told.assert(0, &["2 of 2 moves done"]);
        let words = [
            "2 moves planned",
            "owns nothing",
            "ephesus node remove ephesus",
        ];
        assert_says(&told, &words);
        assert_eq!(stage.owned().get("ephesus"), None);
        assert_eq!(stage.migrations()["draining"][0]["node"], "ephesus");
        let told = stage
            .core
            .ask(&["move", "--partition", "0", "--to", "ephesus"]);
        told.assert(1, &["node ephesus is being drained"]);
        let told = stage.core.ask(&["rebalance", "--dry-run"]);
        assert_eq!(told.out, "nothing has to move\n", "it gets nothing");
        let told = stage.core.ask(&["drain", "ephesus", "--end"]);
        told.assert(0, &[]);
        assert_says(&told, &["it may get partitions"]);
        let told = stage.core.ask(&["drain", "ephesus", "--wait"]);
        told.assert(0, &[]);
        let told = stage.core.ask(&["node", "remove", "ephesus", "--yes"]);
        told.assert(0, &["owns no partitions"]);
    });
}

#[test]
fn a_move_goes_where_it_is_told_and_errors_name_what_is_wrong() {
    Stage::set(Course::Succeeds, |stage| {
        let one = |partition: &str, to: &str| {
            let words = ["move", "--partition", partition, "--to", to, "--wait"];
            stage.core.ask(&words)
        };
        let id = "02".repeat(16);
        for (to, node) in [
            ("byzantium", "byzantium"),
            ("cyrene/0", "cyrene"),
            (&id, "byzantium"),
        ] {
            let told = one("0", to);
            told.assert(0, &["1 of 1 moves done"]);
            assert_says(&told, &["1 move planned", "1 move done"]);
            let rows = stage.core.json("partitions");
            assert_eq!(rows[0]["node"], node);
        }
        let told = one("0", "byzantium");
        told.assert(0, &[]);
        assert_eq!(told.out, "partition 0 is there already\n");

        one("9", "athens").assert(1, &["there is no partition 9"]);
        one("0", "sparta").assert(1, &["there is no node sparta", "ephesus nodes"]);
        one("0", "sparta/0").assert(1, &["there is no node sparta"]);
        one("0", "athens/1").assert(1, &["node athens has no shard 1: it has 1"]);
        let ask = |words: &[&str]| stage.core.ask(words);
        ask(&["drain", "sparta"]).assert(1, &["there is no node sparta"]);
        ask(&["migration", "cancel", "99"]).assert(1, &["there is no migration 99"]);
        ask(&["migration", "cancel", "1"]).assert(1, &["migration 1 is over"]);
        for words in [
            &["move", "--partition", "0"][..],
            &["migration", "cancel", "0"],
            &["rebalance", "--dry-run", "--wait"],
            &["rebalance", "--cluster-secret-file", "/no/such/file"],
        ] {
            ask(words).assert(2, &[]);
        }
    });
}

#[test]
fn whoever_waits_for_a_move_that_fails_is_told_why() {
    Stage::set(Course::Fails, |stage| {
        let words = ["move", "--partition", "0", "--to", "cyrene", "--wait"];
        let told = stage.core.ask(&words);
        told.assert(
            1,
            &[
                "not everything was moved:",
                "partition 0 to cyrene/0: ",
                "the disk is full",
            ],
        );
        assert_eq!(stage.owned()["athens"], 3, "it stays where it was");

        // Moves of a rebalance are tried again, so long as they are not cancelled.
        stage.joins(4, "ephesus");
        stage.core.ask(&["rebalance"]).assert(0, &[]);
        stage.core.until("it is tried again", |_| {
            let report = stage.migrations();
            let mut rows = report["migrations"].as_array().expect("rows").iter();
            rows.any(|row| row["attempt"] == 2)
        });
        stage.goes(Course::Succeeds);
        stage.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
        assert_eq!(stage.owned()["ephesus"], 2);
    });
}

#[test]
fn a_cancelled_move_ends_the_wait_for_it() {
    Stage::set(Course::Stalls, |stage| {
        stage.joins(4, "ephesus");
        thread::scope(|scope| {
            let waits = scope.spawn(|| stage.core.ask(&["rebalance", "--wait", "--limit", "20"]));
            stage
                .core
                .until("it is planned", |_| stage.ids("planned") == [1, 2]);
            assert_eq!(stage.migrations()["limit_mb_s"], 20);
            let told = stage.core.ask(&["rebalance"]);
            assert_eq!(told.out, "nothing has to move\n", "it is under way");
            let told = stage
                .core
                .ask(&["move", "--partition", "7", "--to", "athens"]);
            told.assert(1, &["partition 7 is moved elsewhere by migration 1"]);
            for id in ["1", "2"] {
                assert!(!waits.is_finished());
                let told = stage.core.ask(&["migration", "cancel", id]);
                told.assert(0, &[]);
                assert_says(&told, &["is cancelled"]);
                // Again, as after a lost answer.
                stage.core.ask(&["migration", "cancel", id]).assert(0, &[]);
            }
            let told = waits.join().expect("it ends");
            told.assert(
                1,
                &["partition 7 to ephesus/0: ", "partition 8 to ephesus/0: "],
            );
        });
        assert_eq!(stage.ids("aborted"), [1, 2]);
        assert_eq!(stage.migrations()["limit_mb_s"], 0);
    });
}

#[test]
fn changes_are_watched_as_they_come() {
    Stage::set(Course::Stalls, |stage| {
        let home = paths::scratch();
        let mut command = Command::new(paths::ephesus());
        command.args(["migrations", "--json", "--watch", "--coordinator"]);
        command.arg(stage.core.addresses());
        let watch = Process::spawn(command, &home.path().join("watch.log"));
        let states = || -> Vec<String> {
            let output = watch.output();
            let lines = output.lines().map(|line| {
                let report: Value = serde_json::from_str(line).expect("a line is JSON");
                let state = &report["migrations"][0]["state"];
                state.as_str().unwrap_or("none").to_owned()
            });
            lines.collect()
        };
        stage.core.until("nothing moves", |_| states() == ["none"]);
        let words = ["move", "--partition", "0", "--to", "cyrene"];
        stage.core.ask(&words).assert(0, &[]);
        let planned = ["none", "planned"];
        stage.core.until("it is planned", |_| states() == planned);
        stage.goes(Course::Succeeds);
        stage.core.until("it is done", |_| {
            states().last().is_some_and(|state| state == "committed")
        });
    });
}
