//! `COMMAND` and its subcommands: the command table as clients read it.

use ephesus_wire::glob::Pattern;
use ephesus_wire::resp::reply::{self, Protocol};

use super::config::pattern_ignoring_case;
use super::error::ClientError;
use super::parse::{ArgList, Tail};
use super::spec::{self, Cmd, KeySpec, Spec, commands};
use crate::acl::permissions::KeyAccess;

/// Where the inner command of `COMMAND GETKEYS` starts.
const INNER: usize = 2;

/// Names that one COMMAND INFO or DOCS, or LATENCY HISTOGRAM, may have: they may be repeated, so that a request could
/// ask for a reply of any length. There are fewer commands.
const NAMES_MAX: usize = 1024;

/// Appends the reply to COMMAND or the subcommand `cmd` of it; `args` is the whole request.
///
/// # Errors
/// What the client did wrong, and any other command than COMMAND and its subcommands; nothing was appended.
pub fn reply<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    cmd: Cmd,
    args: &A,
) -> Result<(), ClientError> {
    match cmd {
        Cmd::Command => all(out, protocol),
        Cmd::CommandCount => reply::integer(out, commands().len() as i64),
        Cmd::CommandInfo => return info(out, protocol, args),
        Cmd::CommandDocs => return docs(out, protocol, args),
        Cmd::CommandList => return list(out, args),
        Cmd::CommandGetkeys => return get_keys(out, args),
        Cmd::CommandGetkeysandflags => return get_keys_and_flags(out, protocol, args),
        other => return Err(ClientError::WrongArity(other.name())),
    }
    Ok(())
}

fn all(out: &mut Vec<u8>, protocol: Protocol) {
    reply::array(out, commands().len());
    for spec in commands() {
        entry(out, protocol, spec);
    }
}

fn info<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    args: &A,
) -> Result<(), ClientError> {
    check_names(args.len() - INNER)?;
    if args.len() == INNER {
        all(out, protocol);
        return Ok(());
    }
    reply::array(out, args.len() - INNER);
    for index in INNER..args.len() {
        match spec::lookup_full(args.arg(index)) {
            Some(spec) => entry(out, protocol, spec),
            None => reply::null(out, protocol),
        }
    }
    Ok(())
}

/// Refuses more names of commands than there may be at once.
///
/// # Errors
/// [`ClientError::TooManyNames`].
pub(super) fn check_names(count: usize) -> Result<(), ClientError> {
    if count > NAMES_MAX {
        Err(ClientError::TooManyNames(NAMES_MAX))
    } else {
        Ok(())
    }
}

/// One command: name, arity, flags, first key, last key, step, categories, tips, key
/// specifications, subcommands.
fn entry(out: &mut Vec<u8>, protocol: Protocol, spec: &Spec) {
    reply::array(out, 10);
    reply::bulk(out, spec.name.as_bytes());
    reply::integer(out, i64::from(spec.arity));
    statuses(out, protocol, &spec.flags);
    let (first, last, step) = spec.range();
    reply::integer(out, i64::from(first));
    reply::integer(out, i64::from(last));
    reply::integer(out, i64::from(step));
    statuses(out, protocol, &spec.categories);
    reply::set(out, protocol, spec.tips.len());
    for tip in &spec.tips {
        reply::bulk(out, tip.as_bytes());
    }
    reply::set(out, protocol, spec.keys.len());
    for keys in &spec.keys {
        key_specification(out, protocol, keys);
    }
    reply::set(out, protocol, spec.subcommands.len());
    for sub in &spec.subcommands {
        entry(out, protocol, sub);
    }
}

fn statuses(out: &mut Vec<u8>, protocol: Protocol, names: &[&str]) {
    reply::set(out, protocol, names.len());
    for name in names {
        reply::simple(out, name);
    }
}

