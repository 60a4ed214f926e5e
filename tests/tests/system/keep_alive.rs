//! Connections of clients that have vanished end: the kernel asks for them.

use ephesus_tests::{Node, Options, Reply};

/// What `/proc/net/tcp` calls an established connection, and a timer that sends keep-alive probes.
const ESTABLISHED: &str = "01";
const KEEP_ALIVE: &str = "02:";

/// Connections that a port of ours has, and how many of them are probed.
fn probed(port: u16) -> (usize, usize) {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
    let local = format!("0100007F:{port:04X}");
    let fields =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let rows: Vec<_> = table.lines().map(fields).collect();
    let ours: Vec<_> = rows
        .iter()
        .filter(|row| row.len() > 5 && row[1] == local && row[3] == ESTABLISHED)
        .collect();
    let probed = ours.iter().filter(|row| row[5].starts_with(KEEP_ALIVE));
    (ours.len(), probed.count())
}

#[test]
fn idle_connections_of_clients_are_probed() {
    let node = Node::start(Options::default());
    for port in [node.port(), node.direct_port(0)] {
        let mut client = ephesus_tests::Client::connect(port).expect("a port of the node");
        assert_eq!(client.call(&["PING"]), Reply::Simple("PONG".to_owned()));
        let setting = client.call(&["CONFIG", "GET", "tcp-keepalive"]).items();
        assert_eq!(setting[1], Reply::bulk("300"));
        // An acknowledgement on its way has a timer of its own.
        let began = std::time::Instant::now();
        while probed(port) != (1, 1) {
            assert!(began.elapsed().as_secs() < 10, "{:?}", probed(port));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}
