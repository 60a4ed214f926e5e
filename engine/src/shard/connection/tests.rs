use super::*;

#[test]
fn who_is_closed_between_two_sends_of_a_reply_owes_nothing() {
    let token = ConnToken {
        index: 0,
        generation: 1,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let no_socket = -1;
    let kind = ListenerKind::Entry;
    let mut connection = Connection::new(token, 1, no_socket, kind, (address, address), 0);
    connection.sending = vec![b'x'; 2 * SEND_BYTES];
    connection.sent(SEND_BYTES);
    connection.kill();
    assert_eq!(connection.output_bytes(), 0);
    assert!(!connection.is_owed_much());
    assert!(connection.is_finished());
}
