//! The string commands on keys that this shard owns, with Redis's semantics.

use std::collections::BTreeSet;

use ephesus_wire::database;
use ephesus_wire::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use ephesus_wire::record;
use ephesus_wire::resp::{reply, request};

use super::large_replies::LARGE_REPLY_BYTES;
use super::long_double::{LongDouble, NotFinite};
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{
    self, ArgList, CopyOptions, Expire, GetExpiry, SetCondition, SetExpiry, SetOptions, TimeUnit,
};
use crate::command::spec::Cmd;
use crate::table::{EntryRef, Prefetch};

pub(super) type Outcome = Result<(), ClientError>;

/// Keys of one command whose entries are loaded at the same time.
const LOADED_KEYS: usize = 32;

/// Refuses a key or value over its limit.
pub(super) fn check_sizes(key: &[u8], value: &[u8]) -> Outcome {
    if key.len() > KEY_BYTES_MAX && database::split(key).1.len() > KEY_BYTES_MAX {
        return Err(ClientError::KeyTooLong(KEY_BYTES_MAX));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(ClientError::StringTooLong);
    }
    Ok(())
}

/// Keys and values of MSET.
fn pairs<A: ArgList + ?Sized>(args: &A) -> impl Iterator<Item = (&[u8], &[u8])> {
    let places = (1..args.len()).step_by(2);
    places.map(|index| (args.arg(index), args.arg(index + 1)))
}

impl Keyspace {
    /// Calls `each` with the keys of a command and their indices: every `step`th argument from `first` on. A command
    /// is one turn, however many keys it has, and so the cache misses of several overlap.
    pub(super) fn each_key<'a, A: ArgList + ?Sized>(
        &mut self,
        args: &'a A,
        (first, step): (usize, usize),
        mut each: impl FnMut(&mut Keyspace, usize, &Key<'a>) -> Outcome,
    ) -> Outcome {
        let mut indices = (first..args.len()).step_by(step).peekable();
        while let Some(&first) = indices.peek() {
            let mut located = [const { None }; LOADED_KEYS];
            for (place, index) in located.iter_mut().zip(&mut indices) {
                *place = Some(self.locate(args.arg(index)));
            }
            let located = located.iter().map_while(|located| *located);
            if located.clone().nth(1).is_some() {
                for step in Prefetch::STEPS {
                    located.clone().for_each(|key| self.prefetch(key, step));
                }
            }
            for (index, located) in (first..).step_by(step).zip(located) {
                let key = self.key_at(args.arg(index), located);
                each(self, index, &key)?;
            }
        }
        Ok(())
    }

