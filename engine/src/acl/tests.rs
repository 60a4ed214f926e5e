//! Users as rules make them, and as files keep them.

use ephesus_wire::rng::Rng;

use super::denied::Denied;
use super::file;
use super::identity::{Followed, Identity};
use super::password::PASSWORD_BYTES_MAX;
use super::permissions::STEPS_MAX;
use super::rule::RuleError;
use super::users::{RULES_MAX, Users, UsersError};
use crate::command::spec;

fn set<R: AsRef<[u8]>>(users: &mut Users, name: &[u8], rules: &[R]) -> Result<(), UsersError> {
    users.set(name, rules.iter().map(AsRef::as_ref))
}

fn numbered(begin: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{begin}{n:064x}")).collect()
}

fn checked(users: &Users, name: &[u8], args: &[&[u8]], mut steps: usize) -> Result<(), Denied> {
    let spec = spec::resolve(args).expect("a command");
    users
        .get(name)
        .expect("there")
        .check(spec, args, &mut steps)
}

/// Each rule is compared with those before: a request of 32 MiB would take minutes.
#[test]
fn requests_and_users_have_a_bounded_number_of_rules() {
    for begin in ["+get|", "#", "~", "&", "%R~"] {
        let mut users = Users::default();
        let rules = numbered(begin, RULES_MAX + 1);
        let too_many = Err(UsersError::TooManyRules);
        assert_eq!(set(&mut users, b"a", &rules), too_many);
        // Off, without all channels, and without all commands.
        assert_eq!(set(&mut users, b"a", &rules[..RULES_MAX - 2]), too_many);
        set(&mut users, b"a", &rules[..RULES_MAX - 3]).expect("few enough");
        assert_eq!(
            set(&mut users, b"a", &rules[RULES_MAX - 3..][..1]),
            too_many
        );
        set(&mut users, b"a", &rules[..1]).expect("there already");
        let text = file::write(&users);
        let read = file::parse("users", &text).expect("what a user may have is read");
        assert_eq!(file::write(&read), text);
    }
    let mut users = Users::default();
    let same = ["+@read"; RULES_MAX + 1];
    assert_eq!(set(&mut users, b"a", &same), Err(UsersError::TooManyRules));
    set(&mut users, b"a", &same[1..]).expect("few enough");
}

#[test]
fn the_text_of_all_users_fits_a_file() {
    for begin in ["#", "~", "+get|"] {
        let mut users = Users::default();
        for n in 0..3 {
            let rules = numbered(begin, RULES_MAX - 8);
            set(&mut users, &[b'a' + n], &rules).expect("few enough");
        }
        let most = file::FILE_BYTES_MAX / super::users::USERS_BYTES_MAX;
        assert!(file::write(&users).len() <= most * users.bytes());
    }
}

const WORDS: [&[u8]; 30] = [
    b"on",
    b"off",
    b"nopass",
    b">secret",
    b"<secret",
    b"+get",
    b"-get",
    b"+GET|A",
    b"+get|\xff\xfe",
    b"+get|b",
    b"+@read",
    b"-@write",
    b"+@all",
    b"-@all",
    b"+client|id",
    b"-client|list",
    b"+client",
    b"~*",
    b"%RW~*",
    b"%R~*",
    b"%W~*",
    b"~\xff*",
    b"%R~a*",
    b"%W~a*",
    b"&*",
    b"&news",
    b"resetchannels",
    b"resetkeys",
    b"resetpass",
    b"reset",
];

const TRIED: [&[&[u8]]; 8] = [
    &[b"GET", b"a"],
    &[b"GET", b"\xff\xfe"],
    &[b"GET", b"b"],
    &[b"SET", b"a", b"1"],
    &[b"CLIENT", b"ID"],
    &[b"CLIENT", b"LIST"],
    &[b"PUBLISH", b"news", b"x"],
    &[b"MGET", b"a", b"b"],
];

/// What a file cannot say would keep a node from starting.
#[test]
fn whatever_rules_have_made_is_read_as_it_was_written() {
    let mut rng = Rng::new(7);
    for _ in 0..2000 {
        let mut users = Users::default();
        for _ in 0..rng.between(1, 8) {
            let rule = *rng.pick(&WORDS);
            // What is refused changes nothing.
            let _ = set(&mut users, b"alice", &[rule]);
        }
        if users.get(b"alice").is_none() {
            continue;
        }
        let text = file::write(&users);
        let shown = text.escape_ascii().to_string();
        let read = file::parse("users", &text).expect(&shown);
        assert_eq!(file::write(&read), text, "{shown}");
        for tried in TRIED {
            let before = checked(&users, b"alice", tried, STEPS_MAX);
            assert_eq!(
                checked(&read, b"alice", tried, STEPS_MAX),
                before,
                "{shown}"
            );
        }
        let secret = |users: &Users| users.authenticate(b"alice", b"secret").is_some();
        assert_eq!(secret(&read), secret(&users), "{shown}");
    }
    let mut users = Users::default();
    assert_eq!(set(&mut users, b"", &["on"]), Err(UsersError::Name));
}

