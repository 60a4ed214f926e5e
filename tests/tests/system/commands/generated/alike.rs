//! When two replies count as the same: exactly so, but for times, ids and the order of keys, and what
//! `docs/differences.md` lets pass.

use ephesus_tests::Reply;

use super::super::shown;
use super::requests::Step;

const DIFFERENCES: &str = include_str!("../../../../../docs/differences.md");

/// Of times that were read and set at two servers one after the other, in seconds.
const SLACK_S: i64 = 20;

/// Who answers otherwise, to what, and how.
#[derive(Debug)]
struct Difference {
    oracle: String,
    request: String,
    theirs: String,
    ours: String,
}

/// What the documents let pass with one oracle.
#[derive(Debug)]
pub struct Differences(Vec<Difference>);

impl Differences {
    /// Rows of the second table: oracle, request, its reply, ours.
    pub fn with(oracle: &str) -> Self {
        let (_, table) = DIFFERENCES
            .split_once("\n| oracle | request | its reply | here |\n")
            .expect("docs/differences.md has a table of generated sequences");
        let rows = table
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with('|'));
        let rows = rows.map(|row| {
            let cells: Vec<String> = row
                .trim_matches(['|', ' '])
                .split(" | ")
                .map(|cell| cell.trim_matches(['`', ' ']).to_owned())
                .collect();
            let [oracle, request, theirs, ours] = <[String; 4]>::try_from(cells)
                .unwrap_or_else(|cells| panic!("docs/differences.md: {cells:?}"));
            Difference {
                oracle,
                request,
                theirs,
                ours,
            }
        });
        let is_about = |row: &Difference| row.oracle == "any" || oracle.contains(&row.oracle);
        Self(rows.filter(is_about).collect())
    }

    fn let_pass(&self, step: &Step, ours: &Reply, theirs: &Reply) -> bool {
        let words: Vec<_> = step.args.iter().map(|arg| arg.as_slice()).collect();
        let request = shown(&words);
        let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
        self.0.iter().any(|row| {
            let mut same = Vec::new();
            matches(
                &row.request.to_lowercase(),
                &request.to_lowercase(),
                &mut Vec::new(),
            ) && matches(&row.theirs, &theirs, &mut same)
                && matches(&row.ours, &ours, &mut same)
        })
    }

    /// Whether replies to one request are the same; `queued` is what EXEC executes.
    pub fn are_alike(&self, step: &Step, queued: &[Step], ours: &Reply, theirs: &Reply) -> bool {
        if ours == theirs {
            return true;
        }
        let name = step.args[0].to_ascii_uppercase();
        let second = step.args.get(1).map(|arg| arg.to_ascii_uppercase());
        let alike = match (name.as_slice(), ours, theirs) {
            (b"TTL" | b"EXPIRETIME", Reply::Integer(ours), Reply::Integer(theirs)) => {
                are_near(*ours, *theirs, SLACK_S)
            }
            (b"PTTL" | b"PEXPIRETIME", Reply::Integer(ours), Reply::Integer(theirs)) => {
                are_near(*ours, *theirs, SLACK_S * 1000)
            }
            (b"LASTSAVE", Reply::Integer(_), Reply::Integer(_)) => true,
            (b"TIME", Reply::Array(ours), Reply::Array(theirs)) => ours.len() == theirs.len(),
            (b"CLIENT", Reply::Integer(_), Reply::Integer(_)) => second == Some(b"ID".into()),
            (b"HELLO", _, _) => {
                let is_hello = |reply: &Reply| matches!(reply, Reply::Map(_) | Reply::Array(_));
                is_hello(ours) && is_hello(theirs) && ours.field("proto") == theirs.field("proto")
            }
            (b"KEYS", Reply::Array(ours), Reply::Array(theirs)) => are_equal_sets(ours, theirs),
            // Which one is looked at by the run.
            (b"RANDOMKEY", Reply::Bulk(_), Reply::Bulk(_)) => true,
            (b"SCAN", Reply::Array(ours), Reply::Array(theirs)) => ours.len() == theirs.len(),
            (b"EXEC", Reply::Array(ours), Reply::Array(theirs)) => {
                ours.len() == theirs.len()
                    && queued.len() == ours.len()
                    && (queued.iter().zip(ours.iter().zip(theirs)))
                        .all(|(step, (ours, theirs))| self.are_alike(step, &[], ours, theirs))
            }
            (name, Reply::Array(ours), Reply::Array(theirs)) if name.starts_with(b"EVAL") => {
                // {count, pttl}
                matches!((&ours[..], &theirs[..]),
                    ([one, Reply::Integer(ours)], [other, Reply::Integer(theirs)])
                        if one == other && are_near(*ours, *theirs, SLACK_S * 1000))
            }
            _ => false,
        };
        alike || self.let_pass(step, ours, theirs)
    }
}

pub fn are_near(ours: i64, theirs: i64, slack: i64) -> bool {
    ours >= 0 && theirs >= 0 && (ours - theirs).abs() <= slack
}

fn are_equal_sets(ours: &[Reply], theirs: &[Reply]) -> bool {
    let sorted = |replies: &[Reply]| {
        let mut shown: Vec<String> = replies.iter().map(|reply| format!("{reply:?}")).collect();
        shown.sort_unstable();
        shown
    };
    sorted(ours) == sorted(theirs)
}

/// Whether a text is what a pattern says, in which `…` is anything and `*` what `same` has, in turn; what `*` is is
/// added to `same` if that is empty.
fn matches(pattern: &str, text: &str, same: &mut Vec<String>) -> bool {
    fn from(pattern: &[char], text: &[char], given: &[String], found: &mut Vec<String>) -> bool {
        let Some((&first, rest)) = pattern.split_first() else {
            return text.is_empty();
        };
        match first {
            '…' => (0..=text.len()).any(|len| from(rest, &text[len..], given, found)),
            '*' => (0..=text.len()).any(|len| {
                let part: String = text[..len].iter().collect();
                if given.get(found.len()).is_some_and(|given| *given != part) {
                    return false;
                }
                found.push(part);
                let fits = from(rest, &text[len..], given, found);
                if !fits {
                    found.pop();
                }
                fits
            }),
            first => text.first() == Some(&first) && from(rest, &text[1..], given, found),
        }
    }
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    let mut found = Vec::new();
    let fits = from(&chars(pattern), &chars(text), same, &mut found);
    if fits && same.is_empty() {
        *same = found;
    }
    fits
}