    /// Answers whether there is a value.
    pub(super) fn get(
        &mut self,
        key: &Key<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<bool, ClientError> {
        let bytes = match self.read(key, reply) {
            Some(entry) if entry.value.len() < LARGE_REPLY_BYTES => {
                reply::bulk(reply.out, entry.value);
                return Ok(true);
            }
            Some(entry) => entry.value.len(),
            None => {
                reply::null(reply.out, reply.protocol);
                return Ok(false);
            }
        };
        self.room.take(bytes)?;
        self.write_value(key, reply);
        Ok(true)
    }

    /// Writes a value that is here.
    fn write_value(&self, key: &Key<'_>, reply: &mut Reply<'_>) {
        if let Some(entry) = self.entry(key) {
            reply::bulk(reply.out, entry.value);
        }
    }

    /// What the table has of a key, expired or not.
    pub(super) fn entry(&self, key: &Key<'_>) -> Option<EntryRef<'_>> {
        self.served(key.partition)?.table.get(key.hash, key.bytes)
    }

    pub(super) fn set<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let value = args.arg(2);
        check_sizes(key.bytes, value)?;
        let options = SetOptions::parse(args, self.now_ms)?;
        if let Some(events) = &mut self.events {
            events.keeps_expiry = matches!(options.expiry, SetExpiry::Keep);
        }
        let plain = options.condition == SetCondition::None && !options.get;
        if plain && !matches!(options.expiry, SetExpiry::Keep) {
            self.put_or_expire(key, value, options.expiry, 0, reply);
            reply.out.extend_from_slice(reply::OK);
            return Ok(());
        }
        let (protocol, now_ms) = (reply.protocol, self.now_ms);
        if options.get {
            let old = self.entry(key);
            self.room
                .take(old.map_or(0, |entry| 2 * entry.value.len()))?;
        }
        let mut old_reply = Vec::new();
        let old = self.look_up(key, reply);
        let condition_holds = match (options.condition, &old) {
            (SetCondition::None, _) => true,
            (SetCondition::Nx, old) => old.is_none(),
            (SetCondition::Xx, old) => old.is_some(),
            (SetCondition::IfEq(index), old) => old
                .as_ref()
                .is_some_and(|entry| entry.value == args.arg(index)),
        };
        if options.get {
            match &old {
                Some(entry) => reply::bulk(&mut old_reply, entry.value),
                None => reply::null(&mut old_reply, protocol),
            }
        }
        let kept_expiry = old.map_or(0, |entry| entry.expire_at_ms);
        debug_assert!(kept_expiry == 0 || kept_expiry > now_ms);
        if condition_holds {
            self.put_or_expire(key, value, options.expiry, kept_expiry, reply);
        }
        match (options.get, condition_holds) {
            (true, _) => reply.out.extend_from_slice(&old_reply),
            (false, true) => reply.out.extend_from_slice(reply::OK),
            (false, false) => reply::null(reply.out, protocol),
        }
        Ok(())
    }

    /// Writes the value; an expiry that has passed already deletes the key instead, as in Redis.
    fn put_or_expire(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        expiry: SetExpiry,
        kept_ms: u64,
        reply: &mut Reply<'_>,
    ) {
        match expiry {
            SetExpiry::None => self.put(key, value, 0, reply),
            SetExpiry::Keep => self.put(key, value, kept_ms, reply),
            SetExpiry::At(at_ms) if at_ms > self.now_ms => self.put(key, value, at_ms, reply),
            SetExpiry::At(_) => {
                if self.look_up(key, reply).is_some() {
                    self.delete(key, reply);
                }
            }
        }
    }

    pub(super) fn setnx(&mut self, key: &Key<'_>, value: &[u8], reply: &mut Reply<'_>) -> Outcome {
        check_sizes(key.bytes, value)?;
        let absent = self.look_up(key, reply).is_none();
        if absent {
            self.put(key, value, 0, reply);
        }
        reply::integer(reply.out, i64::from(absent));
        Ok(())
    }

    /// SETEX or PSETEX, by the name of it.
    pub(super) fn setex<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        (unit, name): (TimeUnit, &'static str),
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let value = args.arg(3);
        check_sizes(key.bytes, value)?;
        let at_ms = parse::deadline(unit, args.arg(2), self.now_ms, name)?;
        self.put(key, value, at_ms, reply);
        reply.out.extend_from_slice(reply::OK);
        Ok(())
    }

    pub(super) fn getset(&mut self, key: &Key<'_>, value: &[u8], reply: &mut Reply<'_>) -> Outcome {
        check_sizes(key.bytes, value)?;
        self.get(key, reply)?;
        self.put(key, value, 0, reply);
        Ok(())
    }

    pub(super) fn getdel(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) -> Outcome {
        if self.get(key, reply)? {
            self.delete(key, reply);
        }
        Ok(())
    }

    /// DELIFEQ: removes a key that has this value.
    pub(super) fn delete_if_equal(&mut self, key: &Key<'_>, value: &[u8], reply: &mut Reply<'_>) {
        let entry = self.look_up(key, reply);
        let is_equal = entry.is_some_and(|entry| entry.value == value);
        if is_equal {
            self.delete(key, reply);
        }
        reply::integer(reply.out, i64::from(is_equal));
    }

    pub(super) fn getex<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let expiry = GetExpiry::parse(args)?;
        let now_ms = self.now_ms;
        // An expired key is none, whatever its new time would be.
        let Some(entry) = self.look_up(key, reply) else {
            self.counters.misses += 1;
            if let Some(events) = &mut self.events {
                events.missed(key.bytes);
            }
            reply::null(reply.out, reply.protocol);
            return Ok(());
        };
        let has_expiry = entry.expire_at_ms != 0;
        let at_ms = match expiry {
            GetExpiry::Keep => None,
            GetExpiry::Remove => has_expiry.then_some(0),
            GetExpiry::Set(unit, at) => Some(parse::deadline(unit, args.arg(at), now_ms, "getex")?),
        };
        self.get(key, reply)?;
        match at_ms {
            None => {}
            Some(at_ms) if at_ms != 0 && at_ms <= now_ms => self.delete(key, reply),
            Some(at_ms) => self.set_expiry(key, at_ms, reply),
        }
        Ok(())
    }

