//! One end's way to the other: a socket to another node, or the inbox of another shard of this node.

use std::collections::VecDeque;
use std::time::Instant;

use ephesus_wire::limits::{FRAME_PAYLOAD_BYTES_MAX, STREAM_REASON_BYTES_MAX};
use ephesus_wire::stream::Message;
use ephesus_wire::{MigrationId, ShardId};

use super::input::Input;
use super::mail::{End, Mail};
use super::socket::Sockets;
use crate::migration::Way;
use crate::net::StreamId;
use crate::node::NodeShared;
use crate::shard::mesh;

/// Receive buffer of a source, which only acknowledgements come to.
const SOURCE_INPUT_BYTES: usize = 16 << 10;

/// The way to the other end.
#[derive(Debug)]
pub(super) struct Link {
    batch: MigrationId,
    end: End,
    wire: Wire,
}

#[derive(Debug)]
enum Wire {
    Socket {
        id: StreamId,
        /// Sequence of the next frame to send and of the next to come.
        next_out: u64,
        next_in: u64,
    },
    Shard {
        peer: ShardId,
        inbox: VecDeque<(MigrationId, Mail)>,
        out: Vec<(MigrationId, Mail)>,
        heard: Instant,
    },
    Closed,
}

impl Link {
    /// This end of a batch's stream.
    ///
    /// # Errors
    /// What the operating system says about the socket.
    pub(super) fn new(
        batch: MigrationId,
        end: End,
        way: Way,
        sockets: &mut Sockets,
        now: Instant,
    ) -> std::io::Result<Link> {
        let wire = match way {
            Way::Node(stream) => {
                // OPEN was frame 0 of the source.
                let (input, next_out, next_in) = match end {
                    End::Source => {
                        let buf = vec![0; SOURCE_INPUT_BYTES];
                        (Input::new(buf, STREAM_REASON_BYTES_MAX), 1, 0)
                    }
                    End::Target => {
                        let buf = sockets.buffer();
                        (Input::new(buf, FRAME_PAYLOAD_BYTES_MAX), 0, 1)
                    }
                };
                Wire::Socket {
                    id: sockets.open(stream, input, now)?,
                    next_out,
                    next_in,
                }
            }
            Way::Shard(peer) => Wire::Shard {
                peer,
                inbox: VecDeque::new(),
                out: Vec::new(),
                heard: now,
            },
        };
        Ok(Link { batch, end, wire })
    }

    /// Queues a message about a migration.
    pub(super) fn send(&mut self, migration: MigrationId, mail: Mail, sockets: &mut Sockets) {
        match &mut self.wire {
            Wire::Socket { id, next_out, .. } => {
                sockets.send(*id, mail.into_frame(migration, *next_out));
                *next_out += 1;
            }
            Wire::Shard { out, .. } => out.push((migration, mail)),
            Wire::Closed => {}
        }
    }

    /// Whether something that was sent waits for the other end to read on: an inbox takes everything.
    pub(super) fn has_unsent(&self, sockets: &mut Sockets) -> bool {
        match &self.wire {
            Wire::Socket { id, .. } => sockets.has_unsent(*id),
            Wire::Shard { .. } | Wire::Closed => false,
        }
    }

    /// Hands what was queued to the other shard of this node.
    pub(super) fn flush(&mut self, node: &NodeShared) {
        if let Wire::Shard { peer, out, .. } = &mut self.wire
            && !out.is_empty()
        {
            node.peers[*peer].send(mesh::Message::Stream {
                batch: self.batch,
                to: self.end.other(),
                messages: std::mem::take(out),
            });
        }
    }

    /// Takes messages of the other shard.
    pub(super) fn deliver(&mut self, messages: Vec<(MigrationId, Mail)>, now: Instant) {
        if let Wire::Shard { inbox, heard, .. } = &mut self.wire {
            inbox.extend(messages);
            *heard = now;
        }
    }

    /// The first message that has arrived, and its migration; it stays until [`Link::consume`].
    ///
    /// # Errors
    /// Why there will be no more, for people.
    pub(super) fn front<'a>(
        &'a mut self,
        sockets: &'a mut Sockets,
    ) -> Result<Option<(MigrationId, Message<'a>)>, String> {
        match &mut self.wire {
            Wire::Socket { id, next_in, .. } => {
                let Some(frame) = sockets.front(*id)? else {
                    return Ok(None);
                };
                let said = Message::decode(&frame).map_err(|error| error.to_string())?;
                // A farewell takes the place of frames that were not sent any more.
                let is_last = matches!(said.1, Message::End(_) | Message::Refused(_));
                if frame.sequence != *next_in && !is_last {
                    let found = frame.sequence;
                    return Err(format!("frame {found} came where {next_in} was due"));
                }
                Ok(Some(said))
            }
            Wire::Shard { inbox, .. } => {
                let first = inbox.front();
                Ok(first.map(|(migration, mail)| (*migration, mail.as_message())))
            }
            Wire::Closed => Err("the stream is closed".into()),
        }
    }

    /// Lets go of the message that [`Link::front`] has shown.
    pub(super) fn consume(&mut self, sockets: &mut Sockets) {
        match &mut self.wire {
            Wire::Socket { id, next_in, .. } => {
                *next_in += 1;
                sockets.consume(*id);
            }
            Wire::Shard { inbox, .. } => drop(inbox.pop_front()),
            Wire::Closed => {}
        }
    }

    /// Since when more is waited for, while nothing has arrived that was not consumed.
    pub(super) fn heard(&self, sockets: &mut Sockets) -> Option<Instant> {
        match &self.wire {
            Wire::Socket { id, .. } => sockets.heard(*id),
            Wire::Shard { inbox, heard, .. } => inbox.is_empty().then_some(*heard),
            Wire::Closed => None,
        }
    }

    /// Ends this direction with a last message; what comes is thrown away.
    pub(super) fn close(
        &mut self,
        farewell: Mail,
        sockets: &mut Sockets,
        node: &NodeShared,
        now: Instant,
    ) {
        match &mut self.wire {
            Wire::Socket { id, next_out, .. } => {
                sockets.close(*id, farewell.into_frame(self.batch, *next_out), now);
            }
            Wire::Shard { out, .. } => {
                out.clear();
                out.push((self.batch, farewell));
                self.flush(node);
            }
            Wire::Closed => {}
        }
        self.wire = Wire::Closed;
    }
}
