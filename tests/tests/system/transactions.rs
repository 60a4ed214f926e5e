//! EXEC is all or nothing, whatever becomes of its node, and WATCH never lets a lost update through.
//!
//! `EPHESUS_CRASH_ROUNDS=n` makes it longer, `EPHESUS_SEED=n` repeats a run's choices.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ephesus_tests::roaming::moved;
use ephesus_tests::scale::rounds;
use ephesus_tests::{Client, Node, Options, Reply, Rng, TestCluster};

const ROUNDS_IN_CI: u64 = 5;
const WORKERS: u64 = 4;
const GROUPS: u64 = 24;
/// Numbers that all workers add to.
const SHARED: u64 = 4;
/// Between two attempts to reach a node.
const RETRY: Duration = Duration::from_millis(5);
/// How long a node may be away.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// Keys that one worker changes together; each has the same number.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// As the last reply says.
    number: u64,
    /// The next one may have been set as well.
    is_in_doubt: bool,
}

/// What has become of a transaction.
enum Outcome {
    Done(Vec<Reply>),
    /// Nothing has happened.
    Refused,
}

/// A client of the entry port of one node, or of the direct ports of a cluster.
struct Clients {
    seeds: Vec<SocketAddr>,
    /// By what is between the braces of a key.
    owners: BTreeMap<String, SocketAddr>,
    open: BTreeMap<SocketAddr, Client>,
}

impl Clients {
    /// Sends commands whose keys have this tag; stops behind a reply that leads elsewhere.
    fn ask(&mut self, tag: &str, commands: &[Vec<String>]) -> io::Result<Vec<Reply>> {
        let at = *self.owners.get(tag).unwrap_or(&self.seeds[0]);
        let mut client = match self.open.remove(&at) {
            Some(client) => client,
            None => self.lost(tag, Client::connect_to(at))?,
        };
        let mut replies = Vec::new();
        for command in commands {
            let sent = client.send(command);
            self.lost(tag, sent)?;
        }
        for _ in commands {
            let received = client.receive();
            replies.push(self.lost(tag, received)?);
        }
        self.open.insert(at, client);
        if let Some(owner) = replies.iter().find_map(moved) {
            self.owners.insert(tag.to_owned(), owner);
        }
        Ok(replies)
    }

    fn lost<T>(&mut self, tag: &str, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.owners.remove(tag);
            self.seeds.rotate_left(1);
        }
        result
    }

    /// MULTI, these, EXEC.
    fn exec(&mut self, tag: &str, commands: &[Vec<String>]) -> io::Result<Outcome> {
        let one = |name: &str| vec![name.to_owned()];
        let all = [&[one("MULTI")], commands, &[one("EXEC")]].concat();
        let mut replies = self.ask(tag, &all)?;
        let last = replies.pop().expect("a reply to EXEC");
        if last.is_nil() || last.error().is_some() {
            return Ok(Outcome::Refused);
        }
        assert_eq!(last.items().len(), commands.len(), "all of it");
        Ok(Outcome::Done(last.items()))
    }
}

/// One worker, with what it knows.
struct Worker {
    number: u64,
    clients: Clients,
    rng: Rng,
    groups: Vec<Group>,
    /// What it has added to the shared numbers, and how often it does not know.
    added: [u64; SHARED as usize],
    doubts: [u64; SHARED as usize],
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

impl Worker {
    fn tag(&self, group: usize) -> String {
        format!("w{}:{group}", self.number)
    }

    /// Sets all keys of a group to the next number, or reads them, which must agree.
    fn together(&mut self) -> io::Result<()> {
        let at = self.rng.below(GROUPS) as usize;
        let tag = self.tag(at);
        if self.groups[at].is_in_doubt || self.rng.one_in(4) {
            self.read(at)?;
            return Ok(());
        }
        let next = self.groups[at].number + 1;
        let commands = [
            words(&format!("SET {{{tag}}}a {next}")),
            words(&format!("INCR {{{tag}}}b")),
            words(&format!("DEL {{{tag}}}c")),
            words(&format!("APPEND {{{tag}}}c {next}")),
        ];
        self.groups[at].is_in_doubt = true;
        match self.clients.exec(&tag, &commands)? {
            Outcome::Done(replies) => {
                assert_eq!(replies[0], Reply::ok());
                assert_eq!(replies[1], Reply::Integer(next as i64));
                self.groups[at].number = next;
            }
            Outcome::Refused => {}
        }
        self.groups[at].is_in_doubt = false;
        Ok(())
    }

    /// Whether the node has answered.
    fn read(&mut self, at: usize) -> io::Result<bool> {
        let tag = self.tag(at);
        let get = words(&format!("MGET {{{tag}}}a {{{tag}}}b {{{tag}}}c"));
        let reply = self.clients.ask(&tag, &[get])?.remove(0);
        if reply.error().is_some() {
            return Ok(false);
        }
        let group = &mut self.groups[at];
        let found = reply.items();
        assert!(
            found.iter().all(|item| *item == found[0]),
            "{tag}: {found:?}"
        );
        let found = match &found[0] {
            item if item.is_nil() => 0,
            item => item.text().parse().expect("a number"),
        };
        let most = group.number + u64::from(group.is_in_doubt);
        assert!(
            (group.number..=most).contains(&found),
            "{tag}: {found}, {group:?}"
        );
        *group = Group {
            number: found,
            is_in_doubt: false,
        };
        Ok(true)
    }

