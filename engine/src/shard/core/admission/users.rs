//! Who asks, and whether it may.

use std::sync::Arc;

use ephesus_wire::database;
use ephesus_wire::resp::reply;

use crate::acl::command as acl;
use crate::acl::log::{Attempt, Context};
use crate::acl::permissions::STEPS_MAX;
use crate::acl::thread::Asked;
use crate::acl::{Followed, User, Users, password};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::{Cmd, Spec};
use crate::shard::connection::{Connection, Life};
use crate::shard::core::{Core, Step};
use crate::shard::mesh::Refused;

/// Steps of comparing that take as long as a byte of input.
const STEPS_PER_INPUT_BYTE: usize = 16;

/// Input that takes as long as comparing did that has left so many steps.
pub(crate) fn as_input(steps_left: usize) -> usize {
    (STEPS_MAX - steps_left) / STEPS_PER_INPUT_BYTE
}

impl Core {
    /// Lets a connection be who it is by the newest users; one whose user is gone is closed, and one that has subscribed
    /// to what its user may have lost.
    #[inline]
    pub(crate) fn identify(&mut self, connection: &mut Connection) {
        let version = self.node.users.version();
        if !connection.identity.may_do_everything_at(version) {
            self.follow_users(connection);
        }
    }

    #[cold]
    fn follow_users(&mut self, connection: &mut Connection) {
        let users = self.node.users.newest();
        if !follows(connection, &users) {
            connection.cut_off();
        }
    }

    /// [`Core::identify`] of all connections, when users have changed.
    pub(crate) fn review_users(&mut self) {
        let version = self.node.users.version();
        if version == self.admission.users_version {
            return;
        }
        self.admission.users_version = version;
        let users = self.node.users.newest();
        for token in self.connections.tokens() {
            if let Some(connection) = self.connections.get_mut(token)
                && connection.life == Life::Open
                && !follows(connection, &users)
            {
                connection.cut_off();
                self.list(token);
            }
        }
    }

    /// Whether the connection may send the command; what it may not is refused, and noted.
    ///
    /// # Errors
    /// What it is told.
    #[inline]
    pub(crate) fn check_user(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let version = self.node.users.version();
        if connection.identity.may_do_everything_at(version) {
            return Ok(());
        }
        self.check_limited(connection, spec, request)
    }

    #[cold]
    fn check_limited(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        if connection.identity.owes_password() && !spec.is_free_of_auth() {
            return Err(ClientError::NoAuth);
        }
        let Some(user) = connection.identity.user().map(Arc::clone) else {
            return Err(ClientError::NoAuth);
        };
        let mut steps = STEPS_MAX;
        let checked = user.check(spec, request, &mut steps);
        connection.note_executed(as_input(steps));
        if let Err(denied) = checked {
            let context = match connection.is_in_transaction() {
                true => Context::Multi,
                false => Context::Toplevel,
            };
            let (reason, object) = (denied.reason(), denied.object(request));
            self.note_denied(connection, (reason, context), object, user.name());
            return Err(ClientError::NoPermission(denied.told(user.name())));
        }
        Ok(())
    }

    /// Whether the connection still may execute a command that it has queued, whose keys are named as they are stored.
    ///
    /// # Errors
    /// [`ClientError::NoPermissionAtExec`].
    #[inline]
    pub(crate) fn check_queued(
        &self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        match self.limited_user(connection) {
            Some(user) => self.check_queued_of(connection, &user, spec, request),
            None => Ok(()),
        }
    }

    #[cold]
    fn check_queued_of(
        &self,
        connection: &mut Connection,
        user: &User,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let mut args = request.to_args();
        for index in spec.keys_of(request) {
            if let Some(arg) = args.get_mut(index) {
                *arg = database::split(arg).1;
            }
        }
        let mut steps = STEPS_MAX;
        let checked = user.check(spec, &args[..], &mut steps);
        connection.note_executed(as_input(steps));
        checked.map_err(|denied| {
            let (reason, object) = (denied.reason(), denied.object(&args[..]));
            self.note_denied(connection, (reason, Context::Multi), object, user.name());
            ClientError::NoPermissionAtExec(denied)
        })
    }

    /// Who a connection is by the newest users, unless that user may do everything.
    #[inline]
    pub(crate) fn limited_user(&self, connection: &mut Connection) -> Option<Arc<User>> {
        let version = self.node.users.version();
        match connection.identity.may_do_everything_at(version) {
            true => None,
            false => self.newest_user(connection),
        }
    }

    #[cold]
    fn newest_user(&self, connection: &mut Connection) -> Option<Arc<User>> {
        let users = self.node.users.newest();
        if !follows(connection, &users) {
            connection.cut_off();
        }
        let user = connection.identity.user().map(Arc::clone);
        user.filter(|user| !user.permissions.are_unlimited())
    }

    /// The user of that id, as whom another shard's connection has sent something.
    ///
    /// # Errors
    /// [`ClientError::NoAuth`]: it is gone, and its connections with it.
    pub(crate) fn user_of(&self, id: u64) -> Result<Arc<User>, ClientError> {
        let users = self.node.users.newest();
        users.of_id(id).map(Arc::clone).ok_or(ClientError::NoAuth)
    }

