//! Rules as ACL SETUSER and ACL files have them, applied to a user one after the other.

use ephesus_wire::glob::Pattern;
use ephesus_wire::limits::PATTERN_BYTES_MAX;

use super::password::{PASSWORD_BYTES_MAX, PasswordHash};
use super::permissions::{Commands, KeyAccess, Permissions};
use super::user::User;
use crate::command::spec::{self, Spec, commands};

/// The categories of Redis, in its order; some have no command here.
pub const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Why a rule cannot be applied, in Redis's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("Syntax error")]
    Syntax,
    #[error("Unknown command or category name in ACL")]
    Unknown,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
         Try 'resetkeys' to start with an empty list of patterns"
    )]
    KeysAreAll,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
         Try 'resetchannels' to start with an empty list of channels"
    )]
    ChannelsAreAll,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    PasswordHash,
    #[error("a password cannot be longer than {PASSWORD_BYTES_MAX} bytes")]
    PasswordTooLong,
    #[error("a pattern cannot be longer than {PATTERN_BYTES_MAX} bytes")]
    PatternTooLong,
    #[error("Selectors are not supported: give the user one set of rules")]
    Selector,
}

/// Whether a rule holds a password, which no error may repeat.
#[must_use]
pub fn is_secret(rule: &[u8]) -> bool {
    matches!(rule.first(), Some(b'>' | b'<' | b'#' | b'!'))
}

/// Whether a name or a pattern has bytes that would break the line it stands in.
#[must_use]
pub fn has_spaces(text: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0);
    text.iter().any(is_space)
}

/// Applies one rule.
///
/// # Errors
/// What is wrong with it; the user is as it was.
pub fn apply(user: &mut User, rule: &[u8]) -> Result<(), RuleError> {
    let word = rule.to_ascii_lowercase();
    match &*word {
        b"" | b"sanitize-payload" | b"skip-sanitize-payload" => {}
        b"on" => user.is_on = true,
        b"off" => user.is_on = false,
        b"nopass" => {
            user.needs_no_password = true;
            user.passwords.clear();
        }
        b"resetpass" => {
            user.needs_no_password = false;
            user.passwords.clear();
        }
        b"allkeys" | b"~*" => user.permissions.set_all_keys(true),
        b"resetkeys" => user.permissions.set_all_keys(false),
        b"allchannels" | b"&*" => user.permissions.set_all_channels(true),
        b"resetchannels" => user.permissions.set_all_channels(false),
        b"allcommands" | b"+@all" => user.permissions.commands = Commands::new(true),
        b"nocommands" | b"-@all" => user.permissions.commands = Commands::new(false),
        // There are none.
        b"clearselectors" => {}
        b"reset" => {
            user.is_on = false;
            user.needs_no_password = false;
            user.passwords.clear();
            user.permissions = Permissions::new(false);
        }
        _ => return apply_argument(user, rule),
    }
    Ok(())
}

/// Applies a rule that begins with a sign.
fn apply_argument(user: &mut User, rule: &[u8]) -> Result<(), RuleError> {
    let Some((sign, rest)) = rule.split_first() else {
        return Ok(());
    };
    match sign {
        b'>' => {
            let hash = PasswordHash::of(rest).ok_or(RuleError::PasswordTooLong)?;
            add_password(user, hash);
        }
        b'#' => {
            let hash = PasswordHash::from_hex(rest).ok_or(RuleError::PasswordHash)?;
            add_password(user, hash);
        }
        b'<' => {
            let hash = PasswordHash::of(rest).ok_or(RuleError::NoSuchPassword)?;
            remove_password(user, hash)?;
        }
        b'!' => {
            let hash = PasswordHash::from_hex(rest).ok_or(RuleError::PasswordHash)?;
            remove_password(user, hash)?;
        }
        b'~' => add_keys(&mut user.permissions, rest, KeyAccess::BOTH)?,
        b'%' => {
            let (access, pattern) = key_access(rest)?;
            add_keys(&mut user.permissions, pattern, access)?;
        }
        b'&' => add_channels(&mut user.permissions, rest)?,
        b'+' | b'-' => change_commands(&mut user.permissions.commands, rest, *sign == b'+')?,
        b'(' => return Err(RuleError::Selector),
        _ => return Err(RuleError::Syntax),
    }
    Ok(())
}

