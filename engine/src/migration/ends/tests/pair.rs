//! A source and a target, the stream between them, and a model of what both together should hold.

use std::collections::VecDeque;

use ephesus_wire::record::Source;
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::rng::Rng;
use ephesus_wire::stream::{DATA_ALIGN_BYTES, Message};
use ephesus_wire::{Epoch, Lsn, MigrationId, NodeId, PartitionId, ShardId, frame};

use super::workload::command;
use crate::keyspace::tests::model::Model;
use crate::keyspace::tests::tape::{Taped, contents, execute};
use crate::keyspace::{AfterBreak, Partition, Reply};
use crate::migration::{Outbound, Outgoing, Records};
use crate::planted::{Bug, Planted};

pub(super) const START_MS: u64 = 1_700_000_000_000;
pub(super) const MOVING: PartitionId = PartitionId(0);
pub(super) const EPOCH: Epoch = Epoch(7);

/// Small enough that streams wait for acknowledgements.
const CREDIT: usize = 140_000;

pub(super) fn source(migration: u64) -> Source {
    Source {
        migration: MigrationId(migration),
        node: NodeId([3; 16]),
        shard: ShardId(1),
    }
}

pub(super) fn flush(taped: &mut Taped) {
    let mut out = Vec::new();
    taped.keyspace.flush(&mut Reply {
        out: &mut out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    });
}

pub(super) struct Pair {
    pub(super) source: Taped,
    pub(super) target: Taped,
    pub(super) model: Model,
    pub(super) rng: Rng,
    migration: u64,
    wire: VecDeque<Vec<u8>>,
    /// How much of the first message's payload the target has taken.
    taken: usize,
    frames: u64,
}

impl Pair {
    pub(super) fn new(seed: u64, bug: Option<Bug>) -> Pair {
        let copy = Partition::new(MOVING, Epoch(1));
        let mut source = Taped::of(1, vec![copy], [1, 2, 3, 4], START_MS);
        // Clocks differ.
        let mut target = Taped::of(1, Vec::new(), [5, 6, 7, 8], START_MS - 2_000);
        source.keyspace.planted = Planted::new(bug);
        target.keyspace.planted = Planted::new(bug);
        let mut model = Model::default();
        model.set_now(START_MS.into());
        Pair {
            source,
            target,
            model,
            rng: Rng::new(seed),
            migration: 0,
            wire: VecDeque::new(),
            taken: 0,
            frames: 0,
        }
    }

    /// Executes a command at the source and in the model.
    pub(super) fn run(&mut self, args: &[Vec<u8>]) {
        let expected = self.model.run(args);
        let found = execute(&mut self.source.keyspace, args);
        assert!(found == expected, "the reply to {:?}", args[0]);
    }

    /// Sets the key `k{n}`, which the model does not need to look at.
    pub(super) fn add(&mut self, n: u64) {
        let (key, value) = (format!("k{n}").into_bytes(), n.to_string().into_bytes());
        execute(
            &mut self.source.keyspace,
            &[b"SET".to_vec(), key.clone(), value.clone()],
        );
        self.model.keys.insert(key, (value, None));
    }

    pub(super) fn write(&mut self, keys: u64) {
        let args = command(&mut self.rng, keys);
        self.run(&args);
    }

    /// Some writes, seldom a flush too, that are one record or nothing.
    pub(super) fn section(&mut self, keys: u64) {
        let before = self.model.keys.clone();
        self.source.keyspace.begin_atomic(usize::MAX);
        for _ in 0..1 + self.rng.below(8) {
            if self.rng.one_in(200) {
                self.flush();
            }
            self.write(keys);
        }
        if self.rng.one_in(2) {
            self.source.keyspace.roll_back_atomic();
            self.model.keys = before;
            return;
        }
        let committed = self.source.keyspace.commit_atomic(&mut Reply {
            out: &mut Vec::new(),
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        });
        committed.expect("it fits");
    }

    pub(super) fn flush(&mut self) {
        flush(&mut self.source);
        self.model.keys.clear();
    }

    pub(super) fn advance(&mut self, ms: u64) {
        let now_ms = self.source.keyspace.now_ms() + ms;
        self.source.keyspace.set_now(now_ms);
        self.target.keyspace.set_now(now_ms - 2_000);
        self.model.set_now(now_ms.into());
    }

    pub(super) fn begin(&mut self) {
        self.migration += 1;
        let (source, target) = (&mut self.source.keyspace, &mut self.target.keyspace);
        let began = target.begin_incoming(MOVING, EPOCH, self::source(self.migration));
        began.expect("nothing is here");
        let migration = MigrationId(self.migration);
        let began = source.begin_outgoing(MOVING, migration, EPOCH);
        began.expect("served and not moving");
        let copy = source.partition(MOVING).expect("it is served");
        let keys = match self.rng.below(3) {
            0 => 0,
            1 => copy.table.len() as u64,
            _ => self.rng.below(5_000),
        };
        target.expect_keys(MOVING, keys);
    }

