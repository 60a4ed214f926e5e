//! Connections that are sealed, as those of links with a secret are.

use std::net::TcpStream;

use ephesus_coordinator::link::PeerStream;
use ephesus_wire::seal::{KEY_BYTES, Seals};

/// Both ends, sealed.
pub(super) fn sealed(ends: [TcpStream; 2]) -> [PeerStream; 2] {
    let [near, far] = ends;
    let [a, b] = [[1; KEY_BYTES], [2; KEY_BYTES]];
    [(near, a, b), (far, b, a)].map(|(tcp, own, others)| PeerStream {
        tcp,
        seals: Some(Box::new(Seals::new(own.into(), others.into()))),
    })
}
