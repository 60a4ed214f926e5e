//! Users, what each may do, and who tried what it may not: access control lists as Redis has them.
//!
//! [`Users`] is an immutable value with a version. [`SharedUsers`] holds the newest one for all shards of the node; a
//! shard compares versions and takes the new value when they differ, so that a command looks at no lock. A connection
//! is somebody by its `identity`, and one whose user may do everything is asked nothing but whether the version is
//! still the same.
//!
//! Nothing here keeps a password: only its SHA-256, as Redis's ACL files do.

pub mod command;
pub mod denied;
pub mod file;
pub mod identity;
pub mod log;
pub mod password;
pub mod permissions;
pub mod rule;
pub mod shared;
pub mod storage;
pub mod thread;
pub mod user;
pub mod users;

pub use denied::Denied;
pub use identity::{Followed, Identity};
pub use shared::SharedUsers;
pub use user::User;
pub use users::Users;

#[cfg(test)]
mod tests;
