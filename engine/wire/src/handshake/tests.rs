use proptest::prelude::*;

use super::*;
use crate::frame;
use crate::ids::NodeId;

const SECRET: &[u8] = b"a secret of the cluster";

fn secret(contents: &[u8]) -> Option<Secret> {
    Some(Secret::new(contents.to_vec()).unwrap())
}

fn identity(node: u8) -> Identity {
    Identity {
        versions: Versions { min: 1, max: 3 },
        features: 0b1110,
        role: LinkRole::Node,
        cluster: Some([7; 16]),
        node: NodeId([node; 16]),
        raft_id: 0,
    }
}

fn hello(node: u8, nonce: u8) -> Hello {
    Hello {
        identity: identity(node),
        nonce: [nonce; NONCE_BYTES],
    }
}

/// All frames of `bytes`, which hold nothing else.
fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (frame, len) = frame::decode_limited(bytes, HANDSHAKE_PAYLOAD_BYTES_MAX)
            .unwrap()
            .expect("whole frames");
        frames.push(frame);
        bytes = &bytes[len..];
    }
    frames
}

/// How one handshake went, seen from both ends.
#[derive(Debug)]
struct Outcome {
    connector: Result<Opened, Option<HandshakeError>>,
    acceptor: Result<Opened, Option<HandshakeError>>,
    /// The messages as their senders sent them, in order.
    transcript: Vec<Vec<u8>>,
    /// What seals what follows, of the acceptor and of the connector.
    seals: [Option<Seals>; 2],
}

/// Lets two ends talk; `meddle` may change each message, which is numbered in order.
fn talk(
    connector: (Hello, Option<Secret>),
    acceptor: (Hello, Option<Secret>),
    mut meddle: impl FnMut(usize, &mut Vec<u8>),
) -> Outcome {
    let (connecting, first) = Handshake::connect(connector.0, connector.1);
    let mut ends = [Handshake::accept(acceptor.0, acceptor.1), connecting];
    let mut results: [Option<Result<Opened, HandshakeError>>; 2] = [None, None];
    let (mut transcript, mut next, mut to) = (Vec::new(), first, 0);
    while !next.is_empty() {
        transcript.push(next.clone());
        meddle(transcript.len() - 1, &mut next);
        let incoming = std::mem::take(&mut next);
        for frame in frames(&incoming) {
            if results[to].is_some() {
                break;
            }
            match ends[to].feed(frame) {
                Ok(Step::Send(bytes)) => next.extend(bytes),
                Ok(Step::Done { send, opened }) => {
                    next.extend(send);
                    results[to] = Some(Ok(opened));
                }
                Err(error) => {
                    next.extend(ends[to].farewell(&error));
                    results[to] = Some(Err(error));
                }
            }
        }
        to = 1 - to;
    }
    let [acceptor, connector] = results.map(|result| match result {
        Some(result) => result.map_err(Some),
        None => Err(None),
    });
    Outcome {
        connector,
        acceptor,
        transcript,
        seals: ends.map(Handshake::into_seals),
    }
}

fn untouched(_: usize, _: &mut Vec<u8>) {}

#[test]
fn ends_without_secrets_agree_after_one_message_each() {
    let mut wide = hello(2, 2);
    wide.identity.versions = Versions { min: 2, max: 9 };
    wide.identity.features = 0b0111;
    wide.identity.role = LinkRole::Coordinator;
    wide.identity.raft_id = 5;
    wide.identity.cluster = None;
    let outcome = talk((hello(1, 1), None), (wide, None), untouched);
    let opened = outcome.connector.unwrap();
    assert_eq!(opened.peer, wide.identity);
    assert_eq!((opened.version, opened.features), (3, 0b0110));
    let opened = outcome.acceptor.unwrap();
    assert_eq!(opened.peer, identity(1));
    assert_eq!((opened.version, opened.features), (3, 0b0110));
    assert_eq!(outcome.transcript.len(), 2);
}

#[test]
fn ends_with_the_same_secret_prove_it_to_each_other() {
    let newline = [SECRET, b"\n"].concat();
    let outcome = talk(
        (hello(1, 1), secret(SECRET)),
        (hello(2, 2), secret(&newline)),
        untouched,
    );
    assert_eq!(outcome.connector.unwrap().peer, identity(2));
    assert_eq!(outcome.acceptor.unwrap().peer, identity(1));
    assert_eq!(outcome.transcript.len(), 4);
}