    /// Notes what a script of the connection has tried.
    pub(crate) fn note_refused_to(&self, connection: &Connection, refused: &Refused) {
        let what = (refused.reason, Context::Script);
        self.note_denied(connection, what, &refused.object, &refused.user);
    }

    fn note_denied(
        &self,
        connection: &Connection,
        (reason, context): (&'static str, Context),
        object: &[u8],
        user: &[u8],
    ) {
        let stats = self.stats();
        let counter = match reason {
            "auth" => &stats.denied_auth,
            "key" => &stats.denied_key,
            "channel" => &stats.denied_channel,
            _ => &stats.denied_command,
        };
        counter.add(1);
        let now_ms = self.keyspace.now_ms();
        let client = connection.with_info(now_ms, |info| info.to_string());
        let attempt = Attempt {
            reason,
            context,
            object,
            user,
            client,
        };
        self.node.users.note_denied(attempt, now_ms);
    }

    /// AUTH.
    ///
    /// # Errors
    /// What the client is told.
    pub(crate) fn auth(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        match request.len() {
            2 if self.node.users.newest().default_user().needs_no_password => {
                Err(ClientError::NoPasswordSet)
            }
            2 => self.authenticate(connection, b"default", request.arg(1)),
            3 => self.authenticate(connection, request.arg(1), request.arg(2)),
            _ => Err(ClientError::Syntax),
        }
    }

    /// Makes the connection a user whose password it knows.
    ///
    /// # Errors
    /// [`ClientError::WrongPassword`]: it is who it was.
    pub(crate) fn authenticate(
        &mut self,
        connection: &mut Connection,
        name: &[u8],
        password: &[u8],
    ) -> Result<(), ClientError> {
        let users = self.node.users.newest();
        match users.authenticate(name, password) {
            Some(user) => {
                connection.identity.become_user(user, &users);
                Ok(())
            }
            None => {
                self.note_denied(connection, ("auth", Context::Toplevel), b"AUTH", name);
                Err(ClientError::WrongPassword)
            }
        }
    }

    /// A subcommand of ACL that is answered at once.
    ///
    /// # Errors
    /// What the client is told.
    pub(crate) fn acl(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        let protocol = connection.protocol;
        let now_ms = self.keyspace.now_ms();
        match spec.cmd {
            Cmd::AclWhoami => reply::bulk(out, connection.identity.name()),
            Cmd::AclGenpass => {
                let bits = acl::password_bits(request)?;
                let mut random = vec![0; bits.div_ceil(8)];
                getrandom::fill(&mut random).map_err(|_| ClientError::NoRandomness)?;
                reply::bulk(out, password::digits(&random, bits).as_bytes());
            }
            Cmd::AclLog => match acl::log_count(request)? {
                Some(count) => self.node.users.denied().write(out, protocol, count, now_ms),
                None => {
                    self.node.users.denied().clear();
                    out.extend_from_slice(reply::OK);
                }
            },
            Cmd::AclSetuser => {
                let rules = (3..request.len()).map(|index| request.arg(index));
                let changed = self
                    .node
                    .users
                    .change(|users| users.set(request.arg(2), rules));
                changed.map_err(|error| acl::refusal(error, request, 3))?;
                self.users_changed();
                out.extend_from_slice(reply::OK);
            }
            Cmd::AclDeluser => {
                let names = (2..request.len()).map(|index| request.arg(index));
                let removed = self.node.users.change(|users| users.remove(names));
                let removed = removed.map_err(|error| acl::refusal(error, request, 2))?;
                self.users_changed();
                reply::integer(out, removed as i64);
            }
            _ => acl::reply(out, protocol, spec.cmd, request, &self.node.users.newest())?,
        }
        Ok(())
    }

    /// Wakes the other shards, which look at who is gone in their next turn.
    fn users_changed(&mut self) {
        self.node.peers.iter().for_each(|peer| peer.waker().wake());
    }

    /// ACL LOAD and ACL SAVE.
    ///
    /// # Errors
    /// [`ClientError::NoAclFile`] or [`ClientError::AclFileBusy`].
    pub(crate) fn ask_acl_file(
        &mut self,
        connection: &mut Connection,
        cmd: Cmd,
    ) -> Result<Step, ClientError> {
        let users = Arc::clone(&self.node.users);
        let file = users.file().ok_or(ClientError::NoAclFile)?;
        if file.queue.is_full() {
            return Err(ClientError::AclFileBusy);
        }
        let origin = self.await_thread(connection);
        let saves = cmd == Cmd::AclSave;
        if file.queue.try_send(Asked { origin, saves }).is_err() {
            // The node stops, or others were faster.
            let mut bytes = Vec::new();
            ClientError::AclFileBusy.write(&mut bytes);
            connection
                .outbox
                .fill(origin.ticket, bytes, ephesus_wire::Lsn::ZERO);
            connection.settling = false;
        }
        Ok(Step::Done)
    }
}

/// Whether a connection goes on with its user as it is by the newest users.
fn follows(connection: &mut Connection, users: &Users) -> bool {
    match connection.identity.follow(users) {
        Followed::Here => true,
        Followed::WithFewerChannels => connection.subscriptions.is_none(),
        Followed::Gone => false,
    }
}
