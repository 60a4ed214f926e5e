//! ACL files: a line for each user, in Redis's format.

use super::rule::RuleError;
use super::users::{RULES_MAX, USERS_BYTES_MAX, Users, UsersError};
use crate::command::error::Quoted;

/// Longest ACL file, bytes: all users that there may be fit it, whose passwords take twice as much as text.
pub const FILE_BYTES_MAX: usize = 3 * USERS_BYTES_MAX;

/// The lines that cannot be read, as ACL LOAD and a start say it; `path` is the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
)]
pub struct AclFileError(String);

/// Most errors that are told of one file.
const ERRORS_MAX: usize = 8;

/// Reads users; the default user is as ever if the file does not name it.
///
/// # Errors
/// [`AclFileError`]: all lines that are wrong, without the passwords in them.
pub fn parse(path: &str, text: &[u8]) -> Result<Users, AclFileError> {
    let mut users = Users::nobody();
    let mut errors = Vec::new();
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let words = line.split(u8::is_ascii_whitespace);
        let mut words = words.filter(|word| !word.is_empty());
        let Some(first) = words.next() else {
            continue;
        };
        if errors.len() == ERRORS_MAX {
            break;
        }
        let name = words.next().filter(|_| first == b"user");
        let Some(name) = name else {
            errors.push(format!(
                "{path}:{number} should start with user keyword followed by the username. "
            ));
            continue;
        };
        let rules: Vec<&[u8]> = words.collect();
        if let Err(error) = users.add(name, rules.iter().copied()) {
            errors.push(describe(path, number, name, &rules, &error));
        }
    }
    match errors.is_empty() {
        true => Ok(users.completed()),
        false => Err(AclFileError(errors.concat())),
    }
}

fn describe(path: &str, number: usize, name: &[u8], rules: &[&[u8]], error: &UsersError) -> String {
    let name = Quoted::new(name);
    match error {
        UsersError::Rule(index, RuleError::Unknown) => {
            let rule = Quoted::new(rules.get(*index).copied().unwrap_or_default());
            let unknown = RuleError::Unknown;
            format!("{path}:{number}: Error in applying operation '{rule}': {unknown}. ")
        }
        UsersError::Rule(_, error) => format!("{path}:{number}: {error}. "),
        UsersError::Duplicate => {
            format!("WARNING: Duplicate user '{name}' found on line {number}. ")
        }
        UsersError::TooLarge => {
            format!("{path}:{number}: all users together take too much memory. ")
        }
        UsersError::TooManyRules => {
            format!("{path}:{number}: a user can have at most {RULES_MAX} rules. ")
        }
        UsersError::Name | UsersError::DefaultUser => {
            format!("'{path}:{number}: username '{name}' contains invalid characters. ")
        }
    }
}

/// The file that [`parse`] reads these users from.
#[must_use]
pub fn write(users: &Users) -> Vec<u8> {
    let mut text = Vec::new();
    for user in users.iter() {
        text.extend_from_slice(&user.describe());
        text.push(b'\n');
    }
    text
}
