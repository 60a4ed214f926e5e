//! What clients are told of keys that they may have cached, and the form in which shards tell each other.

use ephesus_wire::ShardId;
use ephesus_wire::resp::reply::{self, Protocol};

use crate::net::ConnToken;
use crate::shard::mesh::Client;

/// The channel on which a client without RESP3 is told for another one.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Bytes of a [`Client`] between shards, and of a [`ConnToken`].
const CLIENT_BYTES: usize = 10;
const TOKEN_BYTES: usize = 8;

/// What is told, besides the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// A key that clients have read, and whose command has changed it.
    Key {
        writer: Option<Client>,
    },
    /// Keys with a prefix; a shard's own clients alone are told of those of the shard at its direct port.
    Prefix {
        is_own: bool,
    },
    /// Everything: those that are told of prefixes, or all clients.
    Prefixes {
        is_own: bool,
    },
    All {
        is_own: bool,
    },
}

/// Appends the push with `keys` to a client that understands it.
fn begin_push(out: &mut Vec<u8>) {
    reply::push(out, Protocol::Resp3, 2);
    reply::bulk(out, b"invalidate");
}

/// A push of keys.
pub(crate) fn push_of_keys<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    begin_push(&mut out);
    reply::array(&mut out, keys.len());
    keys.for_each(|key| reply::bulk(&mut out, key));
    out
}

/// A push that says that nothing is as it was.
pub(crate) fn push_of_all() -> Vec<u8> {
    let mut out = Vec::new();
    begin_push(&mut out);
    reply::null(&mut out, Protocol::Resp3);
    out
}

/// What another connection is told instead of one that would get `push`, under RESP2 and RESP3. The null in it is of the
/// first one's protocol, as in Redis.
pub(crate) fn redirected(push: &[u8], protocol: Protocol) -> (Vec<u8>, Vec<u8>) {
    let mut head = Vec::new();
    begin_push(&mut head);
    let keys = push.get(head.len()..).unwrap_or_default();
    let mut null = Vec::new();
    reply::null(&mut null, protocol);
    let keys = if keys.starts_with(b"_") { &null } else { keys };
    let mut message = Vec::new();
    reply::push(&mut message, Protocol::Resp2, 3);
    reply::bulk(&mut message, b"message");
    reply::bulk(&mut message, CHANNEL);
    message.extend_from_slice(keys);
    head.extend_from_slice(keys);
    (message, head)
}

/// A client as shards name it to each other; nobody: nothing.
pub(crate) fn encode_client(client: Option<Client>) -> Vec<u8> {
    let Some((shard, token)) = client else {
        return Vec::new();
    };
    let mut bytes = shard.0.to_le_bytes().to_vec();
    encode_token(&mut bytes, token);
    bytes
}

pub(crate) fn decode_client(bytes: &[u8]) -> Option<Client> {
    let bytes: &[u8; CLIENT_BYTES] = bytes.try_into().ok()?;
    let [low, high, token @ ..] = bytes;
    let shard = ShardId(u16::from_le_bytes([*low, *high]));
    Some((shard, decode_tokens(token).next()?))
}

/// Appends a connection of the shard that is told.
pub(crate) fn encode_token(out: &mut Vec<u8>, token: ConnToken) {
    out.extend_from_slice(&token.index.to_le_bytes());
    out.extend_from_slice(&token.generation.to_le_bytes());
}

pub(crate) fn decode_tokens(bytes: &[u8]) -> impl Iterator<Item = ConnToken> {
    let tokens = bytes.chunks_exact(TOKEN_BYTES);
    tokens.filter_map(|token| {
        let (index, generation) = token.split_first_chunk::<4>()?;
        Some(ConnToken {
            index: u32::from_le_bytes(*index),
            generation: u32::from_le_bytes(generation.try_into().ok()?),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_through_as_they_are() {
        let token = |index| ConnToken {
            index,
            generation: 7,
        };
        let client = (ShardId(300), token(0x0102_0304));
        assert_eq!(decode_client(&encode_client(Some(client))), Some(client));
        assert_eq!(decode_client(&encode_client(None)), None);
        let mut bytes = Vec::new();
        (0..3).for_each(|n| encode_token(&mut bytes, token(n)));
        let tokens: Vec<_> = decode_tokens(&bytes).collect();
        assert_eq!(tokens, [token(0), token(1), token(2)]);
    }

    #[test]
    fn pushes_are_those_of_redis() {
        let push = push_of_keys([&b"a"[..]].into_iter());
        assert_eq!(push, b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
        let (message, same) = redirected(&push, Protocol::Resp2);
        assert_eq!(same, push);
        let head = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
        assert_eq!(message, format!("{head}*1\r\n$1\r\na\r\n").as_bytes());
        let all = push_of_all();
        assert_eq!(all, b">2\r\n$10\r\ninvalidate\r\n_\r\n");
        let (message, push) = redirected(&all, Protocol::Resp2);
        assert_eq!(message, format!("{head}$-1\r\n").as_bytes());
        assert_eq!(push, b">2\r\n$10\r\ninvalidate\r\n$-1\r\n");
        assert_eq!(redirected(&all, Protocol::Resp3).1, all);
    }
}
