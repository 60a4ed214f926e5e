//! Source and target connected through a queue, against a simple model of the keyspace.

mod crashes;
mod images;
mod pair;
mod rates;
mod unserved;
mod whole;
pub(crate) mod workload;
