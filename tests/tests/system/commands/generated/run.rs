//! One sequence at two servers: pipelined, as far as the order between the two clients allows.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use ephesus_tests::resp::encode;
use ephesus_tests::{Client, Reply};

use super::alike::{Differences, are_near};
use super::lines::library;
use super::requests::{DATABASES, Profile, Step};

/// After so long a key is gone whose time to live was a millisecond.
const LAPSE: Duration = Duration::from_millis(3);

/// How long keys that are gone may be counted.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);

/// What was answered to one step.
#[derive(Clone, Debug)]
pub struct Answered {
    pub step: Step,
    pub ours: String,
    pub theirs: String,
}

/// Why a sequence is not one that both servers answer alike.
#[derive(Debug)]
pub struct Mismatch {
    /// The last one differs.
    pub trail: Vec<Answered>,
}

/// One server with its connections.
pub struct Server {
    pub connect: Box<dyn Fn() -> Client>,
    pub control: Client,
    clients: [Client; 2],
    /// The library is there, which no sequence changes.
    has_functions: bool,
}

impl Server {
    pub fn new(connect: impl Fn() -> Client + 'static) -> Self {
        Self {
            control: connect(),
            clients: [connect(), connect()],
            connect: Box::new(connect),
            has_functions: false,
        }
    }

    fn renew(&mut self) {
        self.clients = [(self.connect)(), (self.connect)()];
        let emptied = self.control.say("FLUSHALL");
        assert_eq!(emptied, Reply::ok());
        assert_eq!(self.control.say("SCRIPT FLUSH"), Reply::ok());
        if !self.has_functions {
            let load = ["FUNCTION", "LOAD", "REPLACE", &library()];
            assert_eq!(self.control.call(&load), Reply::bulk("generated"));
            self.has_functions = true;
        }
    }

    fn say_all(&mut self, lines: &[String]) -> Vec<Reply> {
        let words = |line: &String| line.split(' ').map(|word| word.into()).collect();
        let requests: Vec<Vec<Vec<u8>>> = lines.iter().map(words).collect();
        self.control.pipeline(&requests)
    }

    /// Waits until DBSIZE does not count what has lapsed.
    fn settle(&mut self, databases: u64) {
        let deadline = Instant::now() + COUNTED_WITHIN;
        let select = |database: u64| match databases {
            1 => vec!["KEYS *".to_owned(), "DBSIZE".to_owned()],
            _ => vec![
                format!("SELECT {database}"),
                "KEYS *".into(),
                "DBSIZE".into(),
            ],
        };
        let lines: Vec<String> = (0..databases).flat_map(select).collect();
        loop {
            let replies = self.say_all(&lines);
            let of_keys = |pair: &[Reply]| match pair {
                [Reply::Array(keys), Reply::Integer(count)] => keys.len() as i64 == *count,
                _ => true,
            };
            if replies.windows(2).all(of_keys) {
                return;
            }
            assert!(Instant::now() < deadline, "{replies:?}");
        }
    }
}

/// What one client has queued.
#[derive(Default)]
struct Queue {
    is_open: bool,
    steps: Vec<Step>,
    lapses: bool,
    counts: bool,
}

/// A run of one sequence.
pub struct Run<'a> {
    pub ours: &'a mut Server,
    pub theirs: &'a mut Server,
    pub differences: &'a Differences,
    pub profile: Profile,
    queues: [Queue; 2],
    /// Keys have lapsed that may be counted.
    is_unsettled: bool,
    /// A key of the batch is about to lapse.
    lapses: bool,
    trail: Vec<Answered>,
}

/// EXEC does so with a wrong number of arguments as well.
fn ends_transaction(step: &Step) -> bool {
    let is_short = step.args.len() == 1;
    step.is("EXEC") || is_short && (step.is("DISCARD") || step.is("RESET"))
}

type Outcome = Result<(), ()>;

impl<'a> Run<'a> {
    pub fn new(
        ours: &'a mut Server,
        theirs: &'a mut Server,
        differences: &'a Differences,
        profile: Profile,
    ) -> Self {
        ours.renew();
        theirs.renew();
        Self {
            ours,
            theirs,
            differences,
            profile,
            queues: Default::default(),
            is_unsettled: false,
            lapses: false,
            trail: Vec::new(),
        }
    }

    /// All steps, and what is there in the end.
    pub fn of(mut self, steps: &[Step]) -> Result<(), Mismatch> {
        let outcome = self.steps(steps).and_then(|()| self.compare_state());
        outcome.map_err(|()| Mismatch { trail: self.trail })
    }

