use std::net::TcpListener;
use std::thread;

use super::*;

/// A server that answers whatever it is sent with these bytes, in pieces, and then nothing.
fn answering(reply: &'static [u8], piece: usize) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("client");
        stream.set_nodelay(true).expect("no delay");
        let _ = stream.read(&mut [0; 1024]).expect("a command");
        for piece in reply.chunks(piece) {
            stream.write_all(piece).expect("sent");
        }
        while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {}
    });
    Connection::open(address).expect("connection")
}

#[test]
fn replies_are_read_whole_however_they_are_cut() {
    let bytes = b"*2\r\n$2\r\nab\r\n+c\r\n:7\r\n$-1\r\n";
    for piece in [1, 3, bytes.len()] {
        let mut connection = answering(bytes, piece);
        let list = connection.call(&["LRANGE", "k"]).expect("a list");
        let pair = ("ab".to_owned(), "c".to_owned());
        assert_eq!(pairs(&list), Some(vec![pair]));
        assert_eq!(connection.integer(&["LLEN", "k"]).expect("integer"), 7);
        assert_eq!(connection.call(&["GET", "k"]).expect("null"), Value::Null);
    }
}

#[test]
fn replies_of_another_kind_are_refused() {
    answering(b"-ERR no\r\n", 9)
        .text(&["GET", "k"])
        .expect_err("an error");
    answering(b":-1\r\n", 9)
        .integer(&["DBSIZE"])
        .expect_err("negative");
    answering(b"?\r\n", 9)
        .call(&["GET", "k"])
        .expect_err("no RESP");
}

#[test]
fn info_fields_match_whole_names() {
    let info = "# Persistence\r\nwal_bytes:1\r\nwal_bytes_written:42\r\nloading:0\r\n";
    assert_eq!(info_number(info, "wal_bytes_written"), Some(42));
    assert_eq!(info_number(info, "bytes_written"), None);
    assert_eq!(info_field(info, "loading"), Some("0"));
}
