//! What a socket sends out of memory that is lent to the kernel, without copying it.
//!
//! ```text
//! queue -> (begun: a part is in the pipe) -> lent: the kernel refers to it -> taken by the other end, to be used again
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use ephesus_wire::MigrationId;

use super::mail::FrameParts;
use super::socket::SEND_BYTES;
use crate::migration::{Buffer, Spare};
use crate::net::{Lent, Pipe};

/// Such frames of one socket, in the order in which they go.
#[derive(Debug, Default)]
pub(super) struct Lending {
    pipe: Option<Pipe>,
    /// The frame of which a part is in the pipe, and how long that is.
    begun: Option<(LentFrame, usize)>,
    /// What the kernel refers to.
    lent: VecDeque<LentFrame>,
    /// The system does not let us: frames are copied.
    is_refused: bool,
}

#[derive(Debug)]
struct LentFrame {
    migration: MigrationId,
    /// Sequence of its last record.
    last_seq: u64,
    lent: Lent,
}

impl Lending {
    /// Whether the pipe or a frame that is not wholly in it has something left.
    pub(super) fn is_busy(&self) -> bool {
        self.begun.is_some() || self.pipe.as_ref().is_some_and(|pipe| !pipe.is_empty())
    }

    /// Whether the first frame of `queue` is such a one.
    pub(super) fn may_send(&self, queue: &VecDeque<FrameParts>) -> bool {
        !self.is_refused && queue.front().is_some_and(FrameParts::is_lent)
    }

    /// Sends lent frames from the front of `queue` as far as the socket has room, and a turn time; the bytes.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn send(
        &mut self,
        queue: &mut VecDeque<FrameParts>,
        socket: RawFd,
    ) -> io::Result<usize> {
        let mut sent = 0;
        while self.is_busy() || self.may_send(queue) {
            self.fill(queue)?;
            let Some(pipe) = &mut self.pipe else { break };
            sent += pipe.drain(socket)?;
            if !pipe.is_empty() || sent >= SEND_BYTES {
                break;
            }
        }
        Ok(sent)
    }

    /// Puts frames into the pipe.
    fn fill(&mut self, queue: &mut VecDeque<FrameParts>) -> io::Result<()> {
        if self.pipe.is_none() {
            self.pipe = Pipe::new().ok();
        }
        let Some(pipe) = &mut self.pipe else {
            self.is_refused = true;
            return Ok(());
        };
        let mut bytes = 0;
        while bytes < SEND_BYTES {
            let Some((frame, done)) = self.begun.take().or_else(|| Some((pop_lent(queue)?, 0)))
            else {
                break;
            };
            let taken = match pipe.fill(&frame.lent, done) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.begun = Some((frame, done));
                    break;
                }
                taken => taken?,
            };
            bytes += taken;
            if done + taken < frame.lent.frame().len() {
                self.begun = Some((frame, done + taken));
            } else {
                self.lent.push_back(frame);
            }
        }
        Ok(())
    }

    /// The other end has taken the migration's records up to `seq`, and so all that was sent before them: keeps the
    /// memory.
    pub(super) fn taken(&mut self, migration: MigrationId, seq: u64, spare: &mut Spare) {
        let is_there = |frame: &LentFrame| frame.migration == migration && frame.last_seq <= seq;
        if let Some(last) = self.lent.iter().rposition(is_there) {
            for frame in self.lent.drain(..=last) {
                spare.keep(Buffer::Lent(frame.lent));
            }
        }
    }
}

/// The first frame of `queue`, if it is a lent one.
fn pop_lent(queue: &mut VecDeque<FrameParts>) -> Option<LentFrame> {
    let frame = queue.pop_front()?;
    match frame.rest {
        Buffer::Lent(lent) => Some(LentFrame {
            migration: frame.migration,
            last_seq: frame.last_seq,
            lent,
        }),
        rest => {
            queue.push_front(FrameParts { rest, ..frame });
            None
        }
    }
}