    /// One turn of the source's migration work: up to `steps` steps of the walk, then what may be sent.
    pub(super) fn slice(&mut self, steps: u64) {
        let mut left = steps;
        self.source.keyspace.outgoing_slice(MOVING, || {
            left = left.saturating_sub(1);
            left > 0
        });
        self.send();
    }

    fn send(&mut self) {
        let gathers = self.rng.one_in(2);
        let outgoing = self.source.keyspace.outgoing_mut(MOVING).expect("moving");
        let next = |outgoing: &mut Outgoing| {
            let has_room = outgoing.in_flight_bytes() < CREDIT;
            outgoing.next_message(gathers, has_room)
        };
        while let Some(outbound) = next(outgoing) {
            let message = match &outbound {
                Outbound::Data(Records { bytes: records, .. }) => {
                    assert!(records.len().is_multiple_of(DATA_ALIGN_BYTES));
                    Message::Data(records)
                }
                Outbound::Final(last) => Message::Final(*last),
            };
            let mut bytes = Vec::new();
            message.encode(MigrationId(self.migration), self.frames, &mut bytes);
            self.frames += 1;
            self.wire.push_back(bytes);
        }
    }

    /// The target takes up to `records` records of what has arrived, and acknowledges what is durable.
    pub(super) fn receive(&mut self, records: u64) -> Result<(), String> {
        let mut left = records;
        while let Some(bytes) = self.wire.front()
            && left > 0
        {
            let (frame, _) = frame::decode(bytes).expect("a frame").expect("complete");
            let target = &mut self.target.keyspace;
            match Message::decode(&frame).expect("a message").1 {
                Message::Data(payload) => {
                    let taken = target.import(MOVING, payload, self.taken, || {
                        left -= 1;
                        left > 0
                    });
                    self.taken = taken.map_err(|error| error.to_string())?;
                    if self.taken < payload.len() {
                        break;
                    }
                    self.taken = 0;
                }
                Message::Final(last) => {
                    let prepared = target.prepare(MOVING, &last);
                    prepared.map_err(|error| error.to_string())?;
                }
                other => panic!("unexpected {other:?}"),
            }
            self.wire.pop_front();
        }
        if self.rng.one_in(3) {
            self.target.commit();
        }
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        let durable = self.target.keyspace.log.durable();
        let incoming = self.target.keyspace.incoming_mut(MOVING).expect("staging");
        if let Some(seq) = incoming.acknowledge(durable) {
            let outgoing = self.source.keyspace.outgoing_mut(MOVING).expect("moving");
            outgoing.acknowledged(seq).expect("it was sent");
        }
    }

    /// The stream breaks; both ends notice.
    pub(super) fn break_stream(&mut self) -> AfterBreak {
        self.wire.clear();
        self.taken = 0;
        self.source.keyspace.end_outgoing(MOVING);
        self.target.keyspace.stream_broken(MOVING)
    }

    /// Holds commands and ends the stream; false when its backlog is too long yet.
    pub(super) fn finish(&mut self, backlog_bytes_max: usize) -> Result<bool, String> {
        let source = &mut self.source.keyspace;
        let finished = source.try_finish(MOVING, backlog_bytes_max);
        if !finished.map_err(|error| error.to_string())? {
            return Ok(false);
        }
        for _ in 0..100_000 {
            self.slice(1);
            self.receive(1_000)?;
            self.target.commit();
            self.acknowledge();
            let durable = self.target.keyspace.log.durable();
            let incoming = self.target.keyspace.incoming_mut(MOVING).expect("staging");
            if let Some(held) = incoming.confirmed(durable) {
                let outgoing = self.source.keyspace.outgoing_mut(MOVING).expect("moving");
                let checked = outgoing.prepared(held);
                checked.map_err(|error| error.to_string())?;
                return Ok(true);
            }
        }
        Err("the stream does not end".into())
    }

    /// The coordinator has committed: the target serves, the source gives up.
    pub(super) fn commit(&mut self) {
        self.target.keyspace.activate(MOVING).expect("prepared");
        self.source.keyspace.drop_copy(MOVING).expect("served");
        self.target.commit();
        self.source.commit();
        self.target.keyspace.settle(MOVING);
    }

    /// Compares everything visible at the target with the model.
    pub(super) fn compare(&self) -> Result<(), String> {
        let now_ms = self.target.keyspace.now_ms();
        let mut found = contents(self.target.keyspace.all_served());
        found.retain(|_, (_, at)| *at == 0 || *at > now_ms);
        let is_visible = |at: Option<i128>| at.is_none_or(|at| at > now_ms.into());
        let expected = self
            .model
            .keys
            .iter()
            .filter(|(_, (_, at))| is_visible(*at));
        let mut count = 0;
        for (key, (value, at)) in expected {
            let at = at.map_or(0, |at| u64::try_from(at).expect("a time"));
            let name = String::from_utf8_lossy(key);
            match found.get(key) {
                Some((other, _)) if other != value => return Err(format!("value of {name}")),
                Some((_, other)) if *other != at => return Err(format!("expiry of {name}")),
                Some(_) => count += 1,
                None => return Err(format!("{name} is lost")),
            }
        }
        if count != found.len() {
            return Err(format!("{} keys too many", found.len() - count));
        }
        Ok(())
    }
}
