use super::*;
use crate::acl::Users;
use crate::acl::password::PasswordHash;

fn connection() -> Connection {
    let token = ConnToken {
        index: 0,
        generation: 1,
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let no_socket = -1;
    let kind = ListenerKind::Entry;
    Connection::new(token, 1, no_socket, kind, (address, address), 0)
}

/// Anybody can connect: ten thousand who say nothing of use must not take the memory that is for those who do.
#[test]
fn who_owes_a_password_makes_the_node_hold_little() {
    let mut connection = connection();
    let password = PasswordHash::of(b"x").expect("short");
    connection.identity.begin(&Users::with_password(password));
    connection.sending = vec![b'x'; PREAUTH_QUERY_BYTES_MAX];
    assert!(connection.is_owed_much());
    connection.blocked = Some(Blocked::Output);
    connection.unread.is_stuck = true;
    assert!(connection.wants_input());
    connection.input.push(&[b'x'; PREAUTH_QUERY_BYTES_MAX]);
    assert!(!connection.wants_input());
    connection.identity.begin(&Users::default());
    assert!(connection.wants_input() && !connection.is_owed_much());
}

#[test]
fn who_is_closed_between_two_sends_of_a_reply_owes_nothing() {
    let mut connection = connection();
    connection.sending = vec![b'x'; 2 * SEND_BYTES];
    connection.sent(SEND_BYTES);
    connection.kill();
    assert_eq!(connection.output_bytes(), 0);
    assert!(!connection.is_owed_much());
    assert!(connection.is_finished());
}
