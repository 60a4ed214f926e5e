//! EXEC and scripts are all or nothing, whatever becomes of their node; WATCH never lets a lost update through, and an
//! EXEC that it refuses has changed nothing.
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

const KILLS_IN_CI: u64 = 5;
const MOVES_IN_CI: u64 = 2;
const WORKERS: u64 = 4;
const GROUPS: u64 = 24;
/// Numbers that all workers add to.
const SHARED: u64 = 4;
/// Between two attempts to reach a node.
const RETRY: Duration = Duration::from_millis(5);
/// How long a node may be away.
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// The next number for all keys of a group.
const TOGETHER: &str = "redis.call('set', KEYS[1], ARGV[1]) \
    local n = redis.call('incr', KEYS[2]) \
    redis.call('del', KEYS[3]) redis.call('append', KEYS[3], ARGV[1]) return n";

/// One more, if nobody has added one since.
const ADD: &str = "if (redis.call('get', KEYS[1]) or '0') ~= ARGV[1] then return 0 end \
    redis.call('incr', KEYS[1]) redis.call('incr', KEYS[2]) redis.call('incr', KEYS[3]) return 1";

const READ: &str = "return redis.call('mget', unpack(KEYS))";

/// Keys that one worker changes together; each has the same number.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// As the last reply says.
    number: u64,
    /// The next one may have been set as well.
    is_in_doubt: bool,
}

impl Group {
    /// What was found has to be what is known; it is from now on.
    fn settle(&mut self, found: u64, what: &str) {
        let most = self.number + u64::from(self.is_in_doubt);
        assert!(
            (self.number..=most).contains(&found),
            "{what}: {found}, {self:?}"
        );
        *self = Group {
            number: found,
            is_in_doubt: false,
        };
    }
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

    /// One command; none if it was refused.
    fn one(&mut self, tag: &str, command: Vec<String>) -> io::Result<Option<Reply>> {
        let reply = self.ask(tag, &[command])?.remove(0);
        Ok(Some(reply).filter(|reply| reply.error().is_none()))
    }

