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
    let first = FIRST + (std::process::id() % 500) as u16 * STRIDE;
    let mut candidates = (first..LAST)
        .chain(FIRST..first)
        .step_by(usize::from(STRIDE));
    candidates
        .find(|&base| is_free(product, shards, base))
        .ok_or_else(|| BenchError::Missing {
            what: format!("free port between {FIRST} and {LAST}"),
            remedy: "end servers that are left over",
        })
}

fn is_free(product: Product, shards: u16, base: u16) -> bool {
    let near = match product {
        Product::Ephesus => shards,
        Product::Redis | Product::Valkey => 0,
    };
    let far = FAR_OFFSETS
        .iter()
        .filter(|_| product == Product::Ephesus)
        .map(|far| base + far);
    (base..=base.saturating_add(near))
        .chain(far)
        .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}
