//! Everything a client's command is, apart from its effect: the command table, argument parsing,
//! error texts and the replies that describe the server. Pure: no I/O, no clock, no shared state.
//!
//! A request is looked up with [`spec::resolve`], its arguments are read by [`parse`], and
//! whatever is refused becomes a [`error::ClientError`], whose texts live in one file.

pub mod spec;

pub mod parse;

pub mod error;

pub mod introspect;

pub mod client;

pub mod tracking;

pub mod cluster;

pub mod config;

pub mod info;

pub mod help;
pub mod hotkeys;

pub mod latency;

pub mod slot_stats;
pub mod slowlog;

pub mod memory;

pub mod lolwut;

pub use error::ClientError;
pub use parse::ArgList;
pub use spec::{Cmd, Spec, lookup, resolve};