    pub(super) fn strlen(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) {
        let len = self.read(key, reply).map_or(0, |entry| entry.value.len());
        reply::integer(reply.out, len as i64);
    }

    pub(super) fn append(
        &mut self,
        key: &Key<'_>,
        suffix: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let len = |old: usize| old + suffix.len();
        let len = self.change(key, len, reply, |value| value.extend_from_slice(suffix))?;
        reply::integer(reply.out, len as i64);
        Ok(())
    }

    pub(super) fn increment(
        &mut self,
        key: &Key<'_>,
        delta: i64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let (old, expire_at_ms) = match self.look_up(key, reply) {
            Some(entry) => (
                request::integer(entry.value).ok_or(ClientError::NotAnInteger)?,
                entry.expire_at_ms,
            ),
            None => (0, 0),
        };
        let new = old.checked_add(delta).ok_or(ClientError::Overflow)?;
        let mut digits = [0; reply::INTEGER_BYTES_MAX];
        self.put(key, reply::decimal(&mut digits, new), expire_at_ms, reply);
        reply::integer(reply.out, new);
        Ok(())
    }

    pub(super) fn increment_float(
        &mut self,
        key: &Key<'_>,
        delta: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let (old, expire_at_ms) = match self.look_up(key, reply) {
            Some(entry) => (LongDouble::parse(entry.value), entry.expire_at_ms),
            None => (Ok(LongDouble::zero()), 0),
        };
        let new = match (old, LongDouble::parse(delta)) {
            (Err(NotFinite::Invalid), _) | (_, Err(NotFinite::Invalid)) => {
                return Err(ClientError::NotAFloat);
            }
            (Ok(old), Ok(delta)) => old.plus(&delta),
            _ => None,
        };
        let new = new.ok_or(ClientError::InfiniteIncrement)?.text();
        self.put(key, new.as_bytes(), expire_at_ms, reply);
        reply::bulk(reply.out, new.as_bytes());
        Ok(())
    }

    pub(super) fn expire_command(
        &mut self,
        key: &Key<'_>,
        expire: Expire,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let now_ms = self.now_ms;
        let Some(entry) = self.look_up(key, reply) else {
            reply::integer(reply.out, 0);
            return Ok(());
        };
        let current = Some(entry.expire_at_ms).filter(|&at_ms| at_ms != 0);
        if !expire.condition.allows(current, expire.at_ms) {
            reply::integer(reply.out, 0);
            return Ok(());
        }
        if expire.at_ms <= now_ms {
            self.delete(key, reply);
        } else {
            self.set_expiry(key, expire.at_ms, reply);
        }
        reply::integer(reply.out, 1);
        Ok(())
    }

    /// How long behind `from_ms`, now or 0, a key expires, in units of `unit_ms` and rounded as Redis does; -2 absent, -1
    /// never.
    pub(super) fn expires_after(
        &mut self,
        key: &Key<'_>,
        (from_ms, unit_ms): (u64, u64),
        reply: &mut Reply<'_>,
    ) {
        let time = match self.read(key, reply) {
            None => -2,
            Some(entry) if entry.expire_at_ms == 0 => -1,
            Some(entry) => ((entry.expire_at_ms - from_ms + unit_ms / 2) / unit_ms) as i64,
        };
        reply::integer(reply.out, time);
    }

    pub(super) fn persist(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) {
        let has_expiry = self
            .look_up(key, reply)
            .is_some_and(|entry| entry.expire_at_ms != 0);
        if has_expiry {
            self.set_expiry(key, 0, reply);
        }
        reply::integer(reply.out, i64::from(has_expiry));
    }