/// What one end's sealed words are to the other one.
fn heard(from: &mut Seals, to: &mut Seals) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    from.sealer.seal(b"words", &mut bytes);
    let (plain, len) = to.opener.open(&mut bytes).ok()??;
    assert_eq!(len, bytes.len());
    Some(bytes[plain].to_vec())
}

#[test]
fn behind_proofs_both_ends_understand_each_other_and_nobody_else() {
    let shake = |nonce| {
        let ends = (
            (hello(1, nonce), secret(SECRET)),
            (hello(2, 2), secret(SECRET)),
        );
        let [acceptor, connector] = talk(ends.0, ends.1, untouched).seals;
        (acceptor.expect("seals"), connector.expect("seals"))
    };
    let (mut acceptor, mut connector) = shake(1);
    let words = Some(b"words".to_vec());
    for _ in 0..2 {
        assert_eq!(heard(&mut acceptor, &mut connector), words);
        assert_eq!(heard(&mut connector, &mut acceptor), words);
    }
    // Of another link, and back to who has said it.
    let (mut other, _) = shake(3);
    assert_eq!(heard(&mut connector, &mut other), None);
    let (mut acceptor, _) = shake(1);
    let mut itself = shake(1).0;
    assert_eq!(heard(&mut acceptor, &mut itself), None);
    let without = talk((hello(1, 1), None), (hello(2, 2), None), untouched);
    assert!(without.seals.iter().all(Option::is_none));
    let wrong = talk(
        (hello(1, 1), secret(SECRET)),
        (hello(2, 2), secret(b"some other secret")),
        untouched,
    );
    assert!(wrong.seals.iter().all(Option::is_none));
}

/// The key of fixed hellos under a fixed secret, as Python's hmac module computes it.
#[test]
fn keys_are_what_an_independent_implementation_computes() {
    let secret = Secret::new(SECRET.to_vec()).unwrap();
    let key = secret.key(Prover::Acceptor, b"one hello", b"another");
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "c021e5c5e25af21ccd34fba4a71e2e433f34c216f45cea8f7f2c8017d0023e82"
    );
}

