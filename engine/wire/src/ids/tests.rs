use super::*;

#[test]
fn node_id_prints_and_parses_as_hex_and_as_a_uuid() {
    let id = NodeId([
        0x67, 0xe5, 0x50, 0x44, 0x10, 0xb1, 0x42, 0x6f, 0x92, 0x47, 0xbb, 0x68, 0x0e, 0x5f, 0xe0,
        0xc8,
    ]);
    assert_eq!(id.to_string(), "67e5504410b1426f9247bb680e5fe0c8");
    assert_eq!("67e5504410b1426f9247bb680e5fe0c8".parse(), Ok(id));
    assert_eq!("67E55044-10B1-426F-9247-BB680E5FE0C8".parse(), Ok(id));
}

#[test]
fn node_id_refuses_other_text() {
    let refused = [
        "",
        "67e5504410b1426f9247bb680e5fe0c",
        "67e5504410b1426f9247bb680e5fe0c8a",
        "67e5504410b1426f9247bb680e5fe0cg",
        "67e550441-0b1-426f-9247-bb680e5fe0c8",
        "é7e5504410b1426f9247bb680e5fe0c",
    ];
    for text in refused {
        assert_eq!(text.parse::<NodeId>(), Err(NodeIdError), "{text}");
    }
}

/// Zero, which would come next, is no copy's.
#[test]
fn behind_the_last_epoch_there_is_no_other() {
    assert_eq!(Epoch(7).next(), Epoch(8));
    assert_eq!(Epoch(u64::MAX).next(), Epoch(u64::MAX));
}
