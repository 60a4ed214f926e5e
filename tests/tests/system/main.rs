//! The real binary, from outside: `make test` builds it first; `EPHESUS_BIN` names another one.
//!
//! Every random test prints its seed; `EPHESUS_SEED=n` repeats it.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests measure real processes"
)]

mod abuse;
mod applications;
mod asking;
mod attacks;
mod backpressure;
mod banner;
mod benchmark;
mod check;
mod clients;
mod cluster;
mod commands;
mod coordinators;
mod crash;
mod damage;
mod disk_space;
mod durability;
mod keep_alive;
mod limits;
mod load;
mod local_cluster;
mod lost;
mod memory;
mod migration;
mod moves;
mod needs;
mod page;
mod refusals;
mod resharding;
mod scan;
mod settings;
mod shutdown;
mod stored;
mod time;
mod tls;
mod transactions;
mod whole_cluster;
