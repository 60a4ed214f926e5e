//! Pipelined commands, parsed ahead of their execution so that their cache misses overlap.

use ephesus_wire::resp::request::{self, Args, Parsed, RequestError, RequestLimits};

use crate::command::parse::Located;

/// Most commands that are parsed before the first of them is executed.
const COMMANDS_MAX: usize = 32;

/// Arguments of a request from which on what was parsed of it is kept until it is whole, and executed. Of smaller
/// ones it costs less to parse them again.
const KEPT_ARGS_MIN: usize = 256;

/// What stands behind the parsed commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing, or commands that were not looked at yet.
    Unread,
    /// A command that needs a buffer of so many bytes, counted from its start.
    Incomplete { needed: usize },
    /// Bytes that break the protocol.
    Broken(RequestError),
}

/// Commands at the start of a buffer; reused from buffer to buffer.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    args: Vec<Args>,
    /// Where each command ends.
    ends: Vec<usize>,
    /// By command, as far as [`Batch::locate`] went.
    located: Vec<Option<Located>>,
}

impl Batch {
    /// Parses what is at the start of `bytes`; `begun` is what [`Batch::begun`] has kept of the first request.
    pub(crate) fn parse(&mut self, bytes: &[u8], begun: Option<Box<Args>>) -> Tail {
        self.ends.clear();
        self.located.clear();
        let (mut at, mut begun) = (0, begun);
        while at < bytes.len() && self.ends.len() < COMMANDS_MAX {
            let index = self.ends.len();
            if index == self.args.len() {
                self.args.push(Args::new());
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(args) = self.args.get_mut(index) else {
                break;
            };
            // A large request is the first of its batch: what is parsed of it may have to be kept.
            if index > 0 && may_be_large(rest) {
                break;
            }
            let parsed = match begun.take() {
                Some(begun) => {
                    *args = *begun;
                    request::resume(rest, &RequestLimits::DEFAULT, args)
                }
                None => request::parse(rest, &RequestLimits::DEFAULT, args),
            };
            match parsed {
                Ok(Parsed::Command { consumed }) => {
                    at += consumed;
                    self.ends.push(at);
                }
                Ok(Parsed::Incomplete { needed }) => return Tail::Incomplete { needed },
                Err(error) => return Tail::Broken(error),
            }
        }
        Tail::Unread
    }

    /// Parses one command of a client that has yet to say who it is.
    pub(crate) fn parse_one(&mut self, bytes: &[u8], limits: &RequestLimits) -> Tail {
        self.ends.clear();
        self.located.clear();
        if self.args.is_empty() {
            self.args.push(Args::new());
        }
        let parsed = self
            .args
            .first_mut()
            .map(|args| request::parse(bytes, limits, args));
        match parsed {
            Some(Ok(Parsed::Command { consumed })) => {
                self.ends.push(consumed);
                Tail::Unread
            }
            Some(Ok(Parsed::Incomplete { needed })) => Tail::Incomplete { needed },
            Some(Err(error)) => Tail::Broken(error),
            None => Tail::Unread,
        }
    }

    /// What was parsed of the first request, which was not executed: to be handed in with the same bytes.
    pub(crate) fn begun(&mut self) -> Option<Box<Args>> {
        let args = self.args.first_mut()?;
        (args.len() >= KEPT_ARGS_MIN).then(|| Box::new(std::mem::take(args)))
    }

    /// The commands: their arguments and their own bytes of `bytes`, which was parsed.
    #[expect(
        clippy::indexing_slicing,
        reason = "ends are of these bytes, ascending"
    )]
    pub(crate) fn commands<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (&'a Args, &'a [u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let spans = self.ends.iter().zip(starts);
        let commands = self.args.iter().zip(spans);
        commands.map(|(args, (&end, start))| (args, &bytes[start..end]))
    }

    /// How many commands were parsed.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Derives from what is most often the key, the second argument, what executing it will need.
    pub(crate) fn locate(&mut self, bytes: &[u8], mut locate: impl FnMut(&[u8]) -> Located) {
        let mut located = std::mem::take(&mut self.located);
        located.extend(self.commands(bytes).map(|(args, source)| {
            let key = (args.len() > 1).then(|| args.get(1, source));
            key.map(&mut locate)
        }));
        self.located = located;
    }

    /// What was derived from each command, in order; nothing if [`Batch::locate`] was not called.
    pub(crate) fn located(&self) -> &[Option<Located>] {
        &self.located
    }
}