    pub(super) fn type_of(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) {
        let name = if self.read(key, reply).is_some() {
            "string"
        } else {
            "none"
        };
        reply::simple(reply.out, name);
    }

    /// Whether a key was renamed; `may_replace` says whether the other one may be there. A key that gets its own name is
    /// left as it is.
    pub(super) fn rename(
        &mut self,
        (from, to): (&Key<'_>, &Key<'_>),
        may_replace: bool,
        reply: &mut Reply<'_>,
    ) -> Result<bool, ClientError> {
        check_sizes(to.bytes, &[])?;
        let is_free = self.look_up(to, reply).is_none();
        let Some(entry) = self.look_up(from, reply) else {
            return Err(ClientError::NoSuchKey);
        };
        if !is_free && !may_replace {
            return Ok(false);
        }
        let (value, expire_at_ms) = (entry.value.to_vec(), entry.expire_at_ms);
        if from.bytes != to.bytes {
            let meta = self.home(from).next_meta();
            self.ops.delete(meta, from.bytes);
            let meta = self.home(to).next_meta();
            self.ops.put(meta, to.bytes, &value, expire_at_ms);
            self.remove(from);
            self.insert(to, &value, expire_at_ms);
            self.log_ops(&[*from, *to], reply);
        }
        Ok(true)
    }

    pub(super) fn copy<A: ArgList + ?Sized>(
        &mut self,
        (from, to): (&Key<'_>, &Key<'_>),
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(to.bytes, &[])?;
        let CopyOptions { replaces, .. } = CopyOptions::parse(args, self.databases)?;
        if from.bytes == to.bytes {
            return Err(ClientError::SameKey);
        }
        let may_write = self.look_up(to, reply).is_none() || replaces;
        let old = self.read(from, reply).filter(|_| may_write);
        let old = old.map(|entry| (entry.value.to_vec(), entry.expire_at_ms));
        if let Some((value, expire_at_ms)) = &old {
            self.put(to, value, *expire_at_ms, reply);
        }
        reply::integer(reply.out, i64::from(old.is_some()));
        Ok(())
    }

    pub(super) fn mget<A: ArgList + ?Sized>(&mut self, args: &A, reply: &mut Reply<'_>) -> Outcome {
        let start = reply.out.len();
        let mut is_large = false;
        reply::array(reply.out, args.len() - 1);
        self.each_key(args, (1, 1), |keyspace, index, key| {
            let written = reply.out.len() - start;
            let bytes_max = if is_large {
                usize::MAX
            } else {
                LARGE_REPLY_BYTES
            };
            let fits = match keyspace.read(key, reply) {
                Some(entry) if written + entry.value.len() < bytes_max => {
                    reply::bulk(reply.out, entry.value);
                    true
                }
                Some(_) => false,
                None => {
                    reply::null(reply.out, reply.protocol);
                    true
                }
            };
            if fits {
                return Ok(());
            }
            is_large = true;
            let rest = keyspace.values_bytes(args, index)?;
            if written + rest > keyspace.reply_bytes_max {
                reply.out.truncate(start);
                return Err(ClientError::ReplyTooLarge(keyspace.reply_bytes_max));
            }
            if let Err(error) = keyspace.room.take(written + rest) {
                reply.out.truncate(start);
                return Err(error);
            }
            reply.out.reserve_exact(rest);
            keyspace.write_value(key, reply);
            Ok(())
        })
    }

    /// Bytes of a reply with the values of the arguments from `first` on.
    fn values_bytes<A: ArgList + ?Sized>(
        &mut self,
        args: &A,
        first: usize,
    ) -> Result<usize, ClientError> {
        let mut bytes = 0;
        self.each_key(args, (first, 1), |keyspace, _, key| {
            let entry = keyspace.entry(key);
            bytes += entry.map_or(0, |entry| entry.value.len()) + reply::BULK_FRAME_BYTES_MAX;
            Ok(())
        })?;
        Ok(bytes)
    }

    pub(super) fn mset<A: ArgList + ?Sized>(&mut self, args: &A, reply: &mut Reply<'_>) -> Outcome {
        self.check_mset(args)?;
        self.put_all(args, reply)?;
        reply.out.extend_from_slice(reply::OK);
        Ok(())
    }

