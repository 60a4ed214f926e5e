use super::*;

#[test]
fn names_are_canonical() {
    let id = SegmentId(0x2a);
    assert_eq!(id.file_name(), "seg-000000000000002a.log");
    assert_eq!(SegmentId::from_file_name(&id.file_name()), Some(id));
    assert_eq!(SegmentId::from_free_name(&id.free_name()), Some(id));
    for name in [
        "seg-000000000000002A.log",
        "seg-2a.log",
        "seg-0000000000000000.log",
        "seg-+00000000000002a.log",
        "seg-000000000000002a.log.bak",
        "free-000000000000002a.log",
    ] {
        assert_eq!(SegmentId::from_file_name(name), None, "{name}");
    }
}
