use std::fs;

use proptest::prelude::*;

use super::libraries::{Clash, FunctionInfo};
use super::*;
use crate::command::error::Quoted;
use crate::script::Flags;

fn library(name: &str, functions: &[&str]) -> Arc<FunctionLibrary> {
    let text = format!("#!lua name={name}\n");
    let functions = functions.iter().map(|function| FunctionInfo {
        name: function.as_bytes().into(),
        description: None,
        flags: Flags::default(),
    });
    let library = FunctionLibrary::new(
        name.as_bytes().into(),
        text.into_bytes().into(),
        functions.collect(),
        0,
    );
    Arc::new(library)
}

fn names(libraries: &Libraries) -> Vec<String> {
    let name = |library: &Arc<FunctionLibrary>| String::from_utf8_lossy(library.name()).into();
    libraries.all().map(name).collect()
}

#[test]
fn libraries_and_functions_have_names_of_their_own() {
    let mut libraries = Libraries::default();
    assert_eq!(
        libraries.add(library("a", &["f", "g"]), Clash::Refused),
        Ok(())
    );
    let bytes = libraries.held_bytes();
    let exists = FunctionError::LibraryExists(Quoted::new(b"a"));
    assert_eq!(
        libraries.add(library("a", &["h"]), Clash::Refused),
        Err(exists)
    );
    let exists = FunctionError::RestoredExists(Quoted::new(b"a"));
    assert_eq!(
        libraries.add(library("a", &["h"]), Clash::RefusedRestored),
        Err(exists)
    );
    let exists = FunctionError::FunctionExists(Quoted::new(b"g"));
    assert_eq!(
        libraries.add(library("b", &["g"]), Clash::Refused),
        Err(exists)
    );
    assert_eq!(
        libraries.add(library("a", &["g", "h"]), Clash::Replaced),
        Ok(())
    );
    assert!(libraries.of_function(b"f").is_none() && libraries.of_function(b"h").is_some());
    assert_eq!(
        (libraries.counts(), libraries.held_bytes()),
        ((1, 2), bytes)
    );
    assert_eq!(libraries.add(library("b", &["f"]), Clash::Refused), Ok(()));
    assert_eq!(names(&libraries), ["a", "b"]);
    assert!(libraries.remove(b"a") && !libraries.remove(b"a"));
    assert!(libraries.remove(b"b"));
    assert_eq!((libraries.counts(), libraries.held_bytes()), ((0, 0), 0));
}

const TEXT: &[u8] = b"#!lua name=a\nredis.register_function('f', function() return 1 end)";

#[test]
fn libraries_are_written_and_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let none = Libraries::open(dir.path()).expect("no file");
    assert_eq!(none.counts(), (0, 0));
    let written = trial::libraries_of(&[TEXT.to_vec()], LOAD_TIME_MAX).expect("a library");
    written.save(dir.path()).expect("saved");
    let read = Libraries::open(dir.path()).expect("read");
    assert_eq!(names(&read), ["a"]);
    assert_eq!(
        read.of_function(b"f").map(|library| library.text()),
        Some(TEXT)
    );
    assert_eq!(check(dir.path()).ok(), Some(1));
    let file = dir.path().join("functions");
    let whole = fs::read(&file).expect("the file");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&file, &damaged).expect("written");
        let opened = Libraries::open(dir.path()).map(drop);
        assert!(
            matches!(opened, Err(FunctionsFileError::Damaged { .. })),
            "byte {at}"
        );
        fs::write(&file, &whole[..at]).expect("written");
        let opened = Libraries::open(dir.path()).map(drop);
        assert!(
            matches!(opened, Err(FunctionsFileError::Damaged { .. })),
            "{at} bytes"
        );
    }
}

/// As redis-server 7.0.15 and its first candidate write one library.
#[test]
fn payloads_of_redis_are_read() {
    let with_footer = |body: &[u8]| {
        let mut payload = body.to_vec();
        crate::keyspace::dump::write_footer(&mut payload);
        payload
    };
    let read = |body: &[u8]| payload::read(&with_footer(body));
    assert_eq!(
        read(b"\xF5\x0D#!lua name=a\n"),
        Ok(vec![b"#!lua name=a\n".to_vec()])
    );
    let candidate = b"\xF6\x01a\x03LUA\x01\x04text\x08return 1";
    assert_eq!(
        read(candidate),
        Ok(vec![b"#!LUA name=a\nreturn 1".to_vec()])
    );
    assert_eq!(read(b""), Ok(Vec::new()));
    assert_eq!(read(b"\x00\x01a"), Err(FunctionError::PayloadType.into()));
    assert_eq!(read(b"\xF5\x0Dshort"), Err(FunctionError::Payload.into()));
    assert_eq!(read(b"\xF5"), Err(FunctionError::Payload.into()));
}

/// What unpacks to far more than it is.
#[test]
fn payloads_do_not_unpack_to_more_than_there_may_be() {
    // Eight bytes of `x`, and copies of 264 bytes.
    let mut packed = b"\x07xxxxxxxx".to_vec();
    let copies = (4 << 20) / 264;
    (0..copies).for_each(|_| packed.extend_from_slice(b"\xE0\xFF\x00"));
    let len = 8 + copies * 264;
    let mut body = Vec::new();
    for _ in 0..100 {
        body.extend_from_slice(b"\xF5\xC3");
        crate::keyspace::dump::write_length(&mut body, packed.len());
        crate::keyspace::dump::write_length(&mut body, len);
        body.extend_from_slice(&packed);
    }
    crate::keyspace::dump::write_footer(&mut body);
    let too_large = FunctionError::TooLarge(BYTES_MAX);
    assert_eq!(payload::read(&body), Err(too_large.into()));
}

