//! TLS for clients.
//!
//! A connection that came through a TLS port has a [`Session`] between its socket and its parser; one of a plain port
//! has none, and nothing of this is on its way. [`TlsFiles`] are what the operator has given, and [`ServerTls`] is what the
//! sessions that begin next use of them.

mod files;
mod server;
mod session;

pub use files::{AuthClients, TlsFiles, TlsFilesError};
pub use server::{ServerTls, TlsOptions};
pub use session::{Said, Session};