    /// Adds one to a number, if nobody has since it was read.
    fn add(&mut self) -> io::Result<()> {
        let at = self.rng.below(SHARED) as usize;
        let tag = format!("shared{at}");
        let commands = [
            words(&format!("WATCH {{{tag}}}")),
            words(&format!("GET {{{tag}}}")),
        ];
        let replies = self.clients.ask(&tag, &commands)?;
        if replies.iter().any(|reply| reply.error().is_some()) {
            return Ok(());
        }
        let value: u64 = match &replies[1] {
            value if value.is_nil() => 0,
            value => value.text().parse().expect("a number"),
        };
        self.doubts[at] += 1;
        let set = words(&format!("SET {{{tag}}} {}", value + 1));
        if let Outcome::Done(_) = self.clients.exec(&tag, &[set])? {
            self.added[at] += 1;
        }
        self.doubts[at] -= 1;
        Ok(())
    }

    fn work(mut self, is_over: &AtomicBool, done: &AtomicU64) -> Worker {
        while !is_over.load(Ordering::Relaxed) {
            let result = match self.rng.one_in(3) {
                true => self.add(),
                false => self.together(),
            };
            match result {
                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(_) => std::thread::sleep(RETRY),
            }
        }
        self
    }

    /// Reads all of its groups, from a node that is there again.
    fn verify(&mut self) {
        let began = Instant::now();
        for at in 0..self.groups.len() {
            while !self.read(at).unwrap_or(false) {
                std::thread::sleep(RETRY);
                assert!(began.elapsed() < BACK_WITHIN, "nobody answers");
            }
        }
    }
}

/// Workers, at work or not.
struct Load {
    workers: Vec<JoinHandle<Worker>>,
    is_over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

fn workers(seeds: &[SocketAddr], rng: &mut Rng) -> Vec<Worker> {
    let worker = |number| Worker {
        number,
        clients: Clients {
            seeds: seeds.to_vec(),
            owners: BTreeMap::new(),
            open: BTreeMap::new(),
        },
        rng: rng.fork(),
        groups: vec![Group::default(); GROUPS as usize],
        added: [0; SHARED as usize],
        doubts: [0; SHARED as usize],
    };
    (0..WORKERS).map(worker).collect()
}

impl Load {
    fn start(workers: Vec<Worker>) -> Load {
        let (is_over, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let workers = workers.into_iter().map(|worker| {
            let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
            std::thread::spawn(move || worker.work(&is_over, &done))
        });
        Load {
            workers: workers.collect(),
            is_over,
            done,
        }
    }

    /// Waits until so many more rounds were made.
    fn goes_on(&self, more: u64) {
        let until = self.done.load(Ordering::Relaxed) + more;
        let began = Instant::now();
        while self.done.load(Ordering::Relaxed) < until {
            assert!(
                self.workers.iter().all(|worker| !worker.is_finished()),
                "one has failed"
            );
            assert!(began.elapsed() < BACK_WITHIN, "nobody answers");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn finish(self) -> Vec<Worker> {
        self.is_over.store(true, Ordering::Relaxed);
        let joined = self.workers.into_iter().map(|worker| worker.join());
        joined
            .map(|worker| worker.expect("no worker fails"))
            .collect()
    }
}

/// Reads everything back.
fn verify(workers: &mut [Worker]) {
    for at in 0..SHARED as usize {
        let added: u64 = workers.iter().map(|worker| worker.added[at]).sum();
        let doubts: u64 = workers.iter().map(|worker| worker.doubts[at]).sum();
        let tag = format!("shared{at}");
        let get = words(&format!("GET {{{tag}}}"));
        let began = Instant::now();
        let value = loop {
            let reply = workers[0].clients.ask(&tag, std::slice::from_ref(&get));
            match reply.map(|mut replies| replies.remove(0)) {
                Ok(reply) if reply.error().is_none() => break reply,
                _ => std::thread::sleep(RETRY),
            }
            assert!(began.elapsed() < BACK_WITHIN, "nobody answers");
        };
        let value: u64 = match value {
            value if value.is_nil() => 0,
            value => value.text().parse().expect("a number"),
        };
        assert!(
            (added..=added + doubts).contains(&value),
            "{value} of {added} and {doubts}"
        );
        // What is known now.
        for worker in workers.iter_mut() {
            worker.doubts[at] = 0;
        }
        workers[0].added[at] += value - added;
    }
    workers.iter_mut().for_each(Worker::verify);
}

#[test]
fn exec_is_all_or_nothing_when_its_node_is_killed() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("killed transactions"));
    let mut node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let mut workers = workers(&[node.entry()], &mut rng);
    for _ in 0..rounds(ROUNDS_IN_CI) {
        let load = Load::start(workers);
        load.goes_on(200);
        std::thread::sleep(Duration::from_millis(rng.below(300)));
        node.kill();
        workers = load.finish();
        node.restart();
        verify(&mut workers);
    }
    let added: u64 = workers.iter().flat_map(|worker| worker.added).sum();
    assert!(added > 0, "nothing was added");
}

#[test]
fn exec_is_all_or_nothing_while_partitions_move_and_a_node_dies() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("moving transactions"));
    let names = ["athens", "byzantium"];
    let mut whole = TestCluster::started(&["--partitions", "32"], &names, 2);
    let workers = workers(&whole.entries(), &mut rng);
    let load = Load::start(workers);
    load.goes_on(200);
    whole
        .core
        .ask(&["drain", "athens", "--wait"])
        .assert(0, &[]);
    load.goes_on(100);
    whole.core.ask(&["drain", "athens", "--end"]).assert(0, &[]);
    whole.core.ask(&["rebalance"]).assert(0, &[]);
    std::thread::sleep(Duration::from_millis(rng.below(200)));
    whole.node("byzantium").kill();
    whole.node("byzantium").restart();
    load.goes_on(200);
    whole.until_healthy();
    whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    load.goes_on(200);
    let mut workers = load.finish();
    verify(&mut workers);
    let added: u64 = workers.iter().flat_map(|worker| worker.added).sum();
    assert!(added > 0, "nothing was added");
}
