use super::*;

const OTHER_MODE: &str =
    "before disabling tracking for this client, and then re-enabling it with a different mode.";

fn told(before: Option<&Tracker>, line: &str) -> Result<Option<Tracker>, String> {
    let line = format!("CLIENT TRACKING {line}");
    let args: Vec<&str> = line.split(' ').collect();
    let options = Options::parse(&args[..], |id| id == 7).map_err(|error| error.to_string())?;
    let tracker = options.is_on.then(|| options.tracker(before));
    tracker.transpose().map_err(|error| error.to_string())
}

#[test]
fn arguments_are_checked_as_redis_checks_them() {
    let existing = told(None, "on bcast prefix a").expect("valid");
    let opted_in = told(None, "on optin").expect("valid");
    for (before, line, expected) in [
        (&None, "foo", "syntax error".to_owned()),
        (&None, "on foo", "syntax error".to_owned()),
        (&None, "on redirect", "syntax error".to_owned()),
        (&None, "on prefix", "syntax error".to_owned()),
        (&None, "on redirect x", "value is not an integer or out of range".to_owned()),
        (&None, "on redirect -1", "The client ID you want redirect to does not exist".to_owned()),
        (&None, "off redirect 8", "The client ID you want redirect to does not exist".to_owned()),
        (
            &None,
            "on redirect 7 redirect 7",
            "A client can only redirect to a single other client".to_owned(),
        ),
        (&None, "on prefix a", "PREFIX option requires BCAST mode to be enabled".to_owned()),
        (&None, "on optin optout", "You can't specify both OPTIN mode and OPTOUT mode".to_owned()),
        (&None, "on bcast optin", "OPTIN and OPTOUT are not compatible with BCAST".to_owned()),
        (&existing, "on", format!("You can't switch BCAST mode on/off {OTHER_MODE}")),
        (&opted_in, "on bcast", format!("You can't switch BCAST mode on/off {OTHER_MODE}")),
        (&opted_in, "on optout", format!("You can't switch OPTIN/OPTOUT mode {OTHER_MODE}")),
        (
            &existing,
            "on bcast prefix b prefix ab",
            "Prefix 'ab' overlaps with an existing prefix 'a'. Prefixes for a single client must not overlap.".to_owned(),
        ),
        (
            &None,
            "on bcast prefix b prefix ab prefix a",
            "Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap."
                .to_owned(),
        ),
    ] {
        let error = told(before.as_ref(), line).expect_err(line);
        assert_eq!(error, format!("ERR {expected}"), "{line}");
    }
    for line in [
        "off prefix a",
        "off optin optout",
        "off redirect 7",
        "OFF bcast noloop",
    ] {
        assert!(told(existing.as_ref(), line).expect(line).is_none());
    }
    assert!(
        told(opted_in.as_ref(), "on")
            .expect("a mode without")
            .is_some()
    );
    let added = told(existing.as_ref(), "on bcast").expect("all keys");
    assert_eq!(
        added.expect("on").prefixes.len(),
        2,
        "the empty one as well"
    );
}

#[test]
fn prefixes_are_bounded() {
    let long = format!("on bcast prefix {}", "x".repeat(PREFIX_BYTES_MAX + 1));
    let error = told(None, &long).expect_err("too long");
    assert!(
        error.contains("a prefix cannot be longer than 1024 bytes"),
        "{error}"
    );
    let many: Vec<String> = (0..=PREFIXES_MAX)
        .map(|n| format!("prefix {n:05}"))
        .collect();
    let error = told(None, &format!("on bcast {}", many.join(" "))).expect_err("too many");
    assert!(error.ends_with("at most 256 prefixes"), "{error}");
    let most = format!("on bcast {}", many[..PREFIXES_MAX].join(" "));
    let before = told(None, &most).expect("as many as may be");
    assert!(told(before.as_ref(), "on bcast prefix one-more").is_err());
}

#[test]
fn caching_goes_with_its_mode() {
    let caching = |tracker: Option<&mut Tracker>, word| {
        let args = ["CLIENT", "CACHING", word];
        note_caching(tracker, &args[..]).map_err(|error| error.to_string())
    };
    let only = |mode, word| {
        let error = format!(
            "ERR CLIENT CACHING {word} is only valid when tracking is enabled in {mode} mode."
        );
        Err(error)
    };
    assert!(
        caching(None, "foo")
            .expect_err("off")
            .contains("can be called only when")
    );
    for (line, yes, no) in [
        ("on", only("OPTIN", "YES"), only("OPTOUT", "NO")),
        ("on optin", Ok(()), only("OPTOUT", "NO")),
        ("on optout", only("OPTIN", "YES"), Ok(())),
        ("on bcast", only("OPTIN", "YES"), only("OPTOUT", "NO")),
    ] {
        let mut tracker = told(None, line).expect("valid");
        assert_eq!(
            caching(tracker.as_mut(), "foo"),
            Err("ERR syntax error".to_owned())
        );
        let tracks = tracker.as_ref().map(Tracker::tracks_reads);
        assert_eq!(caching(tracker.as_mut(), "yes"), yes, "{line}");
        assert_eq!(caching(tracker.as_mut(), "NO"), no, "{line}");
        let is_said = yes.is_ok() || no.is_ok();
        let now = tracker.as_ref().map(Tracker::tracks_reads);
        assert_eq!(now != tracks, is_said, "{line}");
    }
}

#[test]
fn info_tells_what_was_said() {
    for (line, expected) in [
        (
            "off",
            "*6|$5|flags|*1|$3|off|$8|redirect|:-1|$8|prefixes|*0|",
        ),
        ("on", "*6|$5|flags|*1|$2|on|$8|redirect|:0|$8|prefixes|*0|"),
        (
            "on optin noloop redirect 7",
            "*6|$5|flags|*3|$2|on|$5|optin|$6|noloop|$8|redirect|:7|$8|prefixes|*0|",
        ),
        (
            "on bcast prefix b prefix a",
            "*6|$5|flags|*2|$2|on|$5|bcast|$8|redirect|:0|$8|prefixes|*2|$1|a|$1|b|",
        ),
    ] {
        let tracker = told(None, line).expect("valid");
        let mut out = Vec::new();
        write_info(&mut out, Protocol::Resp2, tracker.as_ref());
        let text = String::from_utf8_lossy(&out).replace("\r\n", "|");
        assert_eq!(text, expected, "{line}");
    }
}
