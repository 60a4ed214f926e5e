use super::*;

fn node(digit: u8, port: u16, slots: &[(u16, u16)]) -> ViewNode {
    ViewNode {
        id: [digit; 40],
        host: "127.0.0.1".to_owned(),
        port,
        tls_port: None,
        client_port: port,
        bus_port: port + 10_000,
        slots: slots.to_vec(),
        failed: false,
        epoch: u64::from(digit - b'0'),
    }
}

/// Two primaries whose ranges interleave, seen from the second.
fn view() -> ClusterView {
    ClusterView {
        myself: 1,
        nodes: vec![
            node(b'1', 7380, &[(0, 99), (200, 200)]),
            node(b'2', 7381, &[(100, 199), (201, 16383)]),
        ],
        serving: true,
        messages_sent: 3,
        messages_received: 4,
    }
}

fn written(write: impl Fn(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("ASCII")
}

#[test]
fn slots_are_ascending_ranges_with_their_node() {
    let mut expected = "*4\r\n".to_owned();
    for (first, last, port, id) in [
        (0, 99, 7380, "1"),
        (100, 199, 7381, "2"),
        (200, 200, 7380, "1"),
        (201, 16383, 7381, "2"),
    ] {
        expected += &format!(
            "*3\r\n:{first}\r\n:{last}\r\n*4\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{}\r\n*0\r\n",
            id.repeat(40)
        );
    }
    assert_eq!(
        written(|out| view().write_slots(out, Protocol::Resp2)),
        expected
    );
    let resp3 = expected.replace("*0\r\n", "%0\r\n");
    assert_eq!(
        written(|out| view().write_slots(out, Protocol::Resp3)),
        resp3
    );
}

#[test]
fn shards_have_the_shape_of_redis() {
    let mut single = view();
    single.myself = 0;
    single.nodes = vec![node(b'7', 27391, &[(0, 16383)])];
    // As a redis-server 7.0.15 writes it, with its id and host replaced.
    let redis = format!(
        "*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n%7\r\n$2\r\nid\r\n$40\r\n\
         {}\r\n$4\r\nport\r\n:27391\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$8\r\nendpoint\r\n$9\r\n127.0.0.1\
         \r\n$4\r\nrole\r\n$6\r\nmaster\r\n$18\r\nreplication-offset\r\n:0\r\n$6\r\nhealth\r\n$6\r\n\
         online\r\n",
        "7".repeat(40)
    );
    assert_eq!(
        written(|out| single.write_shards(out, Protocol::Resp3)),
        redis
    );
    let resp2 = redis
        .replace("%2\r\n", "*4\r\n")
        .replace("%7\r\n", "*14\r\n");
    assert_eq!(
        written(|out| single.write_shards(out, Protocol::Resp2)),
        resp2
    );
}

#[test]
fn whoever_comes_over_tls_is_led_to_tls_ports() {
    let mut secure = view();
    for node in &mut secure.nodes {
        node.tls_port = Some(node.port + 100);
        node.client_port = node.port + 100;
    }
    let slots = written(|out| secure.write_slots(out, Protocol::Resp2));
    assert!(slots.contains(":7480\r\n") && !slots.contains(":7380\r\n"));
    let nodes = secure.nodes_text();
    assert!(nodes.contains(" 127.0.0.1:7480@17380 "), "{nodes}");
    let shards = written(|out| secure.write_shards(out, Protocol::Resp3));
    let ports = "%8\r\n$2\r\nid\r\n$40\r\n";
    assert!(shards.contains(ports), "{shards}");
    let ports = "$4\r\nport\r\n:7380\r\n$8\r\ntls-port\r\n:7480\r\n$2\r\nip\r\n";
    assert!(shards.contains(ports), "{shards}");
}

#[test]
fn nodes_are_lines_with_exactly_one_myself() {
    let text = view().nodes_text();
    let expected = format!(
        "{} 127.0.0.1:7380@17380 master - 0 0 1 connected 0-99 200\n\
         {} 127.0.0.1:7381@17381 myself,master - 0 0 2 connected 100-199 201-16383\n",
        "1".repeat(40),
        "2".repeat(40)
    );
    assert_eq!(text, expected);
    let framed = written(|out| view().write_nodes(out, Protocol::Resp3));
    assert_eq!(
        framed,
        format!("={}\r\ntxt:{expected}\r\n", expected.len() + 4)
    );
}

#[test]
fn a_node_without_slots_ends_its_line_with_the_link_state() {
    let mut view = view();
    view.nodes.push(node(b'3', 7382, &[]));
    assert!(view.nodes_text().ends_with(" master - 0 0 3 connected\n"));
    assert!(
        view.info_text()
            .contains("cluster_known_nodes:3\r\ncluster_size:2\r\n")
    );
}

#[test]
fn a_failed_node_keeps_its_slots_and_the_state_stays_ok() {
    let mut view = view();
    view.nodes[0].failed = true;
    let line = view
        .nodes_text()
        .lines()
        .next()
        .map(str::to_owned)
        .expect("a line");
    assert!(
        line.ends_with(" master,fail - 0 0 1 disconnected 0-99 200"),
        "{line}"
    );
    assert!(written(|out| view.write_slots(out, Protocol::Resp2)).starts_with("*4\r\n"));
    assert!(written(|out| view.write_shards(out, Protocol::Resp2)).contains("$4\r\nfail\r\n"));
    assert_eq!(
        view.info_text(),
        "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16283\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:101\r\ncluster_known_nodes:2\r\ncluster_size:2\r\n\
         cluster_current_epoch:2\r\ncluster_my_epoch:2\r\ncluster_stats_messages_sent:3\r\n\
         cluster_stats_messages_received:4\r\ntotal_cluster_links_buffer_limit_exceeded:0\r\n"
    );
}

#[test]
fn the_state_fails_without_a_lease_or_with_unassigned_slots() {
    let mut view = view();
    view.serving = false;
    assert!(view.info_text().starts_with("cluster_state:fail\r\n"));
    view.serving = true;
    view.nodes[1].slots.pop();
    assert!(
        view.info_text()
            .starts_with("cluster_state:fail\r\ncluster_slots_assigned:201\r\n")
    );
}

#[test]
fn my_id_is_that_of_nodes() {
    let id = "2".repeat(40);
    assert_eq!(
        written(|out| view().write_my_id(out)),
        format!("$40\r\n{id}\r\n")
    );
}
