//! Commands without keys: about the connection, the server, or the whole keyspace.

use std::sync::Arc;

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Database, Lsn, PartitionId, ShardId, slot_of};

use crate::command::client::{self, ClientFilter, Hello, Pause, SetInfo};
use crate::command::error::ClientError;
use crate::command::info::SectionSet;
use crate::command::parse::{self, ArgList, Request, Scan};
use crate::command::slot_stats::SlotStats;
use crate::command::spec::{Cmd, Spec};
use crate::command::{config, latency, memory, slowlog};
use crate::keyspace::databases::Flush;
use crate::keyspace::large_replies::LARGE_REPLY_BYTES;
use crate::keyspace::{Drawn, IsPart, Keyspace, ScanCursor, WalkFilter};
use crate::node::process;
use crate::shard::connection::Connection;
use crate::shard::core::Step;
use crate::shard::core::admission::waiting::{covers_shards, needs_lease};
use crate::shard::core::execution::clients::parse_kill;
use crate::shard::core::execution::functions::changes_functions;
use crate::shard::core::execution::pubsub::{
    channels_pattern, check_channel, is_about_subscriptions, is_published,
};
use crate::shard::core::execution::saves::WaitAof;
use crate::shard::core::replies::gather::{Combine, Gather};
use crate::shard::core::replies::outbox::Mute;
use crate::shard::core::{Answer, Asker, Core};
use crate::shard::mesh::{Origin, Scope};
use crate::shard::snapshot;

/// How often a command over all shards is asked again because partitions have moved between them.
const ROUNDS_MAX: u32 = 16;