/// Whether a request begins that announces 1000 arguments or more.
fn may_be_large(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'*') && bytes.get(4).is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use ephesus_wire::Slot;

    use super::*;

    fn names(batch: &Batch, bytes: &[u8]) -> Vec<String> {
        let text = |(args, source): (&Args, &[u8])| {
            let words: Vec<_> = args.iter(source).map(String::from_utf8_lossy).collect();
            words.join(" ")
        };
        batch.commands(bytes).map(text).collect()
    }

    #[test]
    fn commands_of_both_forms_keep_their_own_bytes() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nSET b \"x y\"\r\n*0\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3";
        let mut batch = Batch::default();
        assert!(matches!(batch.parse(bytes, None), Tail::Incomplete { .. }));
        assert_eq!(names(&batch, bytes), ["GET a", "SET b x y", "", "PING"]);
        let mut keys = Vec::new();
        batch.locate(bytes, |key| {
            keys.push(key.to_vec());
            Located {
                slot: Slot(0),
                hash: keys.len() as u64,
            }
        });
        assert_eq!(keys, [b"a", b"b"]);
        let located = batch.located().iter().map(|l| l.map(|l| l.hash));
        assert_eq!(located.collect::<Vec<_>>(), [Some(1), Some(2), None, None]);
        let sources: Vec<usize> = batch.commands(bytes).map(|(_, s)| s.len()).collect();
        assert_eq!(sources, [20, 13, 4, 14]);
    }

    #[test]
    fn what_was_parsed_before_broken_bytes_is_kept() {
        let bytes = b"PING\r\n*1\r\n$x\r\n";
        let mut batch = Batch::default();
        assert_eq!(
            batch.parse(bytes, None),
            Tail::Broken(RequestError::BulkLength)
        );
        assert_eq!(names(&batch, bytes), ["PING"]);
    }

    #[test]
    fn long_pipelines_are_parsed_in_parts_and_leave_nothing_behind() {
        let bytes = b"PING\r\n".repeat(COMMANDS_MAX + 2);
        let mut batch = Batch::default();
        assert_eq!(batch.parse(&bytes, None), Tail::Unread);
        assert_eq!(names(&batch, &bytes).len(), COMMANDS_MAX);
        assert_eq!(batch.parse(b"GET c\r\n", None), Tail::Unread);
        assert_eq!(names(&batch, b"GET c\r\n"), ["GET c"]);
    }

    /// `EXISTS` of so many keys.
    fn large(keys: usize) -> Vec<u8> {
        let mut request = format!("*{}\r\n$6\r\nEXISTS\r\n", keys + 1).into_bytes();
        request.extend(b"$1\r\nk\r\n".repeat(keys));
        request
    }

    #[test]
    fn what_was_parsed_of_a_large_request_is_kept_until_it_is_executed() {
        let mut batch = Batch::default();
        let bytes = large(2_000);
        let part = bytes.len() - 7;
        assert!(matches!(
            batch.parse(&bytes[..part], None),
            Tail::Incomplete { .. }
        ));
        let begun = batch.begun().expect("most of it");
        assert_eq!(begun.len(), 2_000);
        let mut others = bytes.clone();
        others[..part - 20].fill(b'?');
        assert_eq!(batch.parse(&others, Some(begun)), Tail::Unread);
        assert_eq!(batch.len(), 1);
        let whole = batch.begun().expect("all of it");
        assert_eq!(batch.parse(&others, Some(whole)), Tail::Unread);
        assert_eq!(names(&batch, &bytes)[0].split(' ').count(), 2_001);
    }

    #[test]
    fn nothing_is_kept_of_small_requests() {
        let mut batch = Batch::default();
        let bytes = large(200);
        assert!(matches!(
            batch.parse(&bytes[..bytes.len() - 1], None),
            Tail::Incomplete { .. }
        ));
        assert!(batch.begun().is_none());
    }

    #[test]
    fn a_large_request_is_the_first_of_its_batch() {
        let mut batch = Batch::default();
        let bytes = [b"PING\r\n".to_vec(), large(999), large(2)].concat();
        assert_eq!(batch.parse(&bytes, None), Tail::Unread);
        assert_eq!(names(&batch, &bytes), ["PING"]);
        assert_eq!(batch.parse(&bytes[6..], None), Tail::Unread);
        assert_eq!(batch.len(), 2);
    }
}
