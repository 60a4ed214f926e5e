use std::sync::Arc;

use ephesus_wire::resp::reply;
use ephesus_wire::rng::Rng;

use crate::prefill::{KEY_BYTES, key};

use super::Plan;
use super::keys::{Counters, Draw};
use super::ledger::{Flaw, Ledger};
use super::link::Reply;
use super::workload::{Op, Values, Workload};

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) due_ns: u64,
    /// None: the servers are asked who has which slot.
    pub(super) op: Option<Op>,
    /// It is done with its first command.
    pub(super) is_second: bool,
    pub(super) moves: u8,
    pub(super) key: u64,
    /// The least version that a read has to find, or the version that is written.
    version: u64,
}

impl Sent {
    pub(super) const TABLE: Sent = Sent {
        due_ns: 0,
        op: None,
        is_second: false,
        moves: 0,
        key: 0,
        version: 0,
    };

    pub(super) fn elsewhere(self) -> Sent {
        Sent {
            moves: self.moves + 1,
            ..self
        }
    }

    /// Counters have keys of their own.
    pub(super) fn key_name(&self) -> [u8; KEY_BYTES] {
        let mut name = key(self.key);
        if self.op == Some(Op::Count) {
            name[..3].copy_from_slice(b"cnt");
        }
        name
    }

    fn writes(&self) -> bool {
        match self.op {
            Some(Op::Write | Op::Ttl | Op::Delete | Op::Insert) => true,
            Some(Op::Rmw) => self.is_second,
            Some(Op::Read | Op::Count) | None => false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Source {
    workload: Workload,
    left: u64,
    keys: Draw,
    random: Rng,
    values: Values,
    stamped: Vec<u8>,
}

const SEED: u64 = 0x4c4f_4144;

impl Source {
    pub(super) fn new(
        plan: &Plan,
        (executor, executors): (usize, usize),
        counters: Arc<Counters>,
    ) -> Self {
        let workload = plan.workload.clone();
        let (all, executors) = (plan.pace.count, executors as u64);
        let share = |all: u64| all / executors + u64::from((executor as u64) < all % executors);
        Source {
            left: all.map_or(u64::MAX, share),
            keys: Draw::new(workload.keys.clone(), workload.distribution, counters),
            random: Rng::new(SEED ^ (executor as u64) << 32),
            values: Values::new(workload.sizes.clone()),
            stamped: Vec::new(),
            workload,
        }
    }

    fn ledger(&self) -> Option<&Ledger> {
        self.workload.ledger.as_deref()
    }

    /// The next operation, which is due then; none after the last one.
    pub(super) fn next(&mut self, due_ns: u64) -> Option<Sent> {
        self.left = self.left.checked_sub(1)?;
        let op = self.workload.mix.draw(&mut self.random);
        let key = match op {
            Op::Insert => self.keys.claim(),
            _ => self.keys.draw(&mut self.random)?,
        };
        let mut sent = Sent {
            due_ns,
            op: Some(op),
            key,
            ..Sent::TABLE
        };
        self.begin(&mut sent);
        Some(sent)
    }

    /// Notes the version that is read or written; who may not write reads.
    fn begin(&self, sent: &mut Sent) {
        let Some(ledger) = self.ledger() else { return };
        if sent.writes() {
            let may_remove = matches!(sent.op, Some(Op::Delete | Op::Ttl));
            match ledger.begin(sent.key, may_remove) {
                Some(version) => sent.version = version,
                None => sent.op = Some(Op::Read),
            }
        }
        if !sent.writes() {
            sent.version = ledger.floor(sent.key);
        }
    }

    pub(super) fn encode(&mut self, sent: &Sent, out: &mut Vec<u8>) {
        let key = &sent.key_name()[..];
        let mut digits = [0; reply::INTEGER_BYTES_MAX];
        let ttl = reply::decimal(&mut digits, self.workload.ttl_s as i64);
        let set = &b"SET"[..];
        match (sent.op, sent.is_second) {
            (None, _) => reply::command(out, &["CLUSTER", "SLOTS"]),
            (Some(Op::Read), _) | (Some(Op::Rmw), false) => reply::command(out, &[b"GET", key]),
            (Some(Op::Delete), _) => reply::command(out, &[b"DEL", key]),
            (Some(Op::Count), false) => reply::command(out, &[b"INCR", key]),
            (Some(Op::Count), true) => reply::command(out, &[b"EXPIRE", key, ttl]),
            (Some(op @ (Op::Write | Op::Insert | Op::Rmw | Op::Ttl)), _) => {
                let value = match &self.workload.ledger {
                    None => self.values.get(sent.key, sent.due_ns),
                    Some(ledger) => {
                        let of = (sent.key, sent.version);
                        ledger.stamp(of, &self.values, &mut self.stamped);
                        &self.stamped
                    }
                };
                match op {
                    Op::Ttl => reply::command(out, &[set, key, value, b"EX", ttl]),
                    _ => reply::command(out, &[set, key, value]),
                }
            }
        }
    }

    /// A command was carried out; the operation's second command, if it has one, or what is wrong with the value read.
    pub(super) fn carried_out(&self, sent: &Sent, reply: &Reply<'_>) -> Result<Option<Sent>, Flaw> {
        let again = |mut sent: Sent| {
            sent.is_second = true;
            self.begin(&mut sent);
            // It was a read all the time if the key may not be written now.
            (sent.op != Some(Op::Read)).then_some(sent)
        };
        if let Some(ledger) = self.ledger() {
            match reply {
                _ if sent.writes() => ledger.confirm(sent.key, sent.version),
                Reply::Value(value) => ledger.judge(sent.key, sent.version, Some(value))?,
                Reply::Null => ledger.judge(sent.key, sent.version, None)?,
                _ => {}
            }
        }
        Ok(match (sent.op, sent.is_second) {
            (Some(Op::Rmw), false) => again(*sent),
            (Some(Op::Count), false) if *reply == Reply::Integer(1) => again(*sent),
            (Some(Op::Insert), _) => {
                self.keys.inserted();
                None
            }
            _ => None,
        })
    }
}
