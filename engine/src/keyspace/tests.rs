//! The keyspace against simple models, with a log whose writes the tests complete.

mod expiry;
mod growth;
pub(crate) mod keep;
pub(crate) mod model;
mod roles;
mod sequences;
pub(crate) mod tape;
