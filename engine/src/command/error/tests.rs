use super::*;

fn unknown(args: &[&[u8]]) -> String {
    ClientError::unknown_command(args).to_string()
}

#[test]
fn unknown_commands_are_previewed_as_redis_does() {
    assert_eq!(
        unknown(&[b"foo"]),
        "ERR unknown command 'foo', with args beginning with: "
    );
    assert_eq!(
        unknown(&[b"foo", b"a", b"b"]),
        "ERR unknown command 'foo', with args beginning with: 'a' 'b' "
    );
    assert_eq!(
        unknown(&[b"foo", b""]),
        "ERR unknown command 'foo', with args beginning with: '' "
    );
    assert_eq!(
        unknown(&[b"foo\r\nbar", b"x\r\ny'\""]),
        "ERR unknown command 'foo  bar', with args beginning with: 'x  y'\"' "
    );
    assert_eq!(
        unknown(&[b"q\0r", b"\0z"]),
        "ERR unknown command 'q', with args beginning with: '' "
    );
}

#[test]
fn previews_are_cut_where_redis_cuts_them() {
    let long = [b'x'; 200];
    assert_eq!(
        unknown(&[b"foo", &long]),
        format!(
            "ERR unknown command 'foo', with args beginning with: '{}' ",
            "x".repeat(128)
        )
    );
    assert_eq!(
        unknown(&[&long, b"a"]),
        format!(
            "ERR unknown command '{}', with args beginning with: 'a' ",
            "x".repeat(128)
        )
    );
    let fifty = [b'y'; 50];
    assert_eq!(
        unknown(&[b"foo", &fifty, &fifty, &fifty, &fifty, &fifty]),
        format!(
            "ERR unknown command 'foo', with args beginning with: '{0}' '{0}' '{1}' ",
            "y".repeat(50),
            "y".repeat(22)
        )
    );
}

#[test]
fn an_error_is_one_line_of_utf8_whatever_the_client_sent() {
    let mut out = Vec::new();
    ClientError::unknown_command(&[&b"\xff\r\n+OK\r\n"[..], b"\xc3"][..]).write(&mut out);
    let text = String::from_utf8(out).expect("errors are UTF-8");
    assert!(text.starts_with("-ERR unknown command '\u{fffd}  +OK  '"));
    assert!(text.ends_with("\r\n") && !text[..text.len() - 2].contains(['\r', '\n']));
}

#[test]
fn the_code_is_the_first_word() {
    for error in [
        ClientError::Syntax,
        ClientError::NoProto,
        ClientError::WrongPassword,
        ClientError::NoAuth,
        ClientError::CrossSlot,
        ClientError::SlotNotServed,
        ClientError::ClusterDown,
        ClientError::Loading,
        ClientError::OutOfMemory,
        ClientError::DiskFull,
        ClientError::TooManyClients,
    ] {
        assert_eq!(error.to_string().split(' ').next(), Some(error.code()));
    }
}

#[test]
fn moved_names_slot_and_address() {
    let mut out = Vec::new();
    write_moved(&mut out, Slot(3999), "127.0.0.1", 6381);
    assert_eq!(out, b"-MOVED 3999 127.0.0.1:6381\r\n");
}