#[test]
fn passwords_that_are_too_long_are_wrong() {
    let mut users = Users::default();
    let long = "p".repeat(PASSWORD_BYTES_MAX + 1);
    let refused = set(&mut users, b"a", &[format!(">{long}")]);
    let too_long = UsersError::Rule(0, RuleError::PasswordTooLong);
    assert_eq!(refused, Err(too_long));
    set(&mut users, b"a", &["on", &format!(">{}", &long[1..])]).expect("not too long");
    assert!(users.authenticate(b"a", &long.as_bytes()[1..]).is_some());
    assert!(users.authenticate(b"a", long.as_bytes()).is_none());
    assert!(users.authenticate(b"nobody", long.as_bytes()).is_none());
}

/// A command of 32 MiB and a hundred patterns would be compared for seconds.
#[test]
fn what_takes_too_long_to_compare_is_refused() {
    let mut users = Users::default();
    let patterns: Vec<String> = (0..100).map(|n| format!("~*:{n}")).collect();
    set(&mut users, b"a", &patterns).expect("few");
    set(&mut users, b"a", &["+@all", "&*:x"]).expect("few");
    let (key, channel) = ([b'k'; 60_000], [b'c'; 60_000]);
    let mget: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain([&key[..]; 20]).collect();
    assert_eq!(
        checked(&users, b"a", &mget, STEPS_MAX),
        Err(Denied::Key(1)),
        "the first one is none of its own"
    );
    let steps = 100 * key.len();
    let too_long = |cmd| Err(Denied::TooLong(cmd));
    assert_eq!(
        checked(&users, b"a", &mget, steps),
        too_long(spec::Cmd::Mget)
    );
    let publish: [&[u8]; 3] = [b"PUBLISH", &channel, b"x"];
    assert_eq!(
        checked(&users, b"a", &publish, STEPS_MAX),
        Err(Denied::Channel(1))
    );
    let steps = channel.len();
    assert_eq!(
        checked(&users, b"a", &publish, steps),
        too_long(spec::Cmd::Publish)
    );
    // Those whose beginning says it take few.
    let mut users = Users::default();
    set(&mut users, b"a", &["+@all", "~k*"]).expect("few");
    assert_eq!(checked(&users, b"a", &mget, 100), Ok(()));
}

#[test]
fn who_loses_channels_is_known_to_have() {
    let mut users = Users::default();
    set(&mut users, b"a", &["on", "&news", "&old"]).expect("rules");
    let mut identity = Identity::default();
    let user = users.get(b"a").expect("there");
    identity.become_user(user, &users);
    let mut follow = |users: &Users| identity.follow(users);
    for (rules, expected) in [
        (&["&more"][..], Followed::Here),
        (&["resetchannels", "&old", "&news", "&more"], Followed::Here),
        (&["+get", "~x"], Followed::Here),
        (&["resetchannels", "&news"], Followed::WithFewerChannels),
        (&["resetchannels"], Followed::WithFewerChannels),
        (&["allchannels"], Followed::Here),
        (&["reset", "on", "&news"], Followed::WithFewerChannels),
    ] {
        set(&mut users, b"a", rules).expect("rules");
        assert_eq!(follow(&users), expected, "{rules:?}");
        assert_eq!(follow(&users), Followed::Here, "once");
    }
    let loaded = |text: &[u8]| file::parse("users", text).expect("a file");
    let mut users = loaded(b"user a on &news &more").in_place_of(&users);
    assert_eq!(follow(&users), Followed::Here);
    users = loaded(b"user a on &more").in_place_of(&users);
    assert_eq!(follow(&users), Followed::WithFewerChannels);
    users = loaded(b"user b on").in_place_of(&users);
    assert_eq!(follow(&users), Followed::Gone);
}

/// Whoever connected before knows it as well.
#[test]
fn nobody_owes_a_password_where_none_is_needed() {
    let password = super::password::PasswordHash::of(b"x").expect("short");
    let mut users = Users::with_password(password);
    let mut identity = Identity::default();
    assert_eq!(identity.follow(&users), Followed::Here);
    assert!(identity.owes_password());
    set(&mut users, b"default", &["nopass"]).expect("a rule");
    assert_eq!(identity.follow(&users), Followed::Here);
    assert!(!identity.owes_password());
    set(&mut users, b"default", &["resetpass"]).expect("a rule");
    assert_eq!(identity.follow(&users), Followed::Here);
    assert!(identity.owes_password());
}
