use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{BenchError, Result};

/// Below the kernel's ephemeral ports, and low enough that `+ 20000` is a port too.
const FIRST: u16 = 21_000;
const LAST: u16 = 31_000;
const STRIDE: u16 = 10;
/// Servers also listen so far above their ports: Ephesus for peers and with its embedded coordinator, members of a
/// cluster of Valkey on their bus.
const OFFSETS: [u16; 3] = [0, 10_000, 20_000];

/// The first of so many neighbouring ports that are free with what servers derive from them.
pub fn free_block(ports: u16) -> Result<u16> {
    // In an order that differs between processes, and behind what this one was given last, which may not be in use yet.
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let blocks = u32::from((LAST - FIRST) / STRIDE);
    let given = GIVEN.fetch_add(u32::from(ports / STRIDE + 1), Ordering::Relaxed);
    let at = (std::process::id() % blocks + given % blocks) % blocks;
    let first = FIRST + at as u16 * STRIDE;
    let mut bases = (first..LAST).chain(FIRST..first);
    let is_unused = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let is_free = |base: &u16| {
        let near = *base..base.saturating_add(ports);
        let mut all = near.flat_map(|port| OFFSETS.map(|far| port.saturating_add(far)));
        all.all(is_unused)
    };
    let base = bases.by_ref().step_by(STRIDE.into()).find(is_free);
    let what = format!("free port between {FIRST} and {LAST}");
    base.ok_or_else(|| BenchError::failed(what, "not found; end servers that are left over"))
}