fn key_specification(out: &mut Vec<u8>, protocol: Protocol, keys: &KeySpec) {
    reply::map(out, protocol, 3 + usize::from(keys.notes.is_some()));
    if let Some(notes) = keys.notes {
        field(out, "notes", notes);
    }
    reply::bulk(out, b"flags");
    statuses(out, protocol, &keys.flags);
    reply::bulk(out, b"begin_search");
    reply::map(out, protocol, 2);
    if keys.is_unknown {
        unknown_place(out, protocol);
        reply::bulk(out, b"find_keys");
        reply::map(out, protocol, 2);
        unknown_place(out, protocol);
        return;
    }
    match keys.keyword {
        Some(keyword) => {
            field(out, "type", "keyword");
            reply::bulk(out, b"spec");
            reply::map(out, protocol, 2);
            field(out, "keyword", keyword);
            number(out, "startfrom", -2);
        }
        None => {
            field(out, "type", "index");
            reply::bulk(out, b"spec");
            reply::map(out, protocol, 1);
            number(out, "index", i64::from(keys.begin));
        }
    }
    reply::bulk(out, b"find_keys");
    reply::map(out, protocol, 2);
    if keys.is_counted {
        field(out, "type", "keynum");
        reply::bulk(out, b"spec");
        reply::map(out, protocol, 3);
        number(out, "keynumidx", 0);
        number(out, "firstkey", 1);
        number(out, "keystep", 1);
        return;
    }
    field(out, "type", "range");
    reply::bulk(out, b"spec");
    reply::map(out, protocol, 3);
    number(out, "lastkey", i64::from(keys.last));
    number(out, "keystep", i64::from(keys.step));
    number(out, "limit", 0);
}

fn unknown_place(out: &mut Vec<u8>, protocol: Protocol) {
    field(out, "type", "unknown");
    reply::bulk(out, b"spec");
    reply::map(out, protocol, 0);
}

fn docs<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    args: &A,
) -> Result<(), ClientError> {
    check_names(args.len() - INNER)?;
    if args.len() == INNER {
        reply::map(out, protocol, commands().len());
        for spec in commands() {
            documentation(out, protocol, spec);
        }
        return Ok(());
    }
    let known = || (INNER..args.len()).filter_map(|index| spec::lookup_full(args.arg(index)));
    reply::map(out, protocol, known().count());
    for spec in known() {
        documentation(out, protocol, spec);
    }
    Ok(())
}

fn documentation(out: &mut Vec<u8>, protocol: Protocol, spec: &Spec) {
    reply::bulk(out, spec.name.as_bytes());
    let has_subcommands = !spec.subcommands.is_empty();
    reply::map(out, protocol, 4 + usize::from(has_subcommands));
    field(out, "summary", spec.summary);
    field(out, "since", spec.since);
    field(out, "group", spec.group);
    field(out, "complexity", spec.complexity);
    if has_subcommands {
        reply::bulk(out, b"subcommands");
        reply::map(out, protocol, spec.subcommands.len());
        for sub in &spec.subcommands {
            documentation(out, protocol, sub);
        }
    }
}

enum Filter<'a> {
    None,
    Module,
    Category(&'a [u8]),
    Pattern(Pattern),
}

impl Filter<'_> {
    fn admits(&self, spec: &Spec) -> bool {
        match self {
            Filter::None => true,
            Filter::Module => false,
            Filter::Category(category) => spec.is_in(category),
            Filter::Pattern(pattern) => pattern.matches(spec.name.as_bytes()),
        }
    }
}

