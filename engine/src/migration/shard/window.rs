//! How much is on its way between shards: the one bound of a stream, which the target gives and the source keeps to.
//!
//! WINDOW says what the target's log has, and how much may be under way behind that. So what lies in connections, in the
//! target's memory and in its log's buffers is bounded by one number, and with it what is in front of a stream's end when
//! commands are held. A target whose log has no room gives no credit: walks, and what clients write behind them, wait at
//! the source.

use std::collections::VecDeque;

use ephesus_wire::{Lsn, NodeId, ShardId};

/// What a shard takes from all sources together before its log has it: as much as a disk of a GB/s writes in the few ms
/// that an acknowledgement takes, and no more than one of 200 MB/s writes in the 20 ms that a hold may take.
pub(super) const WINDOW_BYTES: usize = 4 << 20;

/// The shard at the other end.
pub(super) type Peer = (NodeId, ShardId);

/// What a target's shard gives each of so many sources' shards.
pub(super) fn credit(has_room: bool, sources: usize) -> usize {
    match has_room {
        true => WINDOW_BYTES / sources.max(1),
        false => 0,
    }
}

/// The credits of a source's shard, one for each shard that it sends to.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<Window>);

#[derive(Debug)]
struct Window {
    to: Peer,
    credit: u64,
    in_flight_bytes: usize,
    is_used: bool,
}

impl Windows {
    /// Counts anew what each stream has under way, and forgets shards that no stream goes to.
    pub(super) fn count(&mut self, streams: impl Iterator<Item = (Peer, usize)>) {
        for window in &mut self.0 {
            (window.in_flight_bytes, window.is_used) = (0, false);
        }
        for (to, bytes) in streams {
            let window = self.of(to);
            window.in_flight_bytes += bytes;
            window.is_used = true;
        }
        self.0.retain(|window| window.is_used);
    }

    /// The target's last word; no target takes more than [`WINDOW_BYTES`].
    pub(super) fn granted(&mut self, to: Peer, credit: u64) {
        self.of(to).credit = credit.min(WINDOW_BYTES as u64);
    }

    /// So many bytes are under way besides.
    pub(super) fn sent(&mut self, to: Peer, bytes: usize) {
        self.of(to).in_flight_bytes += bytes;
    }

    /// Whether a copy may be walked on, or a message of captured writes be sent.
    pub(super) fn has_room(&self, to: Peer) -> bool {
        let window = self.0.iter().find(|window| window.to == to);
        window.is_some_and(|window| (window.in_flight_bytes as u64) < window.credit)
    }

    fn of(&mut self, to: Peer) -> &mut Window {
        let at = self.0.iter().position(|window| window.to == to);
        let at = at.unwrap_or_else(|| {
            self.0.push(Window {
                to,
                credit: 0,
                in_flight_bytes: 0,
                is_used: true,
            });
            self.0.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found, or just pushed")]
        &mut self.0[at]
    }
}

/// What imports have added to a target's log that it has not written, by when it was appended: a source that sends more
/// than it may waits in its connection.
#[derive(Debug, Default)]
pub(super) struct Imported {
    slices: VecDeque<(Lsn, usize)>,
    bytes: usize,
}

impl Imported {
    /// A slice has appended records of so many bytes, up to this one.
    pub(super) fn appended(&mut self, last: Lsn, bytes: usize) {
        if bytes > 0 {
            self.slices.push_back((last, bytes));
            self.bytes += bytes;
        }
    }

    /// Whether more may be imported, now that the log has written all up to this record.
    pub(super) fn has_room(&mut self, written: Lsn) -> bool {
        while let Some(&(lsn, bytes)) = self.slices.front()
            && lsn <= written
        {
            self.slices.pop_front();
            self.bytes -= bytes;
        }
        self.bytes <= WINDOW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Peer = (NodeId([1; 16]), ShardId(0));
    const B: Peer = (NodeId([1; 16]), ShardId(1));

    #[test]
    fn all_streams_to_a_shard_share_its_credit() {
        let mut windows = Windows::default();
        windows.count([(A, 0), (A, 0), (B, 0)].into_iter());
        assert!(!windows.has_room(A), "nothing was granted");
        windows.granted(A, 100);
        assert!(windows.has_room(A) && !windows.has_room(B));
        windows.sent(A, 99);
        assert!(windows.has_room(A), "a message may end beyond it");
        windows.sent(A, 50);
        assert!(!windows.has_room(A));
        windows.count([(A, 60), (A, 39)].into_iter());
        assert!(windows.has_room(A));
        windows.granted(A, 99);
        assert!(!windows.has_room(A));
        windows.count([(B, 0)].into_iter());
        windows.count([(A, 0)].into_iter());
        assert!(!windows.has_room(A), "it was forgotten meanwhile");
    }

    #[test]
    fn no_target_is_given_more_than_a_shard_takes() {
        let mut windows = Windows::default();
        windows.granted(A, u64::MAX);
        windows.sent(A, WINDOW_BYTES - 1);
        assert!(windows.has_room(A));
        windows.sent(A, 1);
        assert!(!windows.has_room(A));
    }

    #[test]
    fn sources_share_what_a_target_takes_and_get_nothing_without_room() {
        assert_eq!(credit(true, 1), WINDOW_BYTES);
        assert_eq!(credit(true, 4), WINDOW_BYTES / 4);
        assert_eq!((credit(false, 1), credit(true, 0)), (0, WINDOW_BYTES));
    }

    #[test]
    fn imports_wait_until_the_log_has_written_what_they_have_brought() {
        let mut imported = Imported::default();
        imported.appended(Lsn(10), WINDOW_BYTES);
        assert!(imported.has_room(Lsn(0)));
        imported.appended(Lsn(20), 1);
        assert!(!imported.has_room(Lsn(9)));
        assert!(imported.has_room(Lsn(10)));
    }
}