    /// A script on these keys, by its text or by the name that its text has given it.
    fn script(
        &mut self,
        tag: &str,
        (text, sha): (&str, &mut Option<String>),
        keys: &[String],
        argument: u64,
    ) -> io::Result<Option<Reply>> {
        let load = ["SCRIPT", "LOAD", text].map(str::to_owned).to_vec();
        let (name, by) = match sha.take() {
            Some(sha) => ("EVALSHA", sha),
            None => {
                let loaded = self.one(tag, load)?;
                *sha = loaded.map(|sha| sha.text());
                ("EVAL", text.to_owned())
            }
        };
        let head = [name.to_owned(), by.clone(), keys.len().to_string()];
        let command = [&head, keys, &[argument.to_string()]].concat();
        let reply = self.one(tag, command)?;
        // A node that was killed does not know it any more.
        if name == "EVALSHA" && reply.is_some() {
            *sha = Some(by);
        }
        Ok(reply)
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
    /// What it has added to the shared numbers, and whether one more may be.
    added: [Group; SHARED as usize],
    /// How often WATCH has refused it.
    refused: u64,
    /// Scripts that it has loaded.
    together: Option<String>,
    add: Option<String>,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn number_of(reply: &Reply) -> u64 {
    match reply {
        reply if reply.is_nil() => 0,
        reply => reply.text().parse().expect("a number"),
    }
}

/// A shared number, the same once more, and what each worker has added.
fn shared_keys(at: usize) -> Vec<String> {
    let by = (0..WORKERS).map(|worker| format!("{{shared{at}}}by{worker}"));
    let both = ["", "twin"].map(|end| format!("{{shared{at}}}{end}"));
    both.into_iter().chain(by).collect()
}

impl Worker {
    fn tag(&self, group: usize) -> String {
        format!("w{}:{group}", self.number)
    }

    /// Some keys as they are at one moment; none if nobody serves them.
    fn values(&mut self, tag: &str, keys: &[String]) -> io::Result<Option<Vec<u64>>> {
        let command = match self.rng.one_in(4) {
            true => [
                &["EVAL_RO", READ, &keys.len().to_string()].map(str::to_owned),
                keys,
            ]
            .concat(),
            false => [&[words("MGET").remove(0)], keys].concat(),
        };
        let reply = self.clients.one(tag, command)?;
        Ok(reply.map(|reply| reply.items().iter().map(number_of).collect()))
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
        self.groups[at].is_in_doubt = true;
        let is_done = match self.rng.one_in(2) {
            true => {
                let keys = ["a", "b", "c"].map(|end| format!("{{{tag}}}{end}"));
                let script = (TOGETHER, &mut self.together);
                let reply = self.clients.script(&tag, script, &keys, next)?;
                if let Some(reply) = &reply {
                    assert_eq!(*reply, Reply::Integer(next as i64), "{tag}");
                }
                reply.is_some()
            }
            false => {
                let commands = [
                    words(&format!("SET {{{tag}}}a {next}")),
                    words(&format!("INCR {{{tag}}}b")),
                    words(&format!("DEL {{{tag}}}c")),
                    words(&format!("APPEND {{{tag}}}c {next}")),
                ];
                match self.clients.exec(&tag, &commands)? {
                    Outcome::Done(replies) => {
                        assert_eq!(replies[0], Reply::ok());
                        assert_eq!(replies[1], Reply::Integer(next as i64));
                        true
                    }
                    Outcome::Refused => false,
                }
            }
        };
        if is_done {
            self.groups[at].number = next;
        }
        self.groups[at].is_in_doubt = false;
        Ok(())
    }

    /// Whether the node has answered.
    fn read(&mut self, at: usize) -> io::Result<bool> {
        let tag = self.tag(at);
        let keys = ["a", "b", "c"].map(|end| format!("{{{tag}}}{end}"));
        let Some(found) = self.values(&tag, &keys)? else {
            return Ok(false);
        };
        assert!(
            found.iter().all(|number| *number == found[0]),
            "{tag}: {found:?}"
        );
        self.groups[at].settle(found[0], &tag);
        Ok(true)
    }

    /// Reads a shared number, of which all parts must agree.
    fn read_shared(&mut self, at: usize) -> io::Result<Option<u64>> {
        let tag = format!("shared{at}");
        let found = self.values(&tag, &shared_keys(at))?;
        Ok(found.map(|found| self.settle_shared(at, &found)))
    }

    fn settle_shared(&mut self, at: usize, found: &[u64]) -> u64 {
        let (both, by) = found.split_at(2);
        let sum: u64 = by.iter().sum();
        assert!(
            both[0] == both[1] && both[0] == sum,
            "shared{at}: {found:?}"
        );
        let own = by[self.number as usize];
        self.added[at].settle(own, &format!("shared{at} by {}", self.number));
        both[0]
    }

    /// Adds one to a number, if nobody has since it was read.
    fn add(&mut self) -> io::Result<()> {
        let at = self.rng.below(SHARED) as usize;
        let tag = format!("shared{at}");
        let keys = shared_keys(at);
        let own = keys[2 + self.number as usize].clone();
        if self.added[at].is_in_doubt || self.rng.one_in(6) {
            self.read_shared(at)?;
            return Ok(());
        }
        let is_done = match self.rng.one_in(3) {
            true => {
                let Some(value) = self.read_shared(at)? else {
                    return Ok(());
                };
                self.added[at].is_in_doubt = true;
                let changed = [keys[0].clone(), keys[1].clone(), own];
                let script = (ADD, &mut self.add);
                let reply = self.clients.script(&tag, script, &changed, value)?;
                reply == Some(Reply::Integer(1))
            }
            false => {
                let watch = words(&format!("WATCH {}", keys[0]));
                let mget = [&[words("MGET").remove(0)], &keys[..]].concat();
                let replies = self.clients.ask(&tag, &[watch, mget])?;
                if replies.iter().any(|reply| reply.error().is_some()) {
                    return Ok(());
                }
                let found: Vec<u64> = replies[1].items().iter().map(number_of).collect();
                let value = self.settle_shared(at, &found);
                self.added[at].is_in_doubt = true;
                let commands = [
                    words(&format!("SET {} {}", keys[0], value + 1)),
                    words(&format!("INCR {}", keys[1])),
                    words(&format!("INCR {own}")),
                ];
                match self.clients.exec(&tag, &commands)? {
                    Outcome::Done(_) => true,
                    Outcome::Refused => {
                        self.refused += 1;
                        false
                    }
                }
            }
        };
        self.added[at].number += u64::from(is_done);
        self.added[at].is_in_doubt = false;
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

    /// Reads all that it has written, from a node that is there again.
    fn verify(&mut self) {
        let began = Instant::now();
        let wait = || {
            std::thread::sleep(RETRY);
            assert!(began.elapsed() < BACK_WITHIN, "nobody answers");
        };
        for at in 0..self.groups.len() {
            while !self.read(at).unwrap_or(false) {
                wait();
            }
        }
        for at in 0..SHARED as usize {
            while !self.read_shared(at).is_ok_and(|value| value.is_some()) {
                wait();
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
        added: Default::default(),
        refused: 0,
        together: None,
        add: None,
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
    workers.iter_mut().for_each(Worker::verify);
}

/// That all there is to a run has happened in it.
fn assert_worked(workers: &[Worker]) {
    let added: u64 = workers
        .iter()
        .flat_map(|worker| worker.added)
        .map(|group| group.number)
        .sum();
    let refused: u64 = workers.iter().map(|worker| worker.refused).sum();
    eprintln!("{added} added, {refused} refused");
    assert!(added > 0 && refused > 0, "{added} added, {refused} refused");
}

#[test]
fn transactions_and_scripts_are_all_or_nothing_when_their_node_is_killed() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("killed transactions"));
    let mut node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let mut workers = workers(&[node.entry()], &mut rng);
    for _ in 0..rounds(KILLS_IN_CI) {
        let load = Load::start(workers);
        load.goes_on(200);
        std::thread::sleep(Duration::from_millis(rng.below(300)));
        node.kill();
        workers = load.finish();
        node.restart();
        verify(&mut workers);
    }
    assert_worked(&workers);
}

#[test]
fn transactions_and_scripts_are_all_or_nothing_while_partitions_move_and_nodes_die() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("moving transactions"));
    let names = ["athens", "byzantium"];
    let mut whole = TestCluster::started(&["--partitions", "32"], &names, 2);
    let mut workers = workers(&whole.entries(), &mut rng);
    for _ in 0..rounds(MOVES_IN_CI) {
        let load = Load::start(workers);
        load.goes_on(200);
        let drained = *rng.pick(&names);
        whole.core.ask(&["drain", drained, "--wait"]).assert(0, &[]);
        load.goes_on(100);
        whole.core.ask(&["drain", drained, "--end"]).assert(0, &[]);
        whole.core.ask(&["rebalance"]).assert(0, &[]);
        std::thread::sleep(Duration::from_millis(rng.below(200)));
        let victim = *rng.pick(&names);
        whole.node(victim).kill();
        whole.node(victim).restart();
        load.goes_on(200);
        whole.until_healthy();
        whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
        load.goes_on(200);
        workers = load.finish();
        verify(&mut workers);
    }
    assert_worked(&workers);
}
