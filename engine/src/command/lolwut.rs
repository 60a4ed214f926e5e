//! LOLWUT: the front of the temple that stood in Ephesus, and the version.

use ephesus_wire::resp::reply::{self, Protocol};

use super::error::ClientError;
use super::parse::{ArgList, integer};

const COLUMNS_DEFAULT: usize = 8;
const COLUMNS_MAX: usize = 40;

/// Lines of a column's shaft.
const HEIGHT: usize = 5;

/// Draws `LOLWUT [VERSION version] [columns ...]`: a front of so many columns.
///
/// # Errors
/// [`ClientError::NotAnInteger`].
pub fn write<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    args: &A,
) -> Result<(), ClientError> {
    let has_version = args.len() > 2 && args.arg(1).eq_ignore_ascii_case(b"version");
    if has_version {
        integer(args.arg(2))?;
    }
    let at = if has_version { 3 } else { 1 };
    let asked = (at < args.len())
        .then(|| integer(args.arg(at)).ok())
        .flatten();
    let asked = asked.and_then(|columns| usize::try_from(columns).ok());
    let columns = asked.unwrap_or(COLUMNS_DEFAULT).clamp(2, COLUMNS_MAX);
    reply::verbatim(out, protocol, "txt", temple(columns).as_bytes());
    Ok(())
}

fn temple(columns: usize) -> String {
    let width = 4 * columns;
    let mut lines = Vec::new();
    for half in (0..width / 2).step_by(4) {
        let inside = "_".repeat(2 * half);
        lines.push(format!("{}/{inside}\\", " ".repeat(width / 2 - half)));
    }
    lines.push(format!("|{}|", "=".repeat(width)));
    lines.extend((0..HEIGHT).map(|_| format!(" {}", " || ".repeat(columns))));
    lines.push(format!("|{}|", "_".repeat(width)));
    let version = env!("CARGO_PKG_VERSION");
    format!("{}\n\nEphesus ver. {version}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temple_has_as_many_columns_as_asked_and_not_too_many() {
        for (line, columns) in [
            ("lolwut", 8),
            ("lolwut version 5 3", 3),
            ("lolwut 1000000", COLUMNS_MAX),
            ("lolwut -5", COLUMNS_DEFAULT),
        ] {
            let args: Vec<&str> = line.split(' ').collect();
            let mut out = Vec::new();
            assert_eq!(write(&mut out, Protocol::Resp2, &args[..]), Ok(()));
            let text = String::from_utf8(out).expect("text");
            assert_eq!(text.matches("||").count(), columns * HEIGHT, "{line}");
        }
        let args = ["lolwut", "version", "x"];
        assert!(write(&mut Vec::new(), Protocol::Resp2, &args[..]).is_err());
    }
}
