use super::*;

#[test]
fn commands_are_arrays_of_bulks() {
    let mut out = Vec::new();
    encode(&mut out, &[b"SET", b"k", b""]);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
}

#[test]
fn replies_decode_whole_and_wait_when_cut_anywhere() {
    let bytes = b"*3\r\n$2\r\nab\r\n:7\r\n*1\r\n$-1\r\n";
    let (reply, used) = decode(bytes).expect("valid").expect("complete");
    assert_eq!(used, bytes.len());
    assert_eq!(
        reply,
        Reply::Array(vec![
            Reply::Bulk(Some(b"ab".to_vec())),
            Reply::Integer(7),
            Reply::Array(vec![Reply::Bulk(None)]),
        ])
    );
    for cut in 0..bytes.len() {
        assert_eq!(
            decode(&bytes[..cut]).expect("no error"),
            None,
            "cut at {cut}"
        );
    }
    assert!(decode(b"?\r\n").is_err());
    assert!(decode(&b"*1\r\n".repeat(20)).is_err());
}

#[test]
fn scanner_counts_the_same_in_any_pieces() {
    let stream = b"+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n:1\r\n$0\r\n\r\n_\r\n+OK\r\n";
    for size in 1..=stream.len() {
        let mut scanner = ReplyScanner::default();
        let mut total = Scanned::default();
        for piece in stream.chunks(size) {
            let found = scanner.scan(piece).expect("valid");
            total.complete += found.complete;
            total.nulls += found.nulls;
        }
        assert_eq!(
            total,
            Scanned {
                complete: 7,
                nulls: 2
            },
            "pieces of {size}"
        );
    }
}

#[test]
fn scanner_refuses_errors_and_arrays() {
    assert!(ReplyScanner::default().scan(b"-OOM no\r\n").is_err());
    assert!(ReplyScanner::default().scan(b"*1\r\n").is_err());
    assert!(ReplyScanner::default().scan(&[b'+'; 2000]).is_err());
}

#[test]
fn info_fields_match_whole_names() {
    let info = "# Persistence\r\nwal_bytes:1\r\nwal_bytes_written:42\r\nloading:0\r\n";
    assert_eq!(info_number(info, "wal_bytes_written"), Some(42));
    assert_eq!(info_number(info, "bytes_written"), None);
    assert_eq!(info_field(info, "loading"), Some("0"));
}
