//! How fast one thread sends and receives.

use std::time::{Duration, Instant};

use ephesus_wire::stream::{Message, data_header};
use ephesus_wire::{Epoch, MigrationId, frame};

use super::pair::{EPOCH, MOVING, START_MS, source};
use crate::keyspace::Partition;
use crate::keyspace::tests::tape::Taped;
use crate::migration::{Outbound, Stage};

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

/// Moves keys of 16 bytes; the time each end took.
fn measure(keys: u64, value_bytes: usize) -> [Duration; 2] {
    let copy = Partition::new(MOVING, Epoch(1));
    let mut from = Taped::of(1, vec![copy], [1, 2, 3, 4], START_MS);
    let mut to = Taped::of(1, Vec::new(), [5, 6, 7, 8], START_MS);
    let value = vec![b'v'; value_bytes];
    for n in 0..keys {
        let key = format!("key:{n:012}");
        let hash = from.hasher.hash(key.as_bytes());
        let copy = from.keyspace.partition_mut(MOVING).expect("here");
        copy.table.put(hash, key.as_bytes(), &value, 0);
    }
    let began = to.keyspace.begin_incoming(MOVING, EPOCH, source(1));
    began.expect("nothing is here");
    let migration = MigrationId(1);
    let began = from.keyspace.begin_outgoing(MOVING, migration, EPOCH);
    began.expect("served");
    let mut times = [Duration::ZERO; 2];
    let mut messages = Vec::new();
    loop {
        let start = now();
        let mut steps = 0;
        from.keyspace.outgoing_slice(MOVING, || {
            steps += 1;
            steps < 16
        });
        let outgoing = from.keyspace.outgoing_mut(MOVING).expect("moving");
        while let Some(outbound) = outgoing.next_message(false, true) {
            if let Outbound::Data(records) = outbound {
                let header = data_header(migration, 1, &records.bytes);
                messages.push((header, records.bytes));
            }
        }
        times[0] += start.elapsed();
        let is_over = outgoing.stage() == Stage::CatchingUp;
        for (header, records) in messages.drain(..) {
            let bytes = [&header[..], &records].concat();
            let start = now();
            let (frame, _) = frame::decode(&bytes).expect("a frame").expect("complete");
            let Ok((_, Message::Data(records))) = Message::decode(&frame) else {
                panic!("another message");
            };
            let taken = to.keyspace.import(MOVING, records, 0, || true);
            assert_eq!(taken.expect("good records"), records.len());
            times[1] += start.elapsed();
        }
        to.commit();
        to.records.clear();
        let durable = to.keyspace.log.durable();
        let incoming = to.keyspace.incoming_mut(MOVING).expect("staging");
        if let Some(seq) = incoming.acknowledge(durable) {
            let outgoing = from.keyspace.outgoing_mut(MOVING).expect("moving");
            outgoing.acknowledged(seq).expect("it was sent");
        }
        if is_over {
            break;
        }
    }
    let held = |taped: &Taped| taped.keyspace.partition(MOVING).expect("here").table.len() as u64;
    assert_eq!([held(&from), held(&to)], [keys; 2]);
    times
}

#[test]
#[ignore = "measures: cargo test --release -p ephesus-engine --lib rates -- --ignored --nocapture"]
fn rates_of_one_thread() {
    for (keys, value_bytes) in [(1_000_000, 100), (400_000, 1_024), (30_000, 16_384)] {
        for (end, time) in ["walk and encode", "decode and apply"]
            .iter()
            .zip(measure(keys, value_bytes))
        {
            let rate = keys as f64 / time.as_secs_f64();
            let mb = rate * (16 + value_bytes) as f64 / 1e6;
            println!("{value_bytes:>6} B  {end}: {rate:>9.0} keys/s, {mb:.0} MB/s");
        }
    }
}
