use super::*;

/// As releases without TLS ports have written it.
#[derive(Serialize, Deserialize)]
struct Before {
    entry: String,
    peer: String,
}

fn addresses(tls_port: Option<u16>) -> Addresses {
    Addresses {
        entry: "10.0.0.1:7379".to_owned(),
        tls_port,
        peer: "10.0.0.1:17379".to_owned(),
        rack: String::new(),
    }
}

#[test]
fn addresses_without_a_tls_port_are_written_as_before_there_were_any() {
    let without = addresses(None);
    let bytes = postcard::to_allocvec(&without).unwrap();
    let before = Before {
        entry: without.entry.clone(),
        peer: without.peer.clone(),
    };
    assert_eq!(bytes, postcard::to_allocvec(&before).unwrap());
    assert_eq!(postcard::from_bytes::<Addresses>(&bytes), Ok(without));
}

#[test]
fn a_tls_port_is_read_as_it_was_written() {
    for port in [0, 1, 7400, u16::MAX] {
        let with = addresses(Some(port));
        let bytes = postcard::to_allocvec(&with).unwrap();
        assert_eq!(postcard::from_bytes::<Addresses>(&bytes), Ok(with.clone()));
        assert_eq!(with.embedded().as_deref(), Some("10.0.0.1:27379"));
    }
}

#[test]
fn what_is_no_port_behind_the_mark_is_a_part_of_the_host() {
    for entry in ["h,tls=:7379", "h,tls=x", ",tls=70000", "h,tls=1,tls=", ""] {
        let before = Before {
            entry: entry.to_owned(),
            peer: String::new(),
        };
        let bytes = postcard::to_allocvec(&before).unwrap();
        let read: Addresses = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((read.entry.as_str(), read.tls_port), (entry, None));
        assert_eq!(postcard::to_allocvec(&read).unwrap(), bytes);
    }
}

#[test]
fn a_rack_is_read_as_it_was_written() {
    for rack in ["east", "a,rack=b", "=", ",", "ö"] {
        let with = Addresses {
            rack: rack.to_owned(),
            ..addresses(Some(7400))
        };
        let bytes = postcard::to_allocvec(&with).unwrap();
        assert_eq!(postcard::from_bytes::<Addresses>(&bytes), Ok(with));
    }
    let nowhere = Before {
        entry: String::new(),
        peer: ",rack=".to_owned(),
    };
    let bytes = postcard::to_allocvec(&nowhere).unwrap();
    let read: Addresses = postcard::from_bytes(&bytes).unwrap();
    assert_eq!((read.peer.as_str(), read.rack.as_str()), ("", ""));
}

#[test]
fn what_came_with_policies_waits_for_the_last_member() {
    let policy = Policy::Sticky;
    let own = Command::PlanOwn {
        moves: Vec::new(),
        change: None,
    };
    let all = [
        Command::SetPolicy { policy },
        Command::EndChange { policy },
        Command::CancelMoves,
        own,
    ];
    assert!(all.iter().all(|command| command.needs() == Some(POLICIES)));
}