impl Core {
    pub(crate) fn keyless(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<Step, ClientError> {
        match spec.cmd {
            Cmd::Spublish if self.leads_channels_away(connection, request)? => {
                return Ok(Step::Redirected);
            }
            cmd if is_about_subscriptions(cmd) => {
                return self.change_subscriptions(connection, cmd, request);
            }
            cmd if covers_shards(cmd) => {
                if needs_lease(cmd) {
                    self.router.check_serving()?;
                }
                if matches!(spec.cmd, Cmd::Flushall | Cmd::Flushdb)
                    && self.admission.holds.holds_any()
                {
                    parse::flush(request)?;
                    return self.admission.holds.step_of_held();
                }
                let is_of_node = matches!(
                    cmd,
                    Cmd::ClientPause
                        | Cmd::ClientUnpause
                        | Cmd::Publish
                        | Cmd::Spublish
                        | Cmd::PubsubChannels
                        | Cmd::PubsubNumsub
                        | Cmd::PubsubNumpat
                );
                if (scope == Scope::Node || is_of_node) && self.router.peers.count() > 1 {
                    self.gather(connection, spec, request)?;
                } else {
                    let mut asker = Asker::Connection(connection);
                    self.whole_keyspace(&mut asker, scope, spec, request)?;
                }
                if cmd == Cmd::Publish {
                    let (channel, message) = (request.arg(1), request.arg(2));
                    self.node.exchange.publish(channel, message);
                }
            }
            Cmd::Multi | Cmd::Exec | Cmd::Discard | Cmd::Watch | Cmd::Unwatch => {
                return self.about_transaction(connection, scope, spec, request);
            }
            Cmd::Reset => self.reset(connection),
            Cmd::ClientTracking => return self.client_tracking(connection, request),
            Cmd::Debug => self.debug(connection, scope, request)?,
            Cmd::AclLoad | Cmd::AclSave => return self.ask_acl_file(connection, spec.cmd),
            cmd if changes_functions(cmd) => {
                return self.change_functions(connection, spec, request);
            }
            Cmd::ClusterMigrateslots
            | Cmd::ClusterGetslotmigrations
            | Cmd::ClusterCancelslotmigrations => {
                self.ask_about_slots(connection, scope, spec.cmd, request)?;
            }
            _ => {
                let mut out = Vec::new();
                self.about_server(connection, scope, spec, request, &mut out)?;
                connection.outbox.write(self.turn, |bytes| {
                    bytes.append(&mut out);
                    Lsn::ZERO
                });
            }
        }
        Ok(Step::Done)
    }

    fn reset(&mut self, connection: &mut Connection) {
        connection.protocol = Protocol::Resp2;
        connection.database = Database::ZERO;
        connection.readonly = false;
        connection.identity.begin(&self.node.users.newest());
        (connection.no_evict, connection.no_touch) = (false, false);
        connection.outbox.set_mute(Mute::No);
        if let Some(subscriptions) = connection.subscriptions.take() {
            self.end_subscriptions(connection.token, &subscriptions);
        }
        if std::mem::take(&mut connection.is_monitor) {
            self.end_monitoring(connection.token);
        }
        if connection.tracker.is_some() {
            self.set_tracker(connection, None);
        }
        connection.attributes_mut().name.clear();
        let mut out = Vec::new();
        reply::simple(&mut out, "RESET");
        self.end_transaction(connection, &out);
    }

    /// A command that is answered at once.
    pub(crate) fn about_server(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        let protocol = connection.protocol;
        let now_ms = self.keyspace.now_ms();
        match spec.cmd {
            Cmd::Ping if connection.subscriptions.is_some() && protocol == Protocol::Resp2 => {
                if request.len() > 2 {
                    return Err(ClientError::WrongArity(spec.name));
                }
                reply::array(out, 2);
                reply::bulk(out, b"pong");
                let text = (request.len() == 2).then(|| request.arg(1));
                reply::bulk(out, text.unwrap_or_default());
            }
            Cmd::Ping => match request.len() {
                1 => out.extend_from_slice(reply::PONG),
                3.. => return Err(ClientError::WrongArity(spec.name)),
                _ => reply::bulk(out, request.arg(1)),
            },
            Cmd::AclCat
            | Cmd::AclDeluser
            | Cmd::AclDryrun
            | Cmd::AclGenpass
            | Cmd::AclGetuser
            | Cmd::AclList
            | Cmd::AclLog
            | Cmd::AclSetuser
            | Cmd::AclUsers
            | Cmd::AclWhoami => self.acl(connection, spec, request, out)?,
            Cmd::Echo => reply::bulk(out, request.arg(1)),
            Cmd::Auth => {
                self.auth(connection, request)?;
                out.extend_from_slice(reply::OK);
            }
            Cmd::Hello => self.hello(connection, request, out)?,
            Cmd::Select => {
                connection.database =
                    parse::database(request.arg(1), self.node.settings.databases)?;
                out.extend_from_slice(reply::OK);
            }
            Cmd::Quit => {
                out.extend_from_slice(reply::OK);
                connection.drain();
            }
            Cmd::Readonly | Cmd::Readwrite => {
                connection.readonly = spec.cmd == Cmd::Readonly;
                out.extend_from_slice(reply::OK);
            }
            Cmd::Asking => out.extend_from_slice(reply::OK),
            Cmd::ClientId => reply::integer(out, connection.id as i64),
            Cmd::ClientInfo => connection.with_info(now_ms, |info| {
                let text = client_line(&info);
                reply::verbatim(out, protocol, "txt", text.as_bytes());
            }),
            Cmd::ClientGetname => match connection.name() {
                "" => reply::null(out, protocol),
                name => reply::bulk(out, name.as_bytes()),
            },
            Cmd::ClientSetname => {
                connection.attributes_mut().name = client::set_name(request)?.to_owned();
                out.extend_from_slice(reply::OK);
            }
            Cmd::ClientSetinfo => {
                match SetInfo::parse(request)? {
                    SetInfo::LibraryName(name) => {
                        connection.attributes_mut().library_name = name.to_owned();
                    }
                    SetInfo::LibraryVersion(version) => {
                        connection.attributes_mut().library_version = version.to_owned();
                    }
                }
                out.extend_from_slice(reply::OK);
            }
            Cmd::Info => {
                let snapshot = snapshot::take(&self.node, self.shard_in(scope));
                snapshot.write(out, protocol, SectionSet::parse(request));
            }
            Cmd::ConfigGet => {
                let parameters = self.node.parameters();
                config::write_matching(out, protocol, &parameters, request)?;
            }
            Cmd::ConfigSet => {
                let changes = config::changes(request, &self.node.parameters())?;
                changes
                    .into_iter()
                    .for_each(|change| self.node.live.apply(change));
                out.extend_from_slice(reply::OK);
            }
            Cmd::ConfigRewrite => return Err(ClientError::NoConfigFile),
            Cmd::SlowlogGet => {
                slowlog::write(out, &self.node.slow.latest(slowlog::count(request)?));
            }
            Cmd::SlowlogLen => reply::integer(out, self.node.slow.entries() as i64),
            Cmd::SlowlogReset => {
                self.node.slow.clear();
                out.extend_from_slice(reply::OK);
            }
            Cmd::LatencyHistogram => {
                let covered = snapshot::covered(&self.node, self.shard_in(scope));
                let times_of = |spec: &Spec| snapshot::times(&covered, spec);
                latency::write_histograms(out, protocol, request, times_of)?;
            }
            Cmd::LatencyLatest => latency::write_latest(out, &self.node.slow.samples()),
            Cmd::LatencyHistory => {
                latency::write_history(out, request.arg(2), &self.node.slow.samples());
            }
            Cmd::LatencyReset => {
                let is_reset = latency::resets(request) && self.node.slow.forget_samples();
                reply::integer(out, i64::from(is_reset));
            }
            Cmd::LatencyGraph => {
                let samples = self.node.slow.samples();
                let text = latency::graph(request.arg(2), &samples, now_ms / 1000)?;
                reply::verbatim(out, protocol, "txt", text.as_bytes());
            }
            Cmd::LatencyDoctor => {
                let threshold_ms = self.node.live.latency_threshold_ms();
                let text = latency::diagnosis(threshold_ms, &self.node.slow.samples());
                reply::verbatim(out, protocol, "txt", text.as_bytes());
            }
            Cmd::MemoryStats => {
                let info = snapshot::take(&self.node, self.shard_in(scope));
                memory::write_stats(out, protocol, &info);
            }
            Cmd::MemoryDoctor => {
                let info = snapshot::take(&self.node, self.shard_in(scope));
                let text = memory::diagnosis(&info);
                reply::verbatim(out, protocol, "txt", text.as_bytes());
            }
            Cmd::MemoryMallocstats => {
                let text = process::allocator_stats();
                reply::verbatim(out, protocol, "txt", text.as_bytes());
            }
            Cmd::ClusterKeyslot => {
                let key = connection.database.stored(request.arg(2));
                reply::integer(out, i64::from(slot_of(&key).0));
            }
            Cmd::ClusterSlots
            | Cmd::ClusterShards
            | Cmd::ClusterNodes
            | Cmd::ClusterInfo
            | Cmd::ClusterMyid => {
                let seen_from = (connection.local, connection.tls.is_some());
                self.write_cluster(spec.cmd, scope, protocol, seen_from, out);
            }
            Cmd::ScriptLoad
            | Cmd::ScriptExists
            | Cmd::ScriptFlush
            | Cmd::ScriptKill
            | Cmd::ScriptDebug => {
                self.about_scripts(spec.cmd, request, out)?;
            }
            Cmd::FunctionList | Cmd::FunctionStats | Cmd::FunctionDump | Cmd::FunctionKill => {
                self.about_functions(connection, spec.cmd, request, out)?;
            }
            _ => self.about_server_seldom(connection, spec, request, out)?,
        }
        Ok(())
    }

    /// The shard that a command without keys tells of, unless it is about the whole node.
    fn shard_in(&self, scope: Scope) -> Option<ShardId> {
        (scope != Scope::Node).then_some(self.id)
    }

    fn hello(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        let hello = Hello::parse(request)?;
        match hello.auth {
            Some((user, password)) => self.authenticate(connection, user, password)?,
            None if connection.identity.owes_password() => return Err(ClientError::HelloNoAuth),
            None => {}
        }
        if let Some(name) = hello.name {
            connection.attributes_mut().name = name.to_owned();
        }
        if let Some(protocol) = hello.protocol {
            connection.protocol = protocol;
        }
        client::write_hello(out, connection.protocol, connection.id);
        Ok(())
    }

    /// A command over all keys or connections of this shard.
    pub(crate) fn whole_keyspace(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        let database = asker.database();
        match spec.cmd {
            Cmd::Dbsize => self.respond(asker, |keyspace, reply| {
                keyspace.dbsize(database, reply);
                Ok(())
            })?,
            Cmd::Flushall | Cmd::Flushdb => {
                parse::flush(request)?;
                self.refuse_if_full(spec)?;
                let flush = match spec.cmd {
                    Cmd::Flushdb => self.keyspace.flush_of(database),
                    _ => Flush::Everything,
                };
                if flush == Flush::Walk {
                    return self.begin_walk(asker, WalkFilter::Remove);
                }
                self.respond(asker, |keyspace, reply| {
                    keyspace.flush_at_once(flush, reply);
                    reply.out.extend_from_slice(reply::OK);
                    Ok(())
                })?;
            }
            Cmd::Randomkey => {
                let random = self.execution.random.draw();
                let drawn = self.keyspace.random_key(database, random);
                if drawn == Drawn::Seldom {
                    let walk = WalkFilter::Random(random, asker.protocol());
                    return self.begin_walk(asker, walk);
                }
                self.respond(asker, |keyspace, reply| {
                    reply.gate = reply.gate.max(keyspace.log.appended());
                    match drawn {
                        Drawn::Key(key) => reply::bulk(reply.out, &key),
                        _ => reply::null(reply.out, reply.protocol),
                    }
                    Ok(())
                })?;
            }
            Cmd::Scan => self.scan(asker, scope, request)?,
            Cmd::ClientList => {
                let filter = ClientFilter::parse(request)?;
                let text = self.client_list(asker, &filter)?;
                self.respond(asker, |_, reply| {
                    reply::verbatim(reply.out, reply.protocol, "txt", text.as_bytes());
                    Ok(())
                })?;
            }
            Cmd::ConfigResetstat => {
                self.stats().reset();
                self.keyspace.counters.reset();
                self.keyspace.forget_slots();
                self.respond(asker, |_, reply| {
                    reply.out.extend_from_slice(reply::OK);
                    Ok(())
                })?;
            }
            Cmd::ClientKill => self.kill_clients(asker, scope, request)?,
            Cmd::ClientPause | Cmd::ClientUnpause => {
                self.pause_clients(asker, spec.cmd, request)?;
            }
            Cmd::Publish | Cmd::Spublish => self.publish_here(asker, spec.cmd, request)?,
            Cmd::PubsubChannels
            | Cmd::PubsubNumsub
            | Cmd::PubsubNumpat
            | Cmd::PubsubShardchannels
            | Cmd::PubsubShardnumsub => {
                self.about_subscribers(asker, scope, spec.cmd, request)?;
            }
            Cmd::Save => {
                if scope != Scope::Part {
                    self.check_saves(spec.cmd, scope == Scope::Node)?;
                }
                self.save(asker, spec.cmd)?;
                return Ok(Answer::Later);
            }
            Cmd::Bgsave | Cmd::Bgrewriteaof => {
                parse::schedule(request)?;
                if scope != Scope::Part {
                    self.check_saves(spec.cmd, scope == Scope::Node)?;
                }
                self.save(asker, spec.cmd)?;
            }
            Cmd::Waitaof => return self.wait_for_device(asker, scope, request),
            Cmd::Debug => return self.debug_here(asker, request),
            Cmd::MemoryPurge => {
                process::give_memory_back();
                self.respond(asker, |_, reply| {
                    reply.out.extend_from_slice(reply::OK);
                    Ok(())
                })?;
            }
            Cmd::Keys => {
                let pattern = parse::short_pattern(request.arg(1))?;
                return self.begin_walk(asker, WalkFilter::Matching(pattern.to_vec()));
            }
            Cmd::ClusterCountkeysinslot => {
                let slot = parse::count_keys_in_slot(request)?;
                return self.begin_walk(asker, WalkFilter::CountInSlot(slot));
            }
            Cmd::HotkeysStart | Cmd::HotkeysStop | Cmd::HotkeysGet | Cmd::HotkeysReset => {
                self.hotkeys_here(asker, scope, spec.cmd, request)?;
            }
            Cmd::ClusterSlotStats => {
                let asked = SlotStats::parse(request, self.keyspace.counts_slots())?;
                let is_part = match scope {
                    Scope::Part => IsPart::Yes,
                    Scope::Node | Scope::Shard => IsPart::No,
                };
                let walk = WalkFilter::SlotStats(asked, is_part, asker.protocol());
                return self.begin_walk(asker, walk);
            }
            Cmd::ClusterGetkeysinslot => {
                let (slot, count) = parse::get_keys_in_slot(request)?;
                return self.begin_walk(asker, WalkFilter::InSlot(slot, count));
            }
            other => return Err(ClientError::WrongArity(other.name())),
        }
        Ok(Answer::Written)
    }

    fn scan(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let scan = Scan::parse(request)?;
        let owned = self.keyspace.owned().to_vec();
        let here = |from: PartitionId| {
            let at = owned.partition_point(|&id| id < from);
            owned.get(at).copied()
        };
        let routes = Arc::clone(&self.router.routes);
        let of_node = |from: PartitionId| routes.next_local(from);
        let from: &dyn Fn(_) -> _ = match scope {
            Scope::Shard => &here,
            Scope::Node | Scope::Part => &of_node,
        };
        let partitions = routes.partitioning().count();
        let begun = ScanCursor::decode(scan.cursor, partitions).and_then(|at| {
            let partition = from(at.partition)?;
            let table = if partition == at.partition {
                at.table
            } else {
                0
            };
            Some(ScanCursor { partition, table })
        });
        let Some(at) = begun else {
            return self.respond(asker, |_, reply| {
                empty_scan(reply);
                Ok(())
            });
        };
        let has_keys_elsewhere = self.has_keys_elsewhere();
        let next = |keyspace: &Keyspace, after: PartitionId| {
            let may_have_keys = |id: PartitionId| match keyspace.served(id) {
                Some(copy) => !copy.table.is_empty(),
                None => has_keys_elsewhere,
            };
            let mut at = after;
            loop {
                at = from(PartitionId(at.0 + 1))?;
                if may_have_keys(at) {
                    return Some(at);
                }
            }
        };
        let at = (asker.database(), at);
        self.respond(asker, |keyspace, reply| {
            keyspace.scan(at, &scan, &next, reply);
            Ok(())
        })
    }

    /// Whether any other shard of the node has keys. What moves between shards is counted by one of them at least.
    fn has_keys_elsewhere(&self) -> bool {
        let mut others = (0..self.node.shards()).filter(|shard| *shard != self.id.0);
        others.any(|shard| self.node.stats[ShardId(shard)].keys_held.get() > 0)
    }

    fn client_list(
        &mut self,
        asker: &Asker<'_>,
        filter: &ClientFilter,
    ) -> Result<String, ClientError> {
        let now_ms = self.keyspace.now_ms();
        // The asking connection is taken out while its command is executed.
        let asking = match asker {
            Asker::Connection(connection) => Some(&**connection),
            Asker::Transaction { connection, .. } => connection.as_deref(),
            Asker::Peer { .. } => None,
        };
        let mut text = String::new();
        let mut is_large = false;
        for connection in self.connections.iter().chain(asking) {
            let before = text.len();
            connection.with_info(now_ms, |info| {
                if filter.admits(&info) {
                    text.push_str(&client_line(&info));
                }
            });
            if text.len() > before {
                self.check_reply(text.len())?;
                if !is_large && text.len() >= LARGE_REPLY_BYTES {
                    is_large = true;
                    self.keyspace.room.take(self.reply_bytes_max())?;
                }
            }
        }
        Ok(text)
    }

    /// Asks all shards that a command of the entry port concerns.
    fn gather(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let everyone: Vec<ShardId> = (0..self.node.shards()).map(ShardId).collect();
        let (shards, combine) = match spec.cmd {
            Cmd::Dbsize => (everyone, Some(Combine::Sum)),
            Cmd::Keys => {
                parse::short_pattern(request.arg(1))?;
                (everyone, Some(Combine::Concat))
            }
            Cmd::ClientList => {
                ClientFilter::parse(request)?;
                (everyone, Some(Combine::Text))
            }
            Cmd::Flushall | Cmd::Flushdb => {
                parse::flush(request)?;
                self.refuse_if_full(spec)?;
                (everyone, Some(Combine::AllOk))
            }
            Cmd::ClientKill => {
                let kill = parse_kill(request, &self.node.users.newest())?;
                let combine = match kill.is_old_form {
                    true => Combine::Killed,
                    false => Combine::Sum,
                };
                (everyone, Some(combine))
            }
            Cmd::Publish | Cmd::Spublish => {
                check_channel(request.arg(1))?;
                // Who has subscribed before that is known to them: see `publish_subscriptions`.
                let has_any = |shard: &ShardId| self.node.stats[*shard].subscriptions.get() > 0;
                let shards: Vec<ShardId> = everyone.into_iter().filter(has_any).collect();
                if shards.is_empty() {
                    return self.publish_here(
                        &mut Asker::Connection(connection),
                        spec.cmd,
                        request,
                    );
                }
                (shards, Some(Combine::Sum))
            }
            Cmd::PubsubChannels | Cmd::PubsubShardchannels => {
                channels_pattern(request)?;
                (everyone, Some(Combine::Distinct))
            }
            Cmd::PubsubNumpat => (everyone, Some(Combine::CountDistinct)),
            Cmd::PubsubNumsub | Cmd::PubsubShardnumsub => (everyone, Some(Combine::SumPairs)),
            Cmd::ClientPause => {
                Pause::parse(request, self.keyspace.now_ms())?;
                (everyone, Some(Combine::AllOk))
            }
            Cmd::ClientUnpause | Cmd::ConfigResetstat | Cmd::MemoryPurge => {
                (everyone, Some(Combine::AllOk))
            }
            Cmd::Save => {
                self.check_saves(spec.cmd, true)?;
                (everyone, Some(Combine::AllOk))
            }
            Cmd::Bgsave | Cmd::Bgrewriteaof => {
                parse::schedule(request)?;
                self.check_saves(spec.cmd, true)?;
                (everyone, Some(Combine::First))
            }
            Cmd::Waitaof => {
                WaitAof::parse(request)?;
                (everyone, Some(Combine::Acknowledged))
            }
            Cmd::HotkeysStart | Cmd::HotkeysStop | Cmd::HotkeysReset => {
                // One shard alone decides when it does it.
                let is_decided_here = everyone.len() > 1;
                if is_decided_here && !self.decide_hotkeys(spec.cmd, Scope::Node, request)? {
                    let mut asker = Asker::Connection(connection);
                    return self.respond(&mut asker, |_, reply| {
                        reply::null(reply.out, reply.protocol);
                        Ok(())
                    });
                }
                (everyone, Some(Combine::AllOk))
            }
            Cmd::HotkeysGet => (everyone, Some(Combine::HotKeys)),
            Cmd::ClusterSlotStats => {
                let counts_use = self.keyspace.counts_slots();
                let asked = SlotStats::parse(request, counts_use)?;
                (everyone, Some(Combine::SlotStats(asked, counts_use)))
            }
            Cmd::Randomkey => {
                let first = usize::from(self.random_shard().0);
                (everyone, Some(Combine::FirstFound(first)))
            }
            Cmd::Scan => (
                vec![self.shard_of_cursor(Scan::parse(request)?.cursor)],
                None,
            ),
            _ => {
                let slot = match spec.cmd {
                    Cmd::ClusterCountkeysinslot => parse::count_keys_in_slot(request)?,
                    _ => parse::get_keys_in_slot(request)?.0,
                };
                let shard = self.router.routes.owner(slot).local();
                (vec![shard.unwrap_or(self.id)], None)
            }
        };
        // Its own part goes through the mesh like others, where the order of messages depends on it.
        let is_published = is_published(spec.cmd);
        if shards == [self.id] && !is_published {
            self.whole_keyspace(
                &mut Asker::Connection(connection),
                Scope::Node,
                spec,
                request,
            )?;
            return Ok(());
        }
        let (protocol, encoded) = (connection.protocol, request.encoded());
        let gather = combine.map(|combine| {
            let gather = Gather::new(combine, protocol, shards.len(), self.reply_bytes_max());
            Box::new(match spec.cmd {
                cmd if !needs_lease(cmd) => gather,
                // A move ends once, so this ends; a flush must not miss a partition.
                Cmd::Flushall | Cmd::Flushdb => {
                    gather.repeating(encoded.clone(), self.role_changes(), u32::MAX)
                }
                _ => gather.repeating(encoded.clone(), self.role_changes(), ROUNDS_MAX),
            })
        });
        let is_repeated = gather.is_some() && needs_lease(spec.cmd);
        let walks = matches!(
            spec.cmd,
            Cmd::Keys
                | Cmd::Randomkey
                | Cmd::ClusterCountkeysinslot
                | Cmd::ClusterGetkeysinslot
                | Cmd::ClusterSlotStats
        );
        let ticket = connection.outbox.await_reply(gather);
        connection.walks |= walks;
        // What is repeated must not see, or remove, what commands behind it have written; and no connection has
        // more than one walk.
        let waits = matches!(spec.cmd, Cmd::Save | Cmd::Waitaof);
        connection.settling |= is_repeated || walks || waits;
        // Its own part as well: behind what the node has told this shard before.
        for (part, shard) in (0..).zip(shards) {
            self.forward(shard, connection, (ticket, part), protocol, &encoded);
        }
        Ok(())
    }

    /// All parts of a gathered reply are here.
    pub(crate) fn gathered(&mut self, origin: Origin) {
        let role_changes = self.role_changes();
        let Some(mut connection) = self.connections.take(origin.conn) else {
            return;
        };
        let again = connection.outbox.gather_again(origin.ticket, role_changes);
        if let Some(gather) = connection.outbox.gather(origin.ticket) {
            let (protocol, parts) = gather.asked();
            if let Some(request) = again {
                for (part, shard) in (0..parts as u16).map(|part| (part, ShardId(part))) {
                    let place = (origin.ticket, part);
                    self.forward(shard, &mut connection, place, protocol, &request);
                }
            } else if gather.is_torn() {
                if let Some(closed) = self.told_torn.tell(self.now) {
                    tracing::warn!(client = %connection.remote, closed, "closed: a part of its command was executed, and the keys of another have left this node");
                }
                connection.outbox.cut(origin.ticket);
                connection.drain();
            } else {
                // The parts are held until they are put together.
                if self.keyspace.room.take(gather.parts_bytes()).is_err() {
                    self.replies.complete.push(origin);
                } else {
                    let (bytes, gate) = gather.finish();
                    connection.outbox.fill(origin.ticket, bytes, gate);
                }
            }
        }
        self.put_back(connection);
    }

    /// How often copies of this node began or ceased to be served. Another shard's change is known once
    /// something has come from it that it sent afterwards.
    fn role_changes(&self) -> u64 {
        let stats = self.node.stats.iter();
        let published: u64 = stats.map(|stats| stats.role_changes.get()).sum();
        let unpublished = self.own_role_changes() - self.stats().role_changes.get();
        published + unpublished
    }

    fn shard_of_cursor(&self, cursor: u64) -> ShardId {
        let routes = &self.router.routes;
        ScanCursor::decode(cursor, routes.partitioning().count())
            .and_then(|at| routes.owner_of(routes.next_local(at.partition)?).local())
            .unwrap_or(self.id)
    }

    /// A shard, by its share of the keys as last published.
    fn random_shard(&mut self) -> ShardId {
        let keys: Vec<u64> = self
            .node
            .stats
            .iter()
            .map(|stats| stats.keys.get())
            .collect();
        let total: u64 = keys.iter().sum();
        if total == 0 {
            return self.id;
        }
        let mut nth = self.execution.random.draw() % total;
        for (shard, &keys) in keys.iter().enumerate() {
            if nth < keys {
                return ShardId(shard as u16);
            }
            nth -= keys;
        }
        self.id
    }
}

/// The reply of a SCAN that is over and has found nothing.
fn empty_scan(reply: &mut crate::keyspace::Reply<'_>) {
    reply::array(reply.out, 2);
    reply::bulk(reply.out, b"0");
    reply::array(reply.out, 0);
}

/// One client's line of CLIENT LIST.
fn client_line(info: &client::ClientInfo<'_>) -> String {
    format!("{info}\n")
}

#[cfg(test)]
mod tests;
