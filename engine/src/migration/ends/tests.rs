//! Source and target connected through a queue, against a simple model of the keyspace.

mod crashes;
mod images;
mod pair;
mod unserved;
mod whole;
pub(crate) mod workload;