fn add_password(user: &mut User, hash: PasswordHash) {
    if !user.passwords.contains(&hash) {
        user.passwords.push(hash);
    }
    user.needs_no_password = false;
}

fn remove_password(user: &mut User, hash: PasswordHash) -> Result<(), RuleError> {
    let before = user.passwords.len();
    user.passwords.retain(|other| *other != hash);
    match user.passwords.len() < before {
        true => Ok(()),
        false => Err(RuleError::NoSuchPassword),
    }
}

/// Reads what is between `%` and the pattern.
fn key_access(rule: &[u8]) -> Result<(KeyAccess, &[u8]), RuleError> {
    let mut access = KeyAccess::default();
    for (index, byte) in rule.iter().enumerate() {
        match byte.to_ascii_uppercase() {
            b'R' if !access.reads => access.reads = true,
            b'W' if !access.writes => access.writes = true,
            b'~' if access != KeyAccess::default() => {
                return Ok((access, rule.get(index + 1..).unwrap_or_default()));
            }
            _ => return Err(RuleError::Syntax),
        }
    }
    Err(RuleError::Syntax)
}

fn compiled(pattern: &[u8]) -> Result<Pattern, RuleError> {
    if has_spaces(pattern) {
        return Err(RuleError::Syntax);
    }
    Pattern::new(pattern).ok_or(RuleError::PatternTooLong)
}

fn add_keys(
    permissions: &mut Permissions,
    pattern: &[u8],
    access: KeyAccess,
) -> Result<(), RuleError> {
    if permissions.are_all_keys() {
        return Err(RuleError::KeysAreAll);
    }
    permissions.add_keys(pattern, compiled(pattern)?, access);
    Ok(())
}

fn add_channels(permissions: &mut Permissions, pattern: &[u8]) -> Result<(), RuleError> {
    if permissions.are_all_channels() {
        return Err(RuleError::ChannelsAreAll);
    }
    permissions.add_channels(pattern, compiled(pattern)?);
    Ok(())
}

/// Applies `command`, `command|subcommand`, `command|first-argument` or `@category`.
fn change_commands(
    commands: &mut Commands,
    name: &[u8],
    is_allowed: bool,
) -> Result<(), RuleError> {
    if let Some(category) = name.strip_prefix(b"@") {
        let category = self::category(category).ok_or(RuleError::Unknown)?;
        commands.change_category(category, spec::commands(), is_allowed);
        return Ok(());
    }
    let Some(bar) = name.iter().rposition(|&byte| byte == b'|') else {
        commands.change(lookup(name)?, is_allowed);
        return Ok(());
    };
    let (container, sub) = name.split_at(bar);
    let sub = sub.get(1..).unwrap_or_default();
    if !is_allowed {
        commands.change(lookup(name)?, false);
        return Ok(());
    }
    let container = lookup(container)?;
    if container.name.contains('|') {
        return Err(RuleError::FirstArgOfSubcommand);
    }
    if sub.is_empty() {
        return Err(RuleError::Syntax);
    }
    if container.subcommands.is_empty() {
        if has_spaces(sub) {
            return Err(RuleError::Syntax);
        }
        commands.allow_first_arg(container, sub);
    } else {
        commands.change(lookup(name)?, true);
    }
    Ok(())
}

fn lookup(name: &[u8]) -> Result<&'static Spec, RuleError> {
    spec::lookup_full(name).ok_or(RuleError::Unknown)
}

/// The category of that name, without its `@`.
#[must_use]
pub fn category(name: &[u8]) -> Option<&'static str> {
    let mut known = CATEGORIES.into_iter();
    known.find(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// The commands and subcommands of a category.
pub fn commands_of(category: &str) -> impl Iterator<Item = &'static Spec> {
    let all = commands().iter().flat_map(Spec::all);
    all.filter(move |spec| spec.is_in(category.as_bytes()))
}
