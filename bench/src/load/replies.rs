use ephesus_wire::resp::value::measure;

/// Longest reply that is waited for.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 20;

/// A reply, as far as a client cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    Done,
    Integer(i64),
    Value(&'a [u8]),
    Null,
    Error(&'a [u8]),
    /// A list, as it was sent.
    List(&'a [u8]),
}

/// The first reply of `bytes` and its length; none when it is not there as a whole.
///
/// # Errors
/// When it is no reply.
pub(super) fn first(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, &'static str> {
    let wrong = "not a reply";
    let Some(length) = measure(bytes).map_err(|_| wrong)? else {
        return match bytes.len() > REPLY_BYTES_MAX {
            true => Err("a reply is too long"),
            false => Ok(None),
        };
    };
    let whole = &bytes[..length];
    let text = |whole: &'_ [u8]| -> Option<i64> { std::str::from_utf8(whole).ok()?.parse().ok() };
    let reply = match whole {
        [b'+', ..] => Reply::Done,
        [b':', number @ .., _, _] => text(number).map(Reply::Integer).ok_or(wrong)?,
        [b'-', error @ .., _, _] => Reply::Error(error),
        [b'_', ..] | [b'$', b'-', ..] => Reply::Null,
        [b'$', rest @ .., _, _] => {
            let head = rest.iter().position(|byte| *byte == b'\n').ok_or(wrong)?;
            Reply::Value(&rest[head + 1..])
        }
        [b'*', ..] => Reply::List(whole),
        _ => return Err(wrong),
    };
    Ok(Some((reply, length)))
}
