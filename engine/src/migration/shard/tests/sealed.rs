//! Connections that are sealed, as those of links with a secret are.

use std::net::TcpStream;

use ephesus_coordinator::link::PeerStream;
use ephesus_wire::handshake::{Handshake, Hello, Identity, LinkRole, Secret, Step, Versions};
use ephesus_wire::seal::Seals;
use ephesus_wire::{NodeId, frame};

/// Both ends, sealed.
pub(super) fn sealed(ends: [TcpStream; 2]) -> [PeerStream; 2] {
    let [near, far] = ends;
    let [of_near, of_far] = seals();
    [(near, of_near), (far, of_far)].map(|(tcp, seals)| PeerStream {
        tcp,
        seals: Some(Box::new(seals)),
    })
}

/// What a handshake leaves both ends with.
fn seals() -> [Seals; 2] {
    let hello = |node: u8| Hello {
        identity: Identity {
            versions: Versions { min: 1, max: 1 },
            features: 0,
            role: LinkRole::Node,
            cluster: None,
            node: NodeId([node; 16]),
            raft_id: 0,
        },
        nonce: [node; 32],
    };
    let secret = || Secret::new(b"sixteen bytes and more".to_vec()).ok();
    let (mut near, mut said) = Handshake::connect(hello(1), secret());
    let mut far = Handshake::accept(hello(2), secret());
    for turn in 0..4 {
        let to = if turn % 2 == 0 { &mut far } else { &mut near };
        let (frame, _) = frame::decode(&said).expect("a frame").expect("whole");
        said = match to.feed(frame).expect("a message of the handshake") {
            Step::Send(bytes) | Step::Done { send: bytes, .. } => bytes,
        };
    }
    [near, far].map(|end| end.into_seals().expect("with secrets"))
}
