//! What FUNCTION LIST and FUNCTION STATS tell.

use ephesus_wire::resp::reply::{self, Protocol};

use super::libraries::FunctionLibrary;
use super::{FunctionError, Libraries};
use crate::command::config::pattern_ignoring_case;
use crate::command::error::{ClientError, Quoted};
use crate::command::parse::ArgList;

/// Where options begin.
const OPTIONS: usize = 2;

/// What the language is called.
const ENGINE: &[u8] = b"LUA";

/// Appends the reply to `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`.
///
/// # Errors
/// What is wrong with the request.
pub fn write_list<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    args: &A,
    libraries: &Libraries,
) -> Result<(), ClientError> {
    let (mut pattern, mut with_code) = (None, false);
    let mut at = OPTIONS;
    while at < args.len() {
        let option = args.arg(at);
        if !with_code && option.eq_ignore_ascii_case(b"withcode") {
            with_code = true;
        } else if pattern.is_none() && option.eq_ignore_ascii_case(b"libraryname") {
            at += 1;
            if at == args.len() {
                return Err(FunctionError::NoPattern.into());
            }
            pattern = Some(pattern_ignoring_case(args.arg(at))?);
        } else {
            return Err(FunctionError::ListOption(Quoted::new(option)).into());
        }
        at += 1;
    }
    let is_meant = |library: &&FunctionLibrary| match &pattern {
        Some(pattern) => pattern.matches(&library.name().to_ascii_lowercase()),
        None => true,
    };
    let all: Vec<&FunctionLibrary> = libraries
        .all()
        .map(|library| &**library)
        .filter(is_meant)
        .collect();
    reply::array(out, all.len());
    for library in all {
        write_library(out, protocol, library, with_code);
    }
    Ok(())
}

fn write_library(
    out: &mut Vec<u8>,
    protocol: Protocol,
    library: &FunctionLibrary,
    with_code: bool,
) {
    reply::map(out, protocol, if with_code { 4 } else { 3 });
    reply::bulk(out, b"library_name");
    reply::bulk(out, library.name());
    reply::bulk(out, b"engine");
    reply::bulk(out, ENGINE);
    reply::bulk(out, b"functions");
    reply::array(out, library.functions().len());
    for function in library.functions() {
        reply::map(out, protocol, 3);
        reply::bulk(out, b"name");
        reply::bulk(out, &function.name);
        reply::bulk(out, b"description");
        match &function.description {
            Some(text) => reply::bulk(out, text),
            None => reply::null(out, protocol),
        }
        reply::bulk(out, b"flags");
        reply::set(out, protocol, function.flags.names().count());
        for flag in function.flags.names() {
            reply::simple(out, flag);
        }
    }
    if with_code {
        reply::bulk(out, b"library_code");
        reply::bulk(out, library.text());
    }
}

/// Appends the reply to FUNCTION STATS: no function is ever under way when another command is executed.
pub fn write_stats(out: &mut Vec<u8>, protocol: Protocol, libraries: &Libraries) {
    let (count, functions) = libraries.counts();
    reply::map(out, protocol, 2);
    reply::bulk(out, b"running_script");
    reply::null(out, protocol);
    reply::bulk(out, b"engines");
    reply::map(out, protocol, 1);
    reply::bulk(out, ENGINE);
    reply::map(out, protocol, 2);
    reply::bulk(out, b"libraries_count");
    reply::integer(out, count as i64);
    reply::bulk(out, b"functions_count");
    reply::integer(out, functions as i64);
}
