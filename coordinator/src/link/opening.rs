//! The handshake over a socket.

use ephesus_wire::handshake::{
    HANDSHAKE_PAYLOAD_BYTES_MAX, Handshake, Hello, Identity, NONCE_BYTES, Opened, Step,
};
use ephesus_wire::seal::Sealer;

use super::error::LinkError;
use super::inbound::Inbound;
use super::socket::Socket;

/// A handshake that has failed, and what to send before closing.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) send: Vec<u8>,
    pub(super) error: LinkError,
}

/// This side's hello, with a new nonce.
#[expect(
    clippy::expect_used,
    reason = "Linux has random numbers for every process"
)]
pub(super) fn hello(identity: Identity) -> Hello {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).expect("random numbers");
    Hello { identity, nonce }
}

/// Takes the next message out of `inbound`; `None` when it is incomplete.
pub(super) fn advance(
    handshake: &mut Handshake,
    inbound: &mut Inbound,
) -> Result<Option<Step>, Failed> {
    let first = inbound.first(HANDSHAKE_PAYLOAD_BYTES_MAX);
    let (step, len) = match first {
        Ok(Some((frame, len))) => (handshake.feed(frame), len),
        Ok(None) => return Ok(None),
        Err(error) => {
            let (send, error) = (Vec::new(), LinkError::NotAPeer(error));
            return Err(Failed { send, error });
        }
    };
    inbound.consume(len);
    step.map(Some).map_err(|error| Failed {
        send: handshake.farewell(&error),
        error: error.into(),
    })
}

/// Has what follows a handshake sealed, if it is; answers what seals this side's words.
pub(super) fn seal(handshake: Handshake, inbound: &mut Inbound) -> Option<Sealer> {
    let seals = handshake.into_seals()?;
    inbound.seal(seals.opener);
    Some(seals.sealer)
}

/// Carries the handshake through; what came behind it stays in `inbound`, sealed as what follows.
pub(super) async fn open(
    socket: &mut Socket,
    inbound: &mut Inbound,
    mut handshake: Handshake,
    first: &[u8],
) -> Result<(Opened, Option<Sealer>), LinkError> {
    socket.write_all(first).await?;
    loop {
        match advance(&mut handshake, inbound) {
            Ok(Some(Step::Send(bytes))) => socket.write_all(&bytes).await?,
            Ok(Some(Step::Done { send, opened })) => {
                socket.write_all(&send).await?;
                return Ok((opened, seal(handshake, inbound)));
            }
            Ok(None) => {
                // Who has not passed the handshake makes this side hold little.
                if socket.fill(inbound, HANDSHAKE_PAYLOAD_BYTES_MAX).await? == 0 {
                    return Err(LinkError::EndedEarly);
                }
            }
            Err(Failed { send, error }) => {
                socket.write_all(&send).await?;
                return Err(error);
            }
        }
    }
}
