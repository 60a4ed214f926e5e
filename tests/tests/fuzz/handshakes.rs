//! Handshakes of links, both ends: what the other one sends is changed on the way.

use ephesus_tests::Rng;
use ephesus_wire::NodeId;
use ephesus_wire::frame::{self, Frame};
use ephesus_wire::handshake::{Handshake, Hello, Identity, LinkRole, Secret, Step, Versions};

use super::mutations::{fuzz, input};

fn hello(role: LinkRole, nonce: u8) -> Hello {
    Hello {
        identity: Identity {
            versions: Versions { min: 1, max: 1 },
            features: 0,
            role,
            cluster: Some([4; 16]),
            node: NodeId([nonce; 16]),
            raft_id: 0,
        },
        nonce: [nonce; 32],
    }
}

/// Feeds what may be several frames; answers what is to be sent.
fn feed(handshake: &mut Handshake, mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut sent = Vec::new();
    while let Ok(Some((frame, len))) = frame::decode(bytes) {
        match handshake.feed(frame) {
            Ok(Step::Send(more) | Step::Done { send: more, .. }) => sent.extend(more),
            Err(error) => {
                let _ = (error.to_string(), handshake.farewell(&error));
                return None;
            }
        }
        bytes = &bytes[len..];
    }
    Some(sent)
}

#[test]
fn either_end_takes_anything() {
    let secret = || Secret::new(b"a secret that is long enough".to_vec());
    let secrets = [None, secret().ok()];
    let (_, first) = Handshake::connect(hello(LinkRole::Node, 1), None);
    let mut rng = Rng::new(ephesus_tests::seed_of_run("handshakes"));
    fuzz("handshakes", vec![first[32..].to_vec()], |payload| {
        let secret = rng.pick(&secrets).clone();
        let mut accepting = Handshake::accept(hello(LinkRole::Coordinator, 2), secret.clone());
        let (mut connecting, first) = Handshake::connect(hello(LinkRole::Node, 1), secret);
        let changed = |kind: u16, sequence, payload: &[u8]| {
            let mut bytes = Vec::new();
            let frame = Frame {
                kind,
                stream: 0,
                sequence,
                payload,
            };
            frame.encode(&mut bytes);
            bytes
        };
        // The first message is changed, or a later one.
        let kind = u16::from_le_bytes([first[4], first[5]]);
        let _ = feed(&mut accepting, &changed(kind, 0, payload));
        let mut accepting = Handshake::accept(hello(LinkRole::Coordinator, 2), None);
        if let Some(answer) = feed(&mut accepting, &first)
            && answer.len() > 32
        {
            let kind = u16::from_le_bytes([answer[4], answer[5]]);
            let payload = input(&mut rng, &[answer[32..].to_vec()]);
            let _ = feed(&mut connecting, &changed(kind, 0, &payload));
        }
    });
}
