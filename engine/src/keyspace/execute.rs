//! From a parsed command to its effect: one `match` over the commands that have keys.

use ephesus_wire::Slot;
use ephesus_wire::resp::reply;

use super::{Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{self, ArgList, Expire, TimeUnit};
use crate::command::spec::{Cmd, Spec};

impl Keyspace {
    /// Executes a command on keys, all of which this shard owns; `slot` is the first key's.
    ///
    /// # Errors
    /// A refusal, which is the reply but for [`ClientError::LargeReplies`]; the command had no effect.
    #[inline]
    #[expect(
        clippy::unreachable,
        reason = "commands without keys are executed elsewhere"
    )]
    pub fn execute<A: ArgList + ?Sized>(
        &mut self,
        spec: &'static Spec,
        args: &A,
        slot: Slot,
        reply: &mut Reply<'_>,
    ) -> Result<(), ClientError> {
        if self.events.is_some() {
            self.note_command(spec.cmd);
        }
        let key = match args.located() {
            Some(located) => self.key_at(args.arg(1), located),
            None => self.key_in(args.arg(1), slot),
        };
        match spec.cmd {
            Cmd::Get => {
                self.get(&key, reply)?;
            }
            Cmd::Set => return self.set(&key, args, reply),
            Cmd::Setnx => return self.setnx(&key, args.arg(2), reply),
            Cmd::Setex => return self.setex(&key, args, (TimeUnit::Ex, spec.name), reply),
            Cmd::Psetex => return self.setex(&key, args, (TimeUnit::Px, spec.name), reply),
            Cmd::Getset => return self.getset(&key, args.arg(2), reply),
            Cmd::Getdel => return self.getdel(&key, reply),
            Cmd::Getex => return self.getex(&key, args, reply),
            Cmd::Mget => return self.mget(args, reply),
            Cmd::Mset => return self.mset(args, reply),
            Cmd::Msetnx => return self.msetnx(args, reply),
            Cmd::Strlen => self.strlen(&key, reply),
            Cmd::Append => return self.append(&key, args.arg(2), reply),
            Cmd::Getrange | Cmd::Substr => return self.getrange(&key, args, reply),
            Cmd::Setrange => return self.setrange(&key, args, reply),
            Cmd::Setbit => return self.setbit(&key, args, reply),
            Cmd::Getbit => return self.getbit(&key, args.arg(2), reply),
            Cmd::Bitcount => return self.bitcount(&key, args, reply),
            Cmd::Bitpos => return self.bitpos(&key, args, reply),
            Cmd::Bitop => return self.bitop(args, reply),
            Cmd::Bitfield => return self.bitfield(&key, args, true, reply),
            Cmd::BitfieldRo => return self.bitfield(&key, args, false, reply),
            Cmd::Lcs => {
                let other = self.key(args.arg(2));
                return self.lcs((&key, &other), args, reply);
            }
            Cmd::Incr => return self.increment(&key, 1, reply),
            Cmd::Decr => return self.increment(&key, -1, reply),
            Cmd::Incrby => return self.increment(&key, parse::increment(args)?, reply),
            Cmd::Decrby => return self.increment(&key, parse::decrement(args)?, reply),
            Cmd::Incrbyfloat => return self.increment_float(&key, args.arg(2), reply),
            Cmd::Del | Cmd::Unlink => return self.del(args, reply),
            Cmd::Delifeq => self.delete_if_equal(&key, args.arg(2), reply),
            Cmd::Exists | Cmd::Touch => return self.exists(args, reply),
            Cmd::Type => self.type_of(&key, reply),
            Cmd::Rename => {
                let to = self.key(args.arg(2));
                self.rename((&key, &to), true, reply)?;
                reply.out.extend_from_slice(reply::OK);
            }
            Cmd::Renamenx => {
                let to = self.key(args.arg(2));
                let is_renamed = self.rename((&key, &to), false, reply)?;
                reply::integer(reply.out, i64::from(is_renamed));
            }
            Cmd::Move => return self.move_key(&key, args, reply),
            Cmd::Copy => {
                let to = self.key(args.arg(2));
                return self.copy((&key, &to), args, reply);
            }
            Cmd::Expire | Cmd::Pexpire | Cmd::Expireat | Cmd::Pexpireat => {
                let unit = match spec.cmd {
                    Cmd::Expire => TimeUnit::Ex,
                    Cmd::Pexpire => TimeUnit::Px,
                    Cmd::Expireat => TimeUnit::Exat,
                    _ => TimeUnit::Pxat,
                };
                let expire = Expire::parse(args, unit, self.now_ms, spec.name)?;
                return self.expire_command(&key, expire, reply);
            }
            Cmd::Ttl => self.expires_after(&key, (self.now_ms, 1000), reply),
            Cmd::Pttl => self.expires_after(&key, (self.now_ms, 1), reply),
            Cmd::Expiretime => self.expires_after(&key, (0, 1000), reply),
            Cmd::Pexpiretime => self.expires_after(&key, (0, 1), reply),
            Cmd::Persist => self.persist(&key, reply),
            Cmd::Sort | Cmd::SortRo => {
                return self.sort(&key, args, spec.cmd == Cmd::Sort, reply);
            }
            Cmd::Dump => return self.dump(&key, reply),
            Cmd::Restore => return self.restore(&key, args, reply),
            Cmd::ObjectEncoding | Cmd::ObjectFreq | Cmd::ObjectIdletime | Cmd::ObjectRefcount => {
                let key = self.key(args.arg(2));
                return self.object(spec.cmd, &key, reply);
            }
            Cmd::MemoryUsage => {
                let key = self.key(args.arg(2));
                return self.memory_usage(&key, args, reply);
            }
            other => unreachable!("{other:?} has no keys"),
        }
        Ok(())
    }
}