fn list<A: ArgList + ?Sized>(out: &mut Vec<u8>, args: &A) -> Result<(), ClientError> {
    let filter = match args.len() {
        INNER => Filter::None,
        5 if args.arg(2).eq_ignore_ascii_case(b"filterby") => {
            let (kind, value) = (args.arg(3), args.arg(4));
            match () {
                () if kind.eq_ignore_ascii_case(b"module") => Filter::Module,
                () if kind.eq_ignore_ascii_case(b"aclcat") => Filter::Category(value),
                () if kind.eq_ignore_ascii_case(b"pattern") => {
                    Filter::Pattern(pattern_ignoring_case(value)?)
                }
                () => return Err(ClientError::Syntax),
            }
        }
        _ => return Err(ClientError::Syntax),
    };
    let names: Vec<&str> = commands()
        .iter()
        .flat_map(Spec::all)
        .filter(|spec| filter.admits(spec))
        .map(|spec| spec.name)
        .collect();
    reply::array(out, names.len());
    for name in names {
        reply::bulk(out, name.as_bytes());
    }
    Ok(())
}

fn inner_command<A: ArgList + ?Sized>(
    args: &A,
) -> Result<(Tail<'_, A>, &'static Spec), ClientError> {
    let inner = Tail {
        args,
        skipped: INNER,
    };
    let spec = spec::find(&inner).map_err(|_| ClientError::GetKeysUnknown)?;
    match () {
        () if !spec.has_keys() => Err(ClientError::GetKeysNone),
        () if !spec.accepts(inner.len()) => Err(ClientError::GetKeysArity),
        () => Ok((inner, spec)),
    }
}

fn get_keys<A: ArgList + ?Sized>(out: &mut Vec<u8>, args: &A) -> Result<(), ClientError> {
    let (inner, spec) = inner_command(args)?;
    reply::array(out, spec.keys_of(&inner).count());
    for index in spec.keys_of(&inner) {
        reply::bulk(out, inner.arg(index));
    }
    Ok(())
}

fn get_keys_and_flags<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    args: &A,
) -> Result<(), ClientError> {
    let (inner, spec) = inner_command(args)?;
    reply::array(out, spec.keys_of(&inner).count());
    for index in spec.keys_of(&inner) {
        reply::array(out, 2);
        reply::bulk(out, inner.arg(index));
        statuses(out, protocol, key_flags(spec, &inner, index));
    }
    Ok(())
}

/// What the command does to the value of the key at `index`, for whoever asks whether it may.
pub(crate) fn key_access<A: ArgList + ?Sized>(
    spec: &'static Spec,
    args: &A,
    index: usize,
) -> KeyAccess {
    let flags = key_flags(spec, args, index);
    let has = |flag| flags.contains(&flag);
    KeyAccess {
        reads: has("access"),
        writes: has("insert") || has("update") || has("delete"),
    }
}

/// What happens to the key at `index`; SET reads the old value only with its GET option, and BITFIELD writes only if it
/// is told to.
fn key_flags<A: ArgList + ?Sized>(
    spec: &'static Spec,
    inner: &A,
    index: usize,
) -> &'static [&'static str] {
    if spec.cmd == Cmd::Set {
        let gets = (3..inner.len()).any(|option| inner.arg(option).eq_ignore_ascii_case(b"get"));
        return if gets {
            &["RW", "access", "update"]
        } else {
            &["OW", "update"]
        };
    }
    if spec.cmd == Cmd::Bitfield && only_gets(inner) {
        return &["RO", "access"];
    }
    let described = spec
        .keys
        .iter()
        .rev()
        .find(|keys| usize::from(keys.begin) <= index);
    described.map_or(&[], |keys| &keys.flags)
}

/// Whether BITFIELD has no SET and no INCRBY, and nothing that is wrong.
fn only_gets<A: ArgList + ?Sized>(args: &A) -> bool {
    let mut at = 2;
    while at < args.len() {
        let name = args.arg(at);
        at += match () {
            () if name.eq_ignore_ascii_case(b"get") => 3,
            () if name.eq_ignore_ascii_case(b"overflow") => 2,
            () => return false,
        };
    }
    at == args.len()
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    reply::bulk(out, name.as_bytes());
    reply::bulk(out, value.as_bytes());
}

fn number(out: &mut Vec<u8>, name: &str, value: i64) {
    reply::bulk(out, name.as_bytes());
    reply::integer(out, value);
}

#[cfg(test)]
mod tests;
