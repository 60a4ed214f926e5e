//! Commands that the node asks the coordinators for: the answer comes later, in its place.

use ephesus_wire::Lsn;

use super::command::SlotCommand;
use super::thread::Asked;
use crate::command::error::ClientError;
use crate::command::parse::Request;
use crate::command::spec::Cmd;
use crate::shard::connection::Connection;
use crate::shard::core::Core;
use crate::shard::mesh::Scope;

/// More of them are under way than the node takes.
const BUSY: &[u8] = b"-ERR too many commands about slots are under way, try again\r\n";

/// Moving slots is for operators; a network is not the place to tell who is one.
const FORBIDDEN: &[u8] = b"-ERR this command is for clients of this machine; start the node with \
    --allow-slot-commands to allow it to all, or use ephesus move\r\n";

impl Core {
    /// Hands CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS or CANCELSLOTMIGRATIONS to the node.
    pub(crate) fn ask_about_slots(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let changes = cmd != Cmd::ClusterGetslotmigrations;
        let settings = &self.node.settings;
        if changes
            && !settings.allow_slot_commands
            && !connection.remote.ip().to_canonical().is_loopback()
        {
            connection.outbox.write(self.turn, |bytes| {
                bytes.extend_from_slice(FORBIDDEN);
                Lsn::ZERO
            });
            return Ok(());
        }
        let command = SlotCommand::parse(cmd, request)?;
        let origin = self.await_thread(connection);
        let asked = Asked {
            origin,
            protocol: connection.protocol,
            command,
            shard: (scope != Scope::Node).then_some(self.id),
        };
        let queue = self.node.slot_migrations.as_ref();
        if queue.is_none_or(|queue| queue.try_send(asked).is_err()) {
            connection
                .outbox
                .fill(origin.ticket, BUSY.to_vec(), Lsn::ZERO);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::net::ListenerKind;
    use crate::shard::bed::Bed;

    const LOOK: &str = "CLUSTER GETSLOTMIGRATIONS";
    const MIGRATE: &str =
        "CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE 0123456789012345678901234567890123456789";
    const CANCEL: &str = "CLUSTER CANCELSLOTMIGRATIONS";

    #[test]
    fn clients_beyond_loopback_look_at_moves_and_change_nothing_unless_they_may() {
        for (remote, is_allowed, may_change) in [
            ("127.0.0.1:1", false, true),
            ("[::1]:1", false, true),
            ("[::ffff:127.0.0.1]:1", false, true),
            ("10.0.0.1:1", false, false),
            ("[::ffff:10.0.0.1]:1", false, false),
            ("10.0.0.1:1", true, true),
        ] {
            let mut bed = Bed::of_node(1, &[], |node| {
                node.settings.allow_slot_commands = is_allowed
            });
            let client = bed.connect(0, ListenerKind::Direct);
            let connections = &mut bed.core(0).connections;
            let connection = connections.get_mut(client.token).expect("connected");
            connection.remote = remote.parse().expect("an address");
            for (command, may) in [(LOOK, true), (MIGRATE, may_change), (CANCEL, may_change)] {
                let reply = bed.ask(client, &[command]);
                // Nobody asks the coordinators here: what may be asked finds that.
                let word = if may {
                    "try again"
                } else {
                    "--allow-slot-commands"
                };
                assert!(reply.contains(word), "{remote} {command}: {reply}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_does_not_wait_for_the_coordinators() {
        let (queue, asked) = flume::unbounded();
        let mut bed = Bed::of_node(1, &[], |node| node.slot_migrations = Some(queue));
        let client = bed.connect(0, ListenerKind::Direct);
        let reply = bed.ask(client, &["CLUSTER MIGRATESLOTS SLOTSRANGE 0 1 NODE x"]);
        assert_eq!(reply, "-ERR Invalid node name: x\r\n");
        assert!(asked.is_empty());
        assert_eq!(bed.ask(client, &["PING"]), "+PONG\r\n");
        bed.send(client, &[MIGRATE]);
        bed.settle();
        assert_eq!(asked.len(), 1);
    }

    #[test]
    fn one_connection_has_one_question_about_slots_under_way() {
        let (queue, asked) = flume::unbounded();
        let mut bed = Bed::of_node(1, &[], |node| node.slot_migrations = Some(queue));
        let client = bed.connect(0, ListenerKind::Direct);
        bed.send(client, &[LOOK, LOOK, "PING", LOOK]);
        bed.settle();
        assert_eq!(asked.len(), 1);
        let other = bed.connect(0, ListenerKind::Direct);
        bed.send(other, &[LOOK]);
        bed.settle();
        assert_eq!(asked.len(), 2, "others have their own");
    }
}