#[test]
fn the_hello_has_the_documented_layout() {
    let mut own = hello(0xAB, 0xCD);
    own.identity.role = LinkRole::Coordinator;
    own.identity.raft_id = 0x0102;
    let (_, bytes) = Handshake::connect(own, secret(SECRET));
    let payload = frames(&bytes)[0].payload;
    let mut expected = vec![1, 0, 3, 0, 1, 3, 0, 0];
    expected.extend([0b1110, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([7; 16]);
    expected.extend([0xAB; 16]);
    expected.extend([2, 1, 0, 0, 0, 0, 0, 0]);
    expected.extend([0xCD; 32]);
    assert_eq!(payload, expected);
}

/// The proof of fixed hellos under a fixed secret, as Python's hmac module computes it.
#[test]
fn proofs_are_what_an_independent_implementation_computes() {
    let proof =
        Secret::new(SECRET.to_vec())
            .unwrap()
            .prove(Prover::Connector, b"one hello", b"another");
    let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "211703bf31c6787f10e3a284307d5b26a2939757758b006ca997cc05fa981873"
    );
}

#[test]
fn a_longer_hello_of_a_later_release_is_read_and_proved() {
    let extend = |_: usize, message: &mut Vec<u8>| {
        let frame = frames(message)[0];
        if frame.kind == KIND_HELLO {
            let payload = [frame.payload, b"new fields"].concat();
            *message = reframed(Frame {
                payload: &payload,
                ..frame
            });
        }
    };
    let plain = talk((hello(1, 1), None), (hello(2, 2), None), extend);
    assert!(plain.connector.is_ok() && plain.acceptor.is_ok());
    // In transit nobody may append anything.
    let secured = talk(
        (hello(1, 1), secret(SECRET)),
        (hello(2, 2), secret(SECRET)),
        extend,
    );
    assert_eq!(secured.acceptor, Err(Some(HandshakeError::SecretWrong)));
}

#[test]
fn every_pair_of_version_ranges_agrees_on_the_newest_common_one_or_is_refused() {
    let ranges = (0..6u16).flat_map(|min| (min..6).map(move |max| Versions { min, max }));
    for own in ranges.clone() {
        for peer in ranges.clone() {
            let newest = (0..6)
                .rev()
                .find(|v| [own, peer].iter().all(|r| (r.min..=r.max).contains(v)));
            let (mut connector, mut acceptor) = (hello(1, 1), hello(2, 2));
            connector.identity.versions = own;
            acceptor.identity.versions = peer;
            let outcome = talk((connector, None), (acceptor, None), untouched);
            match newest {
                Some(version) => {
                    assert_eq!(outcome.connector.unwrap().version, version);
                    assert_eq!(outcome.acceptor.unwrap().version, version);
                }
                None => {
                    let error = HandshakeError::Version { own, peer };
                    assert_eq!(outcome.connector, Err(Some(error.clone())));
                    let text = error.to_string();
                    assert!(text.contains(&format!("{} to {}", own.min, own.max)));
                    assert!(text.contains(&format!("{} to {}", peer.min, peer.max)));
                    let error = HandshakeError::Version {
                        own: peer,
                        peer: own,
                    };
                    assert_eq!(outcome.acceptor, Err(Some(error)));
                }
            }
        }
    }
}

#[test]
fn another_cluster_is_refused_by_both_ends() {
    let mut other = hello(2, 2);
    other.identity.cluster = Some([8; 16]);
    let outcome = talk((hello(1, 1), None), (other, None), untouched);
    let cluster = |own, peer| HandshakeError::Cluster {
        own: [own; 16],
        peer: [peer; 16],
    };
    assert_eq!(outcome.connector, Err(Some(cluster(7, 8))));
    assert_eq!(outcome.acceptor, Err(Some(cluster(8, 7))));
}

#[test]
fn a_side_with_a_secret_and_one_without_refuse_each_other_and_say_what_to_configure() {
    let outcome = talk(
        (hello(1, 1), secret(SECRET)),
        (hello(2, 2), None),
        untouched,
    );
    assert_eq!(outcome.connector, Err(Some(HandshakeError::SecretMissing)));
    assert_eq!(outcome.acceptor, Err(Some(HandshakeError::SecretWanted)));
    let outcome = talk(
        (hello(1, 1), None),
        (hello(2, 2), secret(SECRET)),
        untouched,
    );
    assert_eq!(outcome.connector, Err(Some(HandshakeError::SecretWanted)));
    assert_eq!(outcome.acceptor, Err(Some(HandshakeError::SecretMissing)));
    for error in [
        HandshakeError::SecretMissing,
        HandshakeError::SecretWanted,
        HandshakeError::SecretWrong,
        HandshakeError::Refused(Refusal::SecretWrong),
    ] {
        assert!(error.to_string().contains("--cluster-secret-file"));
    }
}

#[test]
fn another_secret_is_refused_and_learns_no_proof() {
    let outcome = talk(
        (hello(1, 1), secret(b"some other secret")),
        (hello(2, 2), secret(SECRET)),
        untouched,
    );
    assert_eq!(outcome.acceptor, Err(Some(HandshakeError::SecretWrong)));
    let refused = HandshakeError::Refused(Refusal::SecretWrong);
    assert_eq!(outcome.connector, Err(Some(refused)));
    let sent = outcome.transcript.concat();
    let proofs = frames(&sent)
        .into_iter()
        .filter(|frame| frame.kind == KIND_PROOF);
    assert_eq!(proofs.count(), 1, "the listener must not have proved");
}

#[test]
fn a_side_that_meets_itself_says_so() {
    let outcome = talk((hello(1, 1), None), (hello(1, 2), None), untouched);
    let error = HandshakeError::Itself {
        node: NodeId([1; 16]),
    };
    assert_eq!(outcome.connector, Err(Some(error.clone())));
    assert_eq!(outcome.acceptor, Err(Some(error)));
    let mut coordinator = hello(1, 2);
    coordinator.identity.role = LinkRole::Coordinator;
    let outcome = talk((hello(1, 1), None), (coordinator, None), untouched);
    assert!(
        outcome.connector.is_ok(),
        "a node and the coordinator in it"
    );
}

#[test]
fn every_changed_byte_of_every_message_is_refused() {
    let ends = || ((hello(1, 1), secret(SECRET)), (hello(2, 2), secret(SECRET)));
    let (connector, acceptor) = ends();
    let transcript = talk(connector, acceptor, untouched).transcript;
    assert_eq!(transcript.len(), 4);
    let mut changed = 0;
    for (number, message) in transcript.iter().enumerate() {
        let payload_len = frames(message)[0].payload.len();
        // Kind, stream and sequence; then the payload. The rest of the header is the frame codec's.
        let fields = 2 + 8 + 8;
        for at in 0..fields + payload_len {
            for bit in 0..8 {
                let (connector, acceptor) = ends();
                let outcome = talk(connector, acceptor, |index, bytes| {
                    if index == number {
                        *bytes = with_bit_flipped(bytes, at, bit);
                    }
                });
                let case = format!("message {number}, byte {at}, bit {bit}");
                assert!(outcome.connector.is_err(), "{case}");
                // The last message is proof to the connector alone.
                assert_eq!(outcome.acceptor.is_err(), number < 3, "{case}");
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 8 * (2 * (18 + HELLO_BYTES) + 2 * (18 + 32)));
}

/// Flips a bit of kind, stream, sequence or payload and mends the checksum, as an attacker would.
fn with_bit_flipped(message: &[u8], at: usize, bit: u8) -> Vec<u8> {
    let frame = frames(message)[0];
    let mut fields = [
        &frame.kind.to_le_bytes()[..],
        &frame.stream.to_le_bytes(),
        &frame.sequence.to_le_bytes(),
        frame.payload,
    ]
    .concat();
    fields[at] ^= 1 << bit;
    reframed(Frame {
        kind: u16::from_le_bytes(fields[..2].try_into().unwrap()),
        stream: u64::from_le_bytes(fields[2..10].try_into().unwrap()),
        sequence: u64::from_le_bytes(fields[10..18].try_into().unwrap()),
        payload: &fields[18..],
    })
}

fn reframed(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

/// Reflects the connector's own messages, with its nonce or with another.
#[test]
fn what_the_connector_sends_is_no_answer_to_it() {
    let own = hello(1, 1);
    let (mut victim, first) = Handshake::connect(own, secret(SECRET));
    let error = victim.feed(frames(&first)[0]).unwrap_err();
    assert_eq!(error, HandshakeError::Reflected);

    let (mut victim, _) = Handshake::connect(own, secret(SECRET));
    let forged = hello(2, 2).encode(true);
    let frame = Frame {
        kind: KIND_HELLO,
        stream: 0,
        sequence: 0,
        payload: &forged,
    };
    let Ok(Step::Send(proof)) = victim.feed(frame) else {
        panic!("the victim has to prove itself first");
    };
    let error = victim.feed(frames(&proof)[0]).unwrap_err();
    assert_eq!(error, HandshakeError::SecretWrong);
}

/// Makes the victim compute a proof as the connector, and offers it to the victim's own listener.
#[test]
fn a_proof_for_one_connection_is_worth_nothing_on_another() {
    let (mut connecting, _) = Handshake::connect(hello(1, 1), secret(SECRET));
    let mut listening = Handshake::accept(hello(1, 2), secret(SECRET));
    let attacker = hello(9, 9).encode(true);
    let say_hello = Frame {
        kind: KIND_HELLO,
        stream: 0,
        sequence: 0,
        payload: &attacker,
    };
    let Ok(Step::Send(proof)) = connecting.feed(say_hello) else {
        panic!("the connector proves itself first");
    };
    let Ok(Step::Send(_)) = listening.feed(say_hello) else {
        panic!("the listener says hello");
    };
    let error = listening.feed(frames(&proof)[0]).unwrap_err();
    assert_eq!(error, HandshakeError::SecretWrong);
}

#[test]
fn an_old_transcript_is_refused_by_either_end() {
    let ends = ((hello(1, 1), secret(SECRET)), (hello(2, 2), secret(SECRET)));
    let old = talk(ends.0, ends.1, untouched).transcript;
    let mut listening = Handshake::accept(hello(2, 3), secret(SECRET));
    assert!(listening.feed(frames(&old[0])[0]).is_ok());
    let error = listening.feed(frames(&old[2])[0]).unwrap_err();
    assert_eq!(error, HandshakeError::SecretWrong);
    let (mut connecting, _) = Handshake::connect(hello(1, 3), secret(SECRET));
    assert!(connecting.feed(frames(&old[1])[0]).is_ok());
    let error = connecting.feed(frames(&old[3])[0]).unwrap_err();
    assert_eq!(error, HandshakeError::SecretWrong);
}

#[test]
fn nothing_may_follow_a_finished_or_failed_handshake() {
    let old = talk((hello(1, 1), None), (hello(2, 2), None), untouched).transcript;
    let mut listening = Handshake::accept(hello(2, 2), None);
    assert!(matches!(
        listening.feed(frames(&old[0])[0]),
        Ok(Step::Done { .. })
    ));
    let again = Frame {
        sequence: 1,
        ..frames(&old[0])[0]
    };
    let unexpected = HandshakeError::Unexpected { kind: KIND_HELLO };
    assert_eq!(listening.feed(again), Err(unexpected.clone()));

    let mut listening = Handshake::accept(hello(2, 2), secret(SECRET));
    assert!(listening.feed(frames(&old[0])[0]).is_err());
    assert_eq!(listening.feed(again), Err(unexpected));
}

#[test]
fn secrets_are_bounded_and_never_printed() {
    assert_eq!(
        Secret::new(vec![b'x'; 15]).unwrap_err(),
        SecretError { found: 15 }
    );
    let fifteen_and_newline = [&[b'x'; 15][..], b"\n"].concat();
    assert!(Secret::new(fifteen_and_newline).is_err());
    assert!(Secret::new(vec![b'x'; SECRET_BYTES_MAX + 1]).is_err());
    let printed = format!("{:?}", secret(SECRET));
    assert_eq!(printed, "Some(Secret(..))");
    let (handshake, _) = Handshake::connect(hello(1, 1), secret(SECRET));
    assert!(!format!("{handshake:?}").contains("97, 32, 115"));
}

/// Any identity, nonce and presence of a secret, as a frame an honest sender could have sent.
fn some_hello() -> impl Strategy<Value = Hello> {
    let role = prop_oneof![
        Just(LinkRole::Coordinator),
        Just(LinkRole::Node),
        Just(LinkRole::Operator)
    ];
    (
        any::<(u16, u16, u64, u64)>(),
        role,
        any::<(Option<[u8; 16]>, [u8; 16], [u8; 32])>(),
    )
        .prop_map(
            |((min, max, features, raft_id), role, (cluster, node, nonce))| Hello {
                identity: Identity {
                    versions: Versions { min, max },
                    features,
                    role,
                    cluster,
                    node: NodeId(node),
                    raft_id,
                },
                nonce,
            },
        )
}

proptest! {
    #[test]
    fn hellos_survive_the_wire(hello in some_hello(), has_secret in any::<bool>()) {
        let received = Hello::decode(&hello.encode(has_secret)).unwrap();
        prop_assert_eq!(received.hello, hello);
        prop_assert_eq!(received.has_secret, has_secret);
    }

    #[test]
    fn any_frames_at_all_open_nothing_that_has_a_secret(
        kinds in prop::collection::vec(
            (prop_oneof![KIND_HELLO..=KIND_REFUSED, any::<u16>()],
             prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                some_hello().prop_map(|hello| hello.encode(true)),
                prop::collection::vec(any::<u8>(), PROOF_BYTES),
             ]),
            0..6,
        ),
        connects in any::<bool>(),
    ) {
        let mut victim = if connects {
            Handshake::connect(hello(1, 1), secret(SECRET)).0
        } else {
            Handshake::accept(hello(1, 1), secret(SECRET))
        };
        for (sequence, (kind, payload)) in (0u64..).zip(&kinds) {
            let frame = Frame { kind: *kind, stream: 0, sequence, payload };
            match victim.feed(frame) {
                Ok(Step::Done { .. }) => prop_assert!(false, "opened"),
                Ok(Step::Send(_)) => {}
                Err(error) => drop(victim.farewell(&error)),
            }
        }
    }

    #[test]
    fn any_frames_at_all_never_panic_without_a_secret(
        messages in prop::collection::vec(
            (prop_oneof![KIND_HELLO..=KIND_REFUSED, any::<u16>()],
             any::<(u64, u64)>(),
             prop::collection::vec(any::<u8>(), 0..5000)),
            0..6,
        ),
        connects in any::<bool>(),
    ) {
        let mut victim = if connects {
            Handshake::connect(hello(1, 1), None).0
        } else {
            Handshake::accept(hello(1, 1), None)
        };
        for (kind, (stream, sequence), payload) in &messages {
            let frame = Frame { kind: *kind, stream: stream % 2, sequence: sequence % 3, payload };
            if let Err(error) = victim.feed(frame) {
                prop_assert!(!error.to_string().is_empty());
                drop(victim.farewell(&error));
            }
        }
    }
}
