use super::*;

#[test]
fn an_address_is_a_host_and_a_port() {
    for good in [
        "127.0.0.1:1",
        "localhost:65535",
        "coordinator-1.example.org:27379",
        "[::1]:27379",
    ] {
        assert_eq!(address(good).as_deref(), Ok(good));
    }
    for bad in [
        "",
        ":",
        "27379",
        "localhost",
        ":27379",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "::1:27379",
        "[::1:27379",
        "[host]:1",
        "[]:1",
        "a host:1",
        "a@host:1",
        "a,b:1",
        "\u{1b}[2J:1",
    ] {
        assert!(address(bad).is_err(), "{bad}");
    }
    assert!(address(&format!("{}:1", "x".repeat(ADDRESS_BYTES_MAX))).is_err());
}

#[test]
fn a_peer_has_a_number() {
    let peer: Peer = "3@localhost:7".parse().expect("a peer");
    assert_eq!((peer.id, peer.port()), (RaftId(3), 7));
    assert_eq!(peer.address, "localhost:7");
    for bad in [
        "localhost:7",
        "0@localhost:7",
        "x@localhost:7",
        "-1@localhost:7",
        "1@",
        "1@7",
        "@localhost:7",
        "1@2@localhost:7",
    ] {
        assert!(bad.parse::<Peer>().is_err(), "{bad}");
    }
}
