//! The replies to ACL's subcommands that only look.

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request;

use super::permissions::STEPS_MAX;
use super::rule;
use super::user::User;
use super::users::{Users, UsersError};
use crate::command::error::{ClientError, Quoted};
use crate::command::parse::{self, ArgList, Tail};
use crate::command::spec::{self, Cmd};

/// Bits of a password that ACL GENPASS makes if nobody says how many, and the most.
const PASSWORD_BITS_DEFAULT: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// Entries that ACL LOG shows if nobody says how many.
const LOG_COUNT_DEFAULT: usize = 10;

/// What ACL HELP says.
pub const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List the commands of a category, or the categories if none is given.",
    "DELUSER <username> [<username> ...]",
    "    Remove users and end their connections.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Say whether the user may execute the command, without executing it.",
    "GETUSER <username>",
    "    Show one user.",
    "GENPASS [<bits>]",
    "    Make a password that cannot be guessed, of 256 bits if the optional",
    "    argument does not say how many.",
    "LIST",
    "    Show all users as an ACL file has them.",
    "LOAD",
    "    Read the users again from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show what was refused, or forget it.",
    "SAVE",
    "    Write the users into the ACL file.",
    "SETUSER <username> <rule> [<rule> ...]",
    "    Make a user, or change one, by rules.",
    "USERS",
    "    List the names of all users.",
    "WHOAMI",
    "    Say which user this connection is.",
    "HELP",
    "    Print this help.",
    "    ACL files, categories and rules are those of Redis; selectors are not supported.",
];

/// Appends the reply to a subcommand that looks at users or at none.
///
/// # Errors
/// What the client did wrong; nothing was appended.
pub fn reply<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    cmd: Cmd,
    args: &A,
    users: &Users,
) -> Result<(), ClientError> {
    match cmd {
        Cmd::AclList => {
            reply::array(out, users.iter().len());
            users
                .iter()
                .for_each(|user| reply::bulk(out, &user.describe()));
        }
        Cmd::AclUsers => {
            reply::array(out, users.iter().len());
            users.iter().for_each(|user| reply::bulk(out, user.name()));
        }
        Cmd::AclGetuser => match users.get(args.arg(2)) {
            Some(user) => write_user(out, protocol, user),
            None => reply::null(out, protocol),
        },
        Cmd::AclCat => return categories(out, args),
        Cmd::AclDryrun => return dry_run(out, args, users),
        other => return Err(ClientError::WrongArity(other.name())),
    }
    Ok(())
}

fn write_user(out: &mut Vec<u8>, protocol: Protocol, user: &User) {
    reply::map(out, protocol, 6);
    reply::bulk(out, b"flags");
    reply::set(out, protocol, 1 + usize::from(user.needs_no_password));
    reply::bulk(out, if user.is_on { b"on" } else { b"off" });
    if user.needs_no_password {
        reply::bulk(out, b"nopass");
    }
    reply::bulk(out, b"passwords");
    reply::array(out, user.passwords.len());
    for password in &user.passwords {
        reply::bulk(out, password.to_string().as_bytes());
    }
    let permissions = &user.permissions;
    reply::bulk(out, b"commands");
    reply::bulk(out, &permissions.commands.describe());
    reply::bulk(out, b"keys");
    reply::bulk(out, &permissions.describe_keys());
    reply::bulk(out, b"channels");
    reply::bulk(out, &permissions.describe_channels());
    reply::bulk(out, b"selectors");
    reply::array(out, 0);
}

fn categories<A: ArgList + ?Sized>(out: &mut Vec<u8>, args: &A) -> Result<(), ClientError> {
    let names: Vec<&str> = match args.len() {
        2 => rule::CATEGORIES.to_vec(),
        3 => {
            let name = args.arg(2);
            let category = rule::category(name);
            let category = category.ok_or_else(|| ClientError::AclCategory(Quoted::new(name)))?;
            rule::commands_of(category).map(|spec| spec.name).collect()
        }
        _ => return Err(ClientError::WrongArity(Cmd::AclCat.name())),
    };
    reply::array(out, names.len());
    names
        .iter()
        .for_each(|name| reply::bulk(out, name.as_bytes()));
    Ok(())
}

/// `ACL DRYRUN user command [argument ...]`.
fn dry_run<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    args: &A,
    users: &Users,
) -> Result<(), ClientError> {
    let name = args.arg(2);
    let user = users.get(name);
    let user = user.ok_or_else(|| ClientError::AclNoUser(Quoted::new(name)))?;
    let inner = Tail { args, skipped: 3 };
    let spec = spec::find(&inner);
    let spec = spec.map_err(|_| ClientError::AclNoCommand(Quoted::new(inner.arg(0))))?;
    if !spec.accepts(inner.len()) {
        return Err(ClientError::WrongArity(spec.name));
    }
    let mut steps = STEPS_MAX;
    match user.check(spec, &inner, &mut steps) {
        Ok(()) => out.extend_from_slice(reply::OK),
        Err(denied) => {
            let refusal = denied.told_in_full(user.name(), denied.object(&inner));
            reply::bulk(out, refusal.to_string().as_bytes());
        }
    }
    Ok(())
}

/// The bits of `ACL GENPASS [bits]`.
///
/// # Errors
/// [`ClientError::NotAnInteger`] or [`ClientError::GenpassBits`].
pub fn password_bits<A: ArgList + ?Sized>(args: &A) -> Result<usize, ClientError> {
    let bits = match args.len() {
        2 => PASSWORD_BITS_DEFAULT,
        3 => parse::integer(args.arg(2))?,
        _ => return Err(ClientError::WrongArity(Cmd::AclGenpass.name())),
    };
    match usize::try_from(bits) {
        Ok(bits @ 1..) if bits <= PASSWORD_BITS_MAX as usize => Ok(bits),
        _ => Err(ClientError::GenpassBits),
    }
}

/// What `ACL LOG [count | RESET]` asks for: so many entries, or none and to forget all.
///
/// # Errors
/// [`ClientError::NotAnInteger`] or [`ClientError::WrongArity`].
pub fn log_count<A: ArgList + ?Sized>(args: &A) -> Result<Option<usize>, ClientError> {
    match args.len() {
        2 => Ok(Some(LOG_COUNT_DEFAULT)),
        3 if args.arg(2).eq_ignore_ascii_case(b"reset") => Ok(None),
        3 => {
            let count = request::integer(args.arg(2)).ok_or(ClientError::NotAnInteger)?;
            Ok(Some(usize::try_from(count).unwrap_or(0)))
        }
        _ => Err(ClientError::WrongArity(Cmd::AclLog.name())),
    }
}

/// What a client is told whose change of users is refused; `rules` are those that it sent, of which no password is
/// repeated.
#[must_use]
pub fn refusal<A: ArgList + ?Sized>(error: UsersError, args: &A, first_rule: usize) -> ClientError {
    match error {
        UsersError::Rule(index, error) => {
            let rule = args.arg(first_rule + index);
            let shown = match rule.split_at_checked(1) {
                Some((sign, _)) if rule::is_secret(rule) => [sign, b"(redacted)"].concat(),
                _ => rule.to_vec(),
            };
            ClientError::AclRule(Quoted::new(&shown), error)
        }
        UsersError::TooLarge => ClientError::AclTooLarge,
        UsersError::TooManyRules => ClientError::AclTooManyRules,
        UsersError::DefaultUser => ClientError::AclDefaultUser,
        UsersError::Name | UsersError::Duplicate => ClientError::AclUserName,
    }
}
