//! The first line of a library: `#!lua name=NAME`.

use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};

use super::FunctionError;
use crate::command::error::Quoted;

/// The name that a library's text gives it.
///
/// # Errors
/// What is wrong with its first line.
pub fn name_of(text: &[u8]) -> Result<Box<[u8]>, FunctionError> {
    if !text.starts_with(b"#!") {
        return Err(FunctionError::NoHeader);
    }
    // Redis reads it as a C string.
    let end = text.iter().position(|&byte| byte == b'\n' || byte == 0);
    let line = end.filter(|end| text.get(*end) == Some(&b'\n'));
    let line = line.and_then(|end| text.get(..=end));
    let words = line.and_then(words).ok_or(FunctionError::Header)?;
    let (engine, values) = words.split_first().ok_or(FunctionError::Header)?;
    let mut name: Option<&[u8]> = None;
    for value in values {
        match value.split_at_checked(5) {
            Some((key, given)) if key.eq_ignore_ascii_case(b"name=") => {
                if name.replace(given).is_some() {
                    return Err(FunctionError::NameTwice);
                }
            }
            _ => return Err(FunctionError::HeaderValue(Quoted::new(value))),
        }
    }
    let name = name.ok_or(FunctionError::NoName)?;
    let is_named = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_named) {
        return Err(FunctionError::Name);
    }
    let engine = engine.get(2..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(FunctionError::Engine(Quoted::new(engine)));
    }
    Ok(name.into())
}

/// The words of a line, some in quotes; nothing if these do not match.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut args = Args::new();
    let limits = RequestLimits {
        inline_bytes_max: line.len() + 1,
        ..RequestLimits::DEFAULT
    };
    match request::parse(line, &limits, &mut args) {
        Ok(Parsed::Command { .. }) => {
            let source = args.source(line);
            let word = |at| source.get(args.range(at)).map(<[u8]>::to_vec);
            (0..args.len()).map(word).collect()
        }
        _ => None,
    }
}

/// What of a library's text is compiled: all behind its first line, whose end stays, so that lines have their numbers.
#[must_use]
pub fn code_of(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == b'\n');
    end.and_then(|end| text.get(end..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_library() {
        for (text, name) in [
            ("#!lua name=a\nx", "a"),
            ("#!LUA NAME=a_1\n", "a_1"),
            ("#!lua   \"name=b\"\r\n", "b"),
            ("#!lua 'name=c'\nname", "c"),
        ] {
            assert_eq!(
                name_of(text.as_bytes()).as_deref(),
                Ok(name.as_bytes()),
                "{text}"
            );
        }
        for (text, error) in [
            ("", FunctionError::NoHeader),
            ("return 1", FunctionError::NoHeader),
            ("#!lua name=a", FunctionError::Header),
            ("#!lua \0name=a\n", FunctionError::Header),
            ("#!lua \"name=a\n", FunctionError::Header),
            ("#!lua\n", FunctionError::NoName),
            ("#!lua name=a name=b\n", FunctionError::NameTwice),
            ("#!lua name=\n", FunctionError::Name),
            ("#!lua name=a-b\n", FunctionError::Name),
            (
                "#!lua x=y\n",
                FunctionError::HeaderValue(Quoted::new(b"x=y")),
            ),
            ("#!foo name=a\n", FunctionError::Engine(Quoted::new(b"foo"))),
            (
                "#! lua name=a\n",
                FunctionError::HeaderValue(Quoted::new(b"lua")),
            ),
        ] {
            assert_eq!(name_of(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(code_of(b"#!lua name=a\nreturn 1"), b"\nreturn 1");
    }
}