/// Texts of no bytes, of which there are many.
#[test]
fn payloads_of_many_texts_are_refused() {
    let mut body = b"\xF5\x00".repeat(BYTES_MAX / OVERHEAD_BYTES + 1);
    crate::keyspace::dump::write_footer(&mut body);
    let too_large = FunctionError::TooLarge(BYTES_MAX);
    assert_eq!(payload::read(&body), Err(too_large.into()));
}

/// A few lines that register a long description over and over.
#[test]
fn descriptions_are_counted_before_they_are_copied() {
    let text = b"#!lua name=a
        local text = ('x'):rep(2^20)
        local function none() end
        local function more(n)
          redis.register_function{function_name='f' .. n, callback=none, description=text}
          if n < 20000 then return more(n + 1) end
        end
        more(1)";
    let error = trial::libraries_of(&[text.to_vec()], LOAD_TIME_MAX).map(drop);
    let error = error.expect_err("too many bytes").to_string();
    assert!(error.contains("take more than 8388608 bytes"), "{error}");
}

#[test]
fn errors_of_libraries_are_one_line_of_some_length() {
    for code in [
        "local y = redis['a\\r\\n+INJECTED']",
        "local y = 'a\\\n+INJECTED' x",
        "x 'a\r+INJECTED'",
        "local y = redis[('x'):rep(2^20)]",
    ] {
        let text = format!("#!lua name=a\n{code}").into_bytes();
        let error = trial::libraries_of(&[text], LOAD_TIME_MAX).map(drop);
        let error = error.expect_err(code).to_string();
        assert!(
            !error.contains(['\r', '\n']) && error.len() < 2048,
            "{error}"
        );
    }
}

/// Libraries that fit singly, and would have every state given up again and again if all were loaded.
#[test]
fn libraries_that_do_not_fit_a_state_together_are_refused() {
    let text = |name: &str, bytes: usize| {
        let code = format!(
            "#!lua name={name}\nlocal s = ('x'):rep({bytes}) redis.register_function('{name}', function() return #s end)"
        );
        code.into_bytes()
    };
    let half = 7 << 20;
    let fit = [text("a", half), text("b", half)];
    let fit = trial::libraries_of(&fit, LOAD_TIME_MAX).expect("libraries");
    assert_eq!(fit.check_loaded(), Ok(()));
    let too_large = FunctionError::TooLarge(LOADED_BYTES_MAX);
    let three = [text("a", half), text("b", half), text("c", half)];
    let three = trial::libraries_of(&three, LOAD_TIME_MAX).expect("libraries");
    assert_eq!(three.check_loaded(), Err(too_large));
    // Those that fit stay loaded.
    let (queue, _asked) = flume::bounded(1);
    let shared = SharedLibraries::new(fit, queue);
    let mut functions = Functions::default();
    for name in [b"a", b"b", b"a"] {
        assert!(functions.find(&shared, name, LOAD_TIME_MAX).is_ok());
        assert!(functions.state.as_mut().is_some_and(|state| state.settle()));
    }
    assert_eq!(functions.loaded.len(), 2);
}

#[test]
fn a_shard_loads_what_it_is_asked_for_and_forgets_what_has_changed() {
    let (queue, _asked) = flume::bounded(1);
    let texts = [
        TEXT.to_vec(),
        b"#!lua name=b\nlocal n = 0 redis.register_function('g', function() n = n + 1 return n end)".to_vec(),
    ];
    let libraries = trial::libraries_of(&texts, LOAD_TIME_MAX).expect("libraries");
    let shared = SharedLibraries::new(libraries.clone(), queue);
    let mut functions = Functions::default();
    let mut find = |name: &[u8]| {
        let found = functions.find(&shared, name, LOAD_TIME_MAX).map(drop);
        (found, functions.loaded.len(), functions.by_name.len())
    };
    let absent = Err(FunctionError::NoFunction.into());
    assert_eq!(find(b"f"), (Ok(()), 1, 1));
    assert_eq!(find(b"nosuch"), (absent.clone(), 1, 1));
    assert_eq!(find(b"g"), (Ok(()), 2, 2));
    let mut fewer = libraries.clone();
    fewer.remove(b"a");
    shared.show(fewer);
    assert_eq!(find(b"f"), (absent.clone(), 1, 1));
    assert_eq!(find(b"g"), (Ok(()), 1, 1));
    shared.show(Libraries::default());
    assert_eq!(find(b"g"), (absent, 0, 0));
    shared.show(libraries);
    assert_eq!(find(b"f"), (Ok(()), 1, 1));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..80), is_library in any::<bool>()) {
        let mut body = if is_library { [&[0xF5], &body[..]].concat() } else { body };
        let _ = payload::read(&body);
        crate::keyspace::dump::write_footer(&mut body);
        let _ = payload::read(&body);
        let _ = header::name_of(&body);
    }
}
