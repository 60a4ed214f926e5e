//! Commands that name keys, executed on this shard.

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Lsn, ShardId, Slot, slot_of};

use crate::command::error::ClientError;
use crate::command::parse::Request;
use crate::command::spec::Spec;
use crate::keyspace::Reply;
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::Client;

impl Core {
    #[inline]
    pub(crate) fn execute_here(
        &mut self,
        asker: &mut Asker<'_>,
        spec: &'static Spec,
        request: &Request<'_>,
        slot: Slot,
    ) -> Result<(), ClientError> {
        let refused = self.refuse_if_full(spec);
        let is_observed = self.keyspace.is_observed() || asker.tracks_reads();
        if is_observed {
            self.keyspace.set_writer(Some(asker.client(self.id)));
        }
        let outcome = self.respond(asker, |keyspace, reply| {
            let before = reply.out.len();
            let executed = refused.and_then(|()| keyspace.execute(spec, request, slot, reply));
            let bytes_out = match &executed {
                // It is executed later.
                Err(ClientError::LargeReplies) => return executed,
                Err(error) => error.reply_len(),
                Ok(()) => reply.out.len() - before,
            };
            keyspace.note_use(spec, request, slot, (request.bytes(), bytes_out));
            executed
        });
        if is_observed {
            self.note_observed(asker, spec, request, &outcome);
        }
        outcome
    }

    /// Executes this shard's part of a divided command, if it has one, before others hear of theirs; answers its
    /// reply and what that waits for. The client may cache what it reads if it `tracks`.
    ///
    /// # Errors
    /// [`ClientError::LargeReplies`]: nothing was executed.
    #[expect(clippy::indexing_slicing, reason = "a part has a key at least")]
    pub(crate) fn execute_own_part(
        &mut self,
        spec: &'static Spec,
        parts: &[(ShardId, Vec<&[u8]>)],
        protocol: Protocol,
        (client, tracks): (Client, bool),
    ) -> Result<Option<(Vec<u8>, Lsn)>, ClientError> {
        let Some((_, args)) = parts.iter().find(|(shard, _)| *shard == self.id) else {
            return Ok(None);
        };
        let (mut out, slot) = (Vec::new(), slot_of(args[usize::from(spec.first_key())]));
        let mut reply = Reply {
            out: &mut out,
            protocol,
            gate: Lsn::ZERO,
        };
        self.keyspace.set_writer(Some(client));
        let executed = self.keyspace.execute(spec, &args[..], slot, &mut reply);
        self.keyspace.set_writer(None);
        match executed {
            Ok(()) => {}
            Err(ClientError::LargeReplies) => return Err(ClientError::LargeReplies),
            Err(error) => error.write(reply.out),
        }
        let gate = reply.gate;
        let bytes = (reply::command_len(args), out.len());
        self.keyspace.note_use(spec, &args[..], slot, bytes);
        if tracks && spec.is_read() {
            self.keyspace.track_keys(client, spec, &args[..]);
        }
        Ok(Some((out, gate)))
    }
}

#[cfg(test)]
mod tests;
