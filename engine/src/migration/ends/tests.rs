//! Source and target connected through a queue, against a simple model of the keyspace.

mod crashes;
mod images;
mod moves;
mod pair;
mod rates;
mod unserved;
pub(crate) mod workload;
