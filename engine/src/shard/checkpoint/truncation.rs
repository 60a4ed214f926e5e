//! Giving back the log segments that images have replaced, in an order that shows lost images.
//!
//! ```text
//! FROM      TO        [by]
//! Settled   Named     [plan]     a segment is needed no more: a record names the images instead
//! Named     Settled   [give]     the record is durable: the segments go
//! ```
//!
//! A log that has been cut is not enough by itself. The last such record says which images it takes
//! besides, so that recovery refuses a store that has lost one of them; it is always in the live
//! log, because segments go only up to it.

use ephesus_wal::SegmentInfo;
use ephesus_wire::Lsn;
use ephesus_wire::record::{ImageEntry, ImagesIter, Record, RecordMeta};

use crate::image::Generation;
use crate::keyspace::Keyspace;
use crate::planted::{Bug, Planted};

/// Where giving back segments stands.
#[derive(Debug, Default)]
pub(super) struct Truncation {
    named: Option<Named>,
}

/// What may be given back once `record` is durable.
#[derive(Clone, Copy, Debug)]
struct Named {
    record: Lsn,
    /// Records below this one are in the images.
    needed: Lsn,
}

impl Truncation {
    /// Names the images in the log if that lets a segment go.
    pub(super) fn plan(&mut self, keyspace: &mut Keyspace, planted: Planted) {
        if self.named.is_some() {
            return;
        }
        let appended = keyspace.log.appended();
        let needed = oldest_needed(keyspace, planted).unwrap_or(appended.next());
        // The last segment is the one that is being written.
        let oldest = keyspace.log.segments().map(|s| s.last_lsn).next();
        let count = keyspace.log.segments().count();
        if count < 2 || oldest.is_none_or(|last_lsn| last_lsn >= needed) {
            return;
        }
        let record = if planted.has(Bug::NoImagesRecord) {
            keyspace.log.durable()
        } else {
            append_images(keyspace)
        };
        self.named = Some(Named { record, needed });
    }

    /// The record that has to be durable before segments go.
    pub(super) fn waits_for(&self) -> Option<Lsn> {
        self.named.map(|named| named.record)
    }

    /// The segments that may go now, oldest first.
    pub(super) fn give(&mut self, keyspace: &mut Keyspace, planted: Planted) -> Vec<SegmentInfo> {
        match self.named {
            Some(named)
                if keyspace.log.durable() >= named.record
                    || planted.has(Bug::TruncateBeforeNamed) =>
            {
                self.named = None;
                keyspace.log.truncate_before(named.needed)
            }
            _ => Vec::new(),
        }
    }
}

fn oldest_needed(keyspace: &Keyspace, planted: Planted) -> Option<Lsn> {
    if planted.has(Bug::TruncateBeforeSwitch) {
        let settled = keyspace.partitions().filter(|p| !p.is_imaging());
        return settled.filter_map(|p| p.pin()).min();
    }
    keyspace.oldest_pin().map(|(lsn, _)| lsn)
}

/// Appends the record that names the current image of every copy that has one.
#[expect(clippy::expect_used, reason = "what was encoded here can be read")]
fn append_images(keyspace: &mut Keyspace) -> Lsn {
    let mut body = Vec::new();
    let imaged = keyspace
        .partitions()
        .filter(|p| p.generation > Generation(0));
    let entries = imaged.map(|partition| ImageEntry {
        partition: partition.id,
        epoch: partition.epoch,
        generation: partition.generation.0,
    });
    ImagesIter::encode(entries, &mut body);
    let images = ImagesIter::new(&body).expect("just encoded");
    let record = Record::Images(images);
    keyspace.log.append_with(record.encoded_len(), |buf| {
        record.encode_into(RecordMeta::default(), buf);
    })
}
