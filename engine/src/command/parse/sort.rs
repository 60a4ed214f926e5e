//! The arguments of SORT.

use super::{ArgList, integer};
use crate::command::error::ClientError;

/// Where options begin.
const OPTIONS: usize = 2;

/// `SORT key [ASC|DESC] [ALPHA] [LIMIT offset count] [BY pattern] [GET pattern] [STORE destination]`: the index of the
/// destination, if there is one. How something would be sorted is not kept, as there is nothing that can be.
///
/// # Errors
/// What is wrong with them, in the order in which Redis finds it.
pub fn parse<A: ArgList + ?Sized>(args: &A, may_store: bool) -> Result<Option<usize>, ClientError> {
    let mut stored = None;
    let mut at = OPTIONS;
    while at < args.len() {
        let name = args.arg(at);
        let left = args.len() - at - 1;
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        at += match () {
            () if is(b"asc") || is(b"desc") || is(b"alpha") => 1,
            () if is(b"limit") && left >= 2 => {
                integer(args.arg(at + 1))?;
                integer(args.arg(at + 2))?;
                3
            }
            () if may_store && is(b"store") && left >= 1 => {
                stored = Some(at + 1);
                2
            }
            () if is(b"by") && left >= 1 => {
                let pattern = args.arg(at + 1).split(|&byte| byte == 0).next();
                if pattern.is_some_and(|pattern| pattern.contains(&b'*')) {
                    return Err(ClientError::SortDenied("BY"));
                }
                2
            }
            () if is(b"get") && left >= 1 => return Err(ClientError::SortDenied("GET")),
            () => return Err(ClientError::Syntax),
        };
    }
    Ok(stored)
}

/// Which argument of SORT is the key of the result: that of [`parse`], or, if something is wrong with them, so that nothing
/// comes of it, the one by which Redis finds who is to say so.
pub fn destination<A: ArgList + ?Sized>(args: &A) -> Option<usize> {
    if let Ok(stored) = parse(args, true) {
        return stored;
    }
    let mut found = None;
    let mut at = OPTIONS;
    while at < args.len() {
        let name = args.arg(at);
        let is = |word: &[u8]| name.eq_ignore_ascii_case(word);
        if is(b"store") && at + 1 < args.len() {
            found = Some(at + 1);
        }
        at += match () {
            () if is(b"limit") => 3,
            () if is(b"get") || is(b"by") => 2,
            () => 1,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_destination_is_found_and_options_are_checked() {
        for (line, found, parsed) in [
            ("sort a", None, Ok(None)),
            ("sort a store b", Some(3), Ok(Some(3))),
            ("sort a STORE b desc store c", Some(6), Ok(Some(6))),
            ("sort a by store x", None, Err(ClientError::Syntax)),
            ("sort a by nosort alpha limit 0 -1", None, Ok(None)),
            (
                "sort a by w_* store b",
                Some(5),
                Err(ClientError::SortDenied("BY")),
            ),
            (
                "sort a get # store b",
                Some(5),
                Err(ClientError::SortDenied("GET")),
            ),
            ("sort a store limit store b", Some(5), Ok(Some(5))),
            ("sort a store store b", Some(4), Err(ClientError::Syntax)),
            (
                "sort a limit 31 x store store b",
                Some(7),
                Err(ClientError::NotAnInteger),
            ),
            ("sort a limit 1", None, Err(ClientError::Syntax)),
            ("sort a limit store 1", None, Err(ClientError::NotAnInteger)),
            ("sort a store", None, Err(ClientError::Syntax)),
        ] {
            let args: Vec<&str> = line.split(' ').collect();
            assert_eq!(destination(&args[..]), found, "{line}");
            assert_eq!(parse(&args[..], true), parsed, "{line}");
        }
        let read_only = ["sort_ro", "a", "store", "b"];
        assert_eq!(parse(&read_only[..], false), Err(ClientError::Syntax));
    }

    proptest! {
        #[test]
        fn what_is_executed_is_what_was_routed(
            words in prop::collection::vec(
                prop::sample::select(vec!["asc", "alpha", "limit", "0", "by", "get", "store", "b"]), 0..9,
            ),
        ) {
            let args: Vec<&str> = ["sort", "a"].into_iter().chain(words).collect();
            if let Ok(parsed) = parse(&args[..], true) {
                prop_assert_eq!(destination(&args[..]), parsed);
            }
        }
    }
}
