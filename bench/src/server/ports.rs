use std::net::{Ipv4Addr, TcpListener};

use crate::error::{BenchError, Result};

use super::Product;

/// Below the kernel's ephemeral ports, and low enough that `+ 20000` is a port too.
const FIRST: u16 = 21_000;
const LAST: u16 = 31_000;
const STRIDE: u16 = 10;
/// Ephesus also listens this far above its port: peers and the embedded coordinator.
const FAR_OFFSETS: [u16; 2] = [10_000, 20_000];

/// A port that is free with all those the product derives from it.
///
/// # Errors
/// When none is.
pub(super) fn free_base(product: Product, shards: u16) -> Result<u16> {
    candidates()
        .find(|&base| is_free(product, shards, base))
        .ok_or_else(none)
}

/// In an order that differs between processes.
fn candidates() -> impl Iterator<Item = u16> {
    let first = FIRST + (std::process::id() % 500) as u16 * STRIDE;
    (first..LAST)
        .chain(FIRST..first)
        .step_by(usize::from(STRIDE))
}

fn none() -> BenchError {
    let what = format!("free port between {FIRST} and {LAST}");
    BenchError::failed(what, "not found; end servers that are left over")
}

fn is_free(product: Product, shards: u16, base: u16) -> bool {
    match product {
        Product::Ephesus | Product::Older => is_free_block(base, shards + 1),
        // A member of a cluster has its bus 10000 above.
        Product::Redis | Product::Valkey => is_free_block(base, 1),
    }
}

/// The first of so many neighbouring ports that are free with what nodes derive from them.
///
/// # Errors
/// When there are none.
pub fn free_block(ports: u16) -> Result<u16> {
    candidates()
        .find(|&base| is_free_block(base, ports))
        .ok_or_else(none)
}

fn is_free_block(base: u16, ports: u16) -> bool {
    let near = base..base.saturating_add(ports);
    let far = FAR_OFFSETS
        .into_iter()
        .flat_map(|far| near.clone().map(move |port| port.saturating_add(far)));
    near.clone().chain(far).all(is_unused)
}

fn is_unused(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
