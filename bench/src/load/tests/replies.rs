use std::net::SocketAddr;

use ephesus_wire::resp::value::decode;

use super::super::routes::{Routes, moved};

#[test]
fn redirects_without_a_host_are_to_the_one_that_was_asked() {
    let from: SocketAddr = "10.0.0.1:7000".parse().expect("address");
    let to = |text| moved(text, from).map(|address| address.to_string());
    assert_eq!(
        to("MOVED 3 10.0.0.2:7001").as_deref(),
        Some("10.0.0.2:7001")
    );
    assert_eq!(to("MOVED 3 :7001").as_deref(), Some("10.0.0.1:7001"));
    assert_eq!(to("MOVED 3 nowhere"), None);
    assert_eq!(to("ASK 3 10.0.0.2:7001"), None);
}

#[test]
fn slots_that_nobody_has_are_counted_and_bad_tables_refused() {
    let from: SocketAddr = "10.0.0.1:7000".parse().expect("address");
    let learn = |text: &str| {
        let (table, _) = decode(text.as_bytes()).expect("RESP").expect("whole");
        let mut routes = Routes::to(from);
        routes
            .learn(&table, from)
            .map(|missing| (missing, routes.servers))
    };
    let range = |first: u32, last: u32, host: &str, port: u32| {
        format!(
            "*3\r\n:{first}\r\n:{last}\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n",
            host.len()
        )
    };
    let (missing, servers) =
        learn(&format!("*1\r\n{}", range(0, 16_283, "", 7001))).expect("table");
    assert_eq!(missing, 100);
    assert_eq!(servers, [from, "10.0.0.1:7001".parse().expect("address")]);
    for wrong in [
        "+OK\r\n".to_owned(),
        format!("*1\r\n{}", range(0, 16_384, "", 7001)),
        format!("*1\r\n{}", range(5, 4, "", 7001)),
        format!("*1\r\n{}", range(0, 4, "", 70_001)),
        "*1\r\n*1\r\n:1\r\n".to_owned(),
    ] {
        assert!(learn(&wrong).is_err(), "{wrong}");
    }
}
