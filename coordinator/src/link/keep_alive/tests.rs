use std::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn what_a_listener_accepts_inherits_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    KeepAlive::CLIENTS.set(&listener).expect("socket options");
    let address = listener.local_addr().expect("bound");
    let _client = TcpStream::connect(address).expect("it listens");
    let (accepted, _) = listener.accept().expect("a connection");
    let socket = SockRef::from(&accepted);
    assert!(socket.keepalive().expect("an option"));
    let seconds = |duration: Duration| duration.as_secs();
    assert_eq!(socket.tcp_keepalive_time().map(seconds).ok(), Some(300));
    assert_eq!(socket.tcp_keepalive_interval().map(seconds).ok(), Some(100));
    assert_eq!(socket.tcp_keepalive_retries().ok(), Some(3));
    let unacknowledged = socket.tcp_user_timeout().expect("an option");
    assert_eq!(unacknowledged, Some(Duration::from_secs(600)));
}
