use super::*;

#[test]
fn what_goes_on_is_an_event_from_its_beginning_to_its_end() {
    let mut watch = Watch::default();
    let quiet = "image_in_progress:0\r\nmigrations_outgoing:0\r\n";
    let imaging = "image_in_progress:1\r\nmigrations_outgoing:0\r\n";
    let both = "image_in_progress:1\r\nmigrations_outgoing:3\r\n";
    for (at_s, info) in [
        (0.0, Some(quiet)),
        (1.0, Some(imaging)),
        (2.0, Some(both)),
        (3.0, None),
        (
            4.0,
            Some("aof_rewrite_in_progress:1\r\nmigrations_outgoing:0\r\n"),
        ),
        (5.0, Some(quiet)),
        (6.0, Some("migrations_incoming:1\r\n")),
    ] {
        watch.note(info, at_s);
    }
    assert_eq!(
        watch.events(),
        [
            event("image", 1.0, Some(5.0)),
            event("move", 2.0, Some(4.0)),
            event("outage", 3.0, Some(4.0)),
            event("move", 6.0, None),
        ]
    );
}
