//! Records on their way out: messages that wait to be sent, and those not acknowledged yet.

use std::collections::VecDeque;

use ephesus_wire::limits::STREAM_DATA_BYTES;
use ephesus_wire::record::{Record, RecordMeta};
use ephesus_wire::stream::DATA_ALIGN_BYTES;

/// Bytes that wait to be sent, at which the walk stops: one step of it and some messages. Captured writes come on top.
const QUEUED_BYTES_MAX: usize = 256 << 10;

/// The records of one message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The payload of a DATA message.
    pub bytes: Vec<u8>,
    /// Sequence of the last record.
    pub last_seq: u64,
}

/// When a message is sent that further records may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenGoes {
    WhenFull,
    /// When everything else is acknowledged.
    WhenIdle,
    Now,
}

/// An ordered queue of records, cut into messages.
pub(super) struct Outbox {
    full: VecDeque<Records>,
    /// The message that the next record joins.
    open: Vec<u8>,
    /// Of the last record.
    meta: RecordMeta,
    /// Sequence of the last record that was walked: an entry may end there, and in several messages.
    walked_seq: u64,
    is_closed: bool,
    /// Bytes of all records so far.
    bytes: u64,
    queued_bytes: usize,
    /// Last sequence and length of each message that is sent and not acknowledged.
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    /// Sequence of the last record sent.
    sent_seq: u64,
}

impl Outbox {
    /// A queue of the records that follow the one with `meta`.
    pub(super) fn new(meta: RecordMeta) -> Outbox {
        Outbox {
            full: VecDeque::new(),
            open: Vec::new(),
            meta,
            walked_seq: meta.seq,
            is_closed: false,
            bytes: 0,
            queued_bytes: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            // A target that waits says which record it has last: the copy's creation.
            sent_seq: meta.seq,
        }
    }

    /// Appends a record.
    ///
    /// # Panics
    /// When the stream was closed: a bug of whoever holds writes back.
    pub(super) fn append(&mut self, record: &Record<'_>) {
        assert!(!self.is_closed, "no write after the end of the stream");
        let len = record.encoded_len();
        if self.open.len() + len > STREAM_DATA_BYTES {
            self.seal();
        }
        self.meta.seq += 1;
        if self.open.is_empty() {
            let capacity = len.next_multiple_of(DATA_ALIGN_BYTES);
            self.open = Vec::with_capacity(capacity.max(STREAM_DATA_BYTES));
        }
        record.append_to(self.meta, &mut self.open);
        self.queued_bytes += len;
        self.bytes += len as u64;
    }

    /// There are no more records.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Sequence of the last record.
    pub(super) fn last_seq(&self) -> u64 {
        self.meta.seq
    }

    /// Bytes of all records so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the open message, if there is one.
    pub(super) fn seal(&mut self) {
        if !self.open.is_empty() {
            let len = self.open.len();
            let padded = len.next_multiple_of(DATA_ALIGN_BYTES);
            self.open.resize(padded, 0);
            self.queued_bytes += padded - len;
            self.full.push_back(Records {
                bytes: std::mem::take(&mut self.open),
                last_seq: self.meta.seq,
            });
        }
    }

    /// A slice of the walk is over, and no entry is incomplete: all of its messages belong together.
    pub(super) fn walked(&mut self) {
        self.walked_seq = self.meta.seq;
        if !self.full.is_empty() {
            self.seal();
        }
    }

    /// The records of the next message, the open one if it is its time. Without room only what was walked goes: a target
    /// that has a part of an entry cannot image the copy, which may be what makes room.
    pub(super) fn take(&mut self, open: OpenGoes, has_room: bool) -> Option<Records> {
        let goes = match open {
            OpenGoes::WhenFull => false,
            OpenGoes::WhenIdle => self.in_flight.is_empty(),
            OpenGoes::Now => true,
        };
        if self.full.is_empty() && goes && has_room {
            self.seal();
        }
        let is_walked = self.full.front()?.last_seq <= self.walked_seq;
        if !has_room && !is_walked {
            return None;
        }
        let records = self.full.pop_front()?;
        let len = records.bytes.len();
        self.queued_bytes -= len;
        self.in_flight_bytes += len;
        self.in_flight.push_back((records.last_seq, len));
        self.sent_seq = records.last_seq;
        Some(records)
    }

    /// The other end has everything up to `seq`; false when that was never sent.
    pub(super) fn acknowledged(&mut self, seq: u64) -> bool {
        while let Some(&(last_seq, len)) = self.in_flight.front()
            && last_seq <= seq
        {
            self.in_flight.pop_front();
            self.in_flight_bytes -= len;
        }
        seq <= self.sent_seq
    }

    /// Whether the walk should wait.
    pub(super) fn is_full(&self) -> bool {
        self.queued_bytes >= QUEUED_BYTES_MAX
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// Bytes that are sent and not acknowledged.
    pub(super) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Bytes that are not sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes that are not acknowledged, sent or not.
    pub(super) fn backlog_bytes(&self) -> usize {
        self.queued_bytes + self.in_flight_bytes
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::{Epoch, PartitionId};

    use super::*;

    #[test]
    fn a_message_that_became_full_is_acknowledged_by_its_own_last_record() {
        let meta = RecordMeta {
            partition: PartitionId(0),
            epoch: Epoch(1),
            seq: 1,
        };
        let mut outbox = Outbox::new(meta);
        let key = vec![b'k'; STREAM_DATA_BYTES / 3];
        for _ in 0..3 {
            outbox.append(&Record::Delete { key: &key });
        }
        let take = |outbox: &mut Outbox| outbox.take(OpenGoes::WhenIdle, true);
        let first = take(&mut outbox).expect("two records");
        assert_eq!(first.last_seq, 3);
        assert_eq!(outbox.in_flight_bytes(), first.bytes.len());
        assert_eq!(outbox.unsent_bytes(), outbox.open.len());
        assert!(outbox.unsent_bytes() < outbox.backlog_bytes());
        assert_eq!(take(&mut outbox), None);
        assert!(outbox.acknowledged(2));
        assert_eq!(take(&mut outbox), None);
        assert!(outbox.acknowledged(3));
        let second = take(&mut outbox).expect("nothing is under way");
        assert_eq!(second.last_seq, 4);
        assert!(!outbox.acknowledged(5), "it was not sent");
    }

    #[test]
    fn without_room_what_was_walked_goes_to_its_end_and_what_was_captured_waits() {
        let meta = RecordMeta {
            partition: PartitionId(0),
            epoch: Epoch(1),
            seq: 1,
        };
        let mut outbox = Outbox::new(meta);
        let key = vec![b'k'; STREAM_DATA_BYTES / 2];
        for _ in 0..3 {
            outbox.append(&Record::Delete { key: &key });
        }
        outbox.walked();
        outbox.append(&Record::Delete { key: &key });
        let mut take = |has_room| outbox.take(OpenGoes::Now, has_room).map(|r| r.last_seq);
        assert_eq!(
            [take(false), take(false), take(false)],
            [Some(2), Some(3), Some(4)]
        );
        assert_eq!([take(false), take(true)], [None, Some(5)]);
    }
}