    fn steps(&mut self, steps: &[Step]) -> Outcome {
        let mut rest = steps;
        while let Some(step) = rest.first() {
            if step.args[0].starts_with(b"@") {
                self.special(step)?;
                rest = &rest[1..];
                continue;
            }
            let mut batch: Vec<&Step> = Vec::new();
            let mut ends = false;
            while let Some(next) = rest.first() {
                if ends || next.who != step.who || next.args[0].starts_with(b"@") {
                    break;
                }
                rest = &rest[1..];
                let queue = &mut self.queues[next.who];
                if queue.is_open && self.profile.leaves_out_of_multi(next) {
                    continue;
                }
                ends = self.sent(next);
                batch.push(next);
            }
            self.batch(&batch)?;
        }
        Ok(())
    }

    /// What a step will do to its client's transaction; whether others have to wait for it.
    fn sent(&mut self, step: &Step) -> bool {
        let queue = &mut self.queues[step.who];
        let is_short = step.args.len() == 1;
        let counts = step.is("DBSIZE");
        if step.is("MULTI") && is_short {
            queue.is_open = true;
        } else if ends_transaction(step) {
            let (lapses, counts) = (queue.lapses, queue.counts);
            (queue.is_open, queue.lapses, queue.counts) = (false, false, false);
            if counts {
                self.settle();
            }
            self.lapses |= lapses;
            return lapses;
        } else if queue.is_open {
            queue.lapses |= step.lapses;
            queue.counts |= counts;
        } else {
            if counts {
                self.settle();
            }
            self.lapses |= step.lapses;
            // With several shards a script is known once it was answered.
            let teaches = step.is_script() && !self.profile.over_all_in_multi;
            return step.lapses || step.is("RANDOMKEY") || teaches;
        }
        false
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.is_unsettled) {
            let databases = if self.profile.databases { DATABASES } else { 1 };
            self.ours.settle(databases);
            self.theirs.settle(databases);
        }
    }

    fn batch(&mut self, batch: &[&Step]) -> Outcome {
        let Some(who) = batch.first().map(|step| step.who) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for step in batch {
            encode(&step.args, &mut bytes);
        }
        let sent = self.ours.clients[who].send_raw(&bytes);
        let sent = sent.and(self.theirs.clients[who].send_raw(&bytes));
        for step in batch {
            let ours = self.ours.clients[who].receive();
            let theirs = self.theirs.clients[who].receive();
            self.compare(step, ours, theirs)?;
        }
        if sent.is_err() {
            return Err(());
        }
        if std::mem::take(&mut self.lapses) {
            std::thread::sleep(LAPSE);
            self.is_unsettled = true;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        step: &Step,
        ours: io::Result<Reply>,
        theirs: io::Result<Reply>,
    ) -> Outcome {
        self.trail.push(Answered {
            step: step.clone(),
            ours: format!("{ours:?}"),
            theirs: format!("{theirs:?}"),
        });
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
            return Err(());
        };
        let queue = &mut self.queues[step.who];
        let queued = match ends_transaction(step) {
            true => std::mem::take(&mut queue.steps),
            false => Vec::new(),
        };
        if !self.differences.are_alike(step, &queued, &ours, &theirs) {
            return Err(());
        }
        if theirs == Reply::Simple("QUEUED".to_owned()) {
            queue.steps.push(step.clone());
        } else if step.is("RANDOMKEY")
            && let Reply::Bulk(key) = &ours
        {
            let found = self.theirs.clients[step.who].call(&[b"EXISTS".as_slice(), key]);
            return if found == Reply::Integer(1) {
                Ok(())
            } else {
                Err(())
            };
        }
        Ok(())
    }

    /// What is more than a request.
    fn special(&mut self, step: &Step) -> Outcome {
        let who = step.who;
        if step.is("@reconnect") {
            self.queues[who] = Queue::default();
            for server in [&mut *self.ours, &mut *self.theirs] {
                server.clients[who] = (server.connect)();
            }
            self.note(step, "", "");
            return Ok(());
        }
        if self.queues[who].is_open {
            return Ok(());
        }
        match step.args[0].as_slice() {
            b"@walk" => self.walk(step),
            b"@exchange" => self.exchange(step),
            _ => self.skip(step),
        }
    }

    fn note(&mut self, step: &Step, ours: &str, theirs: &str) {
        self.trail.push(Answered {
            step: step.clone(),
            ours: ours.to_owned(),
            theirs: theirs.to_owned(),
        });
    }

    /// SCAN from the beginning to the end: the same keys, or the same error.
    fn walk(&mut self, step: &Step) -> Outcome {
        let options = &step.args[1..];
        let walked = |client: &mut Client| -> Result<BTreeSet<Vec<u8>>, String> {
            let (mut found, mut cursor) = (BTreeSet::new(), b"0".to_vec());
            loop {
                let words = [&[b"SCAN".to_vec(), cursor.clone()], options].concat();
                let reply = client.try_call(&words).map_err(|error| error.to_string())?;
                let Reply::Array(parts) = &reply else {
                    return Err(format!("{reply:?}"));
                };
                let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else {
                    return Err(format!("{reply:?}"));
                };
                found.extend(keys.iter().map(Reply::bytes));
                if next == b"0" {
                    return Ok(found);
                }
                cursor.clone_from(next);
            }
        };
        let ours = walked(&mut self.ours.clients[step.who]);
        let theirs = walked(&mut self.theirs.clients[step.who]);
        self.note(step, &format!("{ours:?}"), &format!("{theirs:?}"));
        if ours == theirs { Ok(()) } else { Err(()) }
    }

    /// DUMP of one key, and RESTORE of what the other server has dumped.
    fn exchange(&mut self, step: &Step) -> Outcome {
        let dump = [b"DUMP".to_vec(), step.args[1].clone()];
        let ours = self.ours.clients[step.who].call(&dump);
        let theirs = self.theirs.clients[step.who].call(&dump);
        let (Reply::Bulk(of_ours), Reply::Bulk(of_theirs)) = (&ours, &theirs) else {
            self.note(step, &format!("{ours:?}"), &format!("{theirs:?}"));
            return if ours == theirs { Ok(()) } else { Err(()) };
        };
        let restore = |payload: &Vec<u8>| {
            let head = [
                b"RESTORE".to_vec(),
                step.args[2].clone(),
                step.args[3].clone(),
                payload.clone(),
            ];
            [&head, &step.args[4..]].concat()
        };
        let ours = self.ours.clients[step.who].try_call(&restore(of_theirs));
        let theirs = self.theirs.clients[step.who].try_call(&restore(of_ours));
        self.compare(step, ours, theirs)
    }

    /// A request whose reply is skipped.
    fn skip(&mut self, step: &Step) -> Outcome {
        let mut bytes = Vec::new();
        encode(&["CLIENT", "REPLY", "SKIP"], &mut bytes);
        encode(&step.args[1..], &mut bytes);
        encode(&["PING"], &mut bytes);
        let ask = |client: &mut Client| {
            client.send_raw(&bytes)?;
            client.receive()
        };
        let ours = ask(&mut self.ours.clients[step.who]);
        let theirs = ask(&mut self.theirs.clients[step.who]);
        self.compare(step, ours, theirs)
    }

    /// The same keys with the same values and times to live in every database.
    fn compare_state(&mut self) -> Outcome {
        let databases = if self.profile.databases { DATABASES } else { 1 };
        for database in 0..databases {
            if databases > 1 {
                let select = ["SELECT".to_owned(), database.to_string()];
                let replies =
                    [&mut *self.ours, &mut *self.theirs].map(|server| server.control.call(&select));
                assert_eq!(replies, [Reply::ok(), Reply::ok()]);
            }
            let [ours, theirs] = [&mut *self.ours, &mut *self.theirs].map(|server| {
                let keys = server.control.say("KEYS *").items();
                keys.iter().map(Reply::bytes).collect::<BTreeSet<_>>()
            });
            let step = |what: &str, key: &[u8]| Step {
                who: 0,
                args: vec![what.into(), database.to_string().into(), key.to_vec()],
                lapses: false,
            };
            if ours != theirs {
                self.note(
                    &step("@keys", b""),
                    &format!("{ours:?}"),
                    &format!("{theirs:?}"),
                );
                return Err(());
            }
            for key in ours {
                let [ours, theirs] = [&mut *self.ours, &mut *self.theirs].map(|server| {
                    ["GET", "PTTL"].map(|name| server.control.call(&[name.as_bytes(), &key]))
                });
                let is_near = match (&ours[1], &theirs[1]) {
                    (Reply::Integer(ours), Reply::Integer(theirs)) => {
                        ours == theirs || are_near(*ours, *theirs, 30_000)
                    }
                    _ => false,
                };
                if ours[0] != theirs[0] || !is_near {
                    let step = step("@key", &key);
                    self.note(&step, &format!("{ours:?}"), &format!("{theirs:?}"));
                    return Err(());
                }
            }
        }
        Ok(())
    }
}
