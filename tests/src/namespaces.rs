//! Several namespaces, each with a network of its own behind the host, which routes between them, so that
//! any two of them can be cut off from each other one way.
//!
//! ```text
//! host      10.78.0.1        clients and nodes; the thread's own namespace, which routes
//!   | veth
//! netns N   10.78.N.2        one process; the namespace of a process that sleeps
//! ```
//!
//! Everything is gone when the thread and the processes have ended.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use crate::network::{Holder, ip, on_own_network};

/// Where clients and nodes are.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// The namespaces, and what is cut.
#[derive(Debug)]
pub struct Namespaces {
    holders: Vec<Holder>,
    cuts: Mutex<BTreeSet<(Ipv4Addr, Ipv4Addr)>>,
}

/// Runs `test` on a thread whose network has this many namespaces: processes and sockets that it makes are
/// on the host.
///
/// # Panics
/// As [`with_own_network`](crate::network::with_own_network).
pub fn with_namespaces(namespaces: u8, test: impl FnOnce(&Namespaces) + Send) {
    on_own_network(|| test(&Namespaces::make(namespaces)));
}

impl Namespaces {
    fn make(namespaces: u8) -> Self {
        ip("link set lo up");
        ip(&format!("addr add {HOST}/32 dev lo"));
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("the host routes");
        let make = |n: u8| {
            let holder = Holder::new();
            let (host, netns) = (format!("10.78.{n}.1"), address(n));
            let name = format!("outer{n}");
            let pid = holder.pid();
            ip(&format!(
                "link add {name} type veth peer name inner netns {pid}"
            ));
            ip(&format!("addr add {host}/24 dev {name}"));
            ip(&format!("link set {name} up"));
            holder.ip("link set lo up");
            holder.ip(&format!("addr add {netns}/24 dev inner"));
            holder.ip("link set inner up");
            holder.ip(&format!("route add default via {host}"));
            holder
        };
        Self {
            holders: (1..=namespaces).map(make).collect(),
            cuts: Mutex::default(),
        }
    }

    /// Where a namespace is, counted from 1, and what runs a program in it, under its own pid.
    pub fn place(&self, n: u8) -> (Ipv4Addr, Vec<String>) {
        (address(n), self.holders[usize::from(n) - 1].wrapper())
    }

    /// From now on packets from one namespace to the other vanish.
    pub fn cut(&self, from: Ipv4Addr, to: Ipv4Addr) {
        if self.cuts.lock().expect("the cuts").insert((from, to)) {
            ip(&format!("rule add blackhole from {from} to {to}"));
        }
    }

    /// Everything arrives again.
    pub fn heal(&self) {
        for (from, to) in std::mem::take(&mut *self.cuts.lock().expect("the cuts")) {
            ip(&format!("rule del blackhole from {from} to {to}"));
        }
    }
}

fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, n, 2)
}