    pub(super) fn msetnx<A: ArgList + ?Sized>(
        &mut self,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.check_mset(args)?;
        let mut are_free = true;
        self.each_key(args, (1, 2), |keyspace, _, key| {
            are_free &= keyspace.look_up(key, reply).is_none();
            Ok(())
        })?;
        if are_free {
            self.put_all(args, reply)?;
        }
        reply::integer(reply.out, i64::from(are_free));
        Ok(())
    }

    /// Sets all keys of MSET with one record, which were checked.
    fn put_all<A: ArgList + ?Sized>(&mut self, args: &A, reply: &mut Reply<'_>) -> Outcome {
        let mut touched = Vec::with_capacity(args.len() / 2);
        self.each_key(args, (1, 2), |keyspace, index, key| {
            let value = args.arg(index + 1);
            let meta = keyspace.home(key).next_meta();
            keyspace.ops.put(meta, key.bytes, value, 0);
            keyspace.insert(key, value, 0);
            keyspace.counters.user_bytes += value.len() as u64;
            touched.push(*key);
            Ok(())
        })?;
        self.log_ops(&touched, reply);
        Ok(())
    }

    fn check_mset<A: ArgList + ?Sized>(&self, args: &A) -> Outcome {
        for (key, value) in pairs(args) {
            check_sizes(key, value)?;
        }
        let bytes = pairs(args).map(|(key, value)| record::put_len(key, value));
        self.check_record(bytes.sum())
    }

    fn check_del<A: ArgList + ?Sized>(&self, args: &A) -> Outcome {
        let keys = || (1..args.len()).map(|index| args.arg(index));
        let fits = |bytes| self.check_record(bytes);
        if fits(keys().map(record::delete_len).sum()).is_ok() {
            return Ok(());
        }
        // Each key that is here, once.
        let found: BTreeSet<&[u8]> = keys().filter(|bytes| self.has_entry(bytes)).collect();
        fits(found.into_iter().map(record::delete_len).sum())
    }

    /// Whether this shard has an entry of the key, expired or not.
    fn has_entry(&self, bytes: &[u8]) -> bool {
        self.entry(&self.key(bytes)).is_some()
    }

    /// Refuses one shard's part of a command over its limits, before any shard has done its own. How many of the
    /// keys to be deleted another shard has, it looks itself.
    pub fn check_part<A: ArgList + ?Sized>(&self, cmd: Cmd, args: &A) -> Outcome {
        match cmd {
            Cmd::Mset => self.check_mset(args),
            Cmd::Del | Cmd::Unlink => self.check_del(args),
            _ => Ok(()),
        }
    }

    /// Refuses a command whose effects, of `bytes` in all, do not fit one record.
    fn check_record(&self, bytes: usize) -> Outcome {
        let bytes_max = self.effects_bytes_max();
        if bytes > bytes_max {
            Err(ClientError::CommandTooLarge(bytes_max))
        } else {
            Ok(())
        }
    }

    pub(super) fn del<A: ArgList + ?Sized>(&mut self, args: &A, reply: &mut Reply<'_>) -> Outcome {
        self.check_del(args)?;
        let mut touched = Vec::new();
        self.each_key(args, (1, 1), |keyspace, _, key| {
            if keyspace.look_up(key, reply).is_some() {
                keyspace.remove(key);
                touched.push(*key);
            }
            Ok(())
        })?;
        // Only now: looking up an expired key has logged a record, with a sequence of its own.
        for key in &touched {
            let meta = self.home(key).next_meta();
            self.ops.delete(meta, key.bytes);
        }
        if !touched.is_empty() {
            self.log_ops(&touched, reply);
        }
        reply::integer(reply.out, touched.len() as i64);
        Ok(())
    }

    pub(super) fn exists<A: ArgList + ?Sized>(
        &mut self,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut found = 0;
        self.each_key(args, (1, 1), |keyspace, _, key| {
            found += i64::from(keyspace.read(key, reply).is_some());
            Ok(())
        })?;
        reply::integer(reply.out, found);
        Ok(())
    }
}
