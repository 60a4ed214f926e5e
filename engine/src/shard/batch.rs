//! Pipelined commands, parsed ahead of their execution so that their cache misses overlap.

use ephesus_wire::resp::request::{self, Args, Parsed, RequestError, RequestLimits};

/// Most commands that are parsed before the first of them is executed.
const COMMANDS_MAX: usize = 32;

/// What stands behind the parsed commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// Nothing, or commands that were not looked at yet.
    Unread,
    /// A command that needs a buffer of so many bytes, counted from its start.
    Incomplete { needed: usize },
    /// Bytes that break the protocol.
    Broken(RequestError),
}

/// Commands at the start of a buffer; reused from buffer to buffer.
#[derive(Debug, Default)]
pub(super) struct Batch {
    args: Vec<Args>,
    /// Where each command ends.
    ends: Vec<usize>,
}

impl Batch {
    /// Parses what is at the start of `bytes`.
    pub(super) fn parse(&mut self, bytes: &[u8]) -> Behind {
        self.ends.clear();
        let mut at = 0;
        while at < bytes.len() && self.ends.len() < COMMANDS_MAX {
            let index = self.ends.len();
            if index == self.args.len() {
                self.args.push(Args::new());
            }
            match request::parse(&bytes[at..], &RequestLimits::DEFAULT, &mut self.args[index]) {
                Ok(Parsed::Command { consumed }) => {
                    at += consumed;
                    self.ends.push(at);
                }
                Ok(Parsed::Incomplete { needed }) => return Behind::Incomplete { needed },
                Err(error) => return Behind::Broken(error),
            }
        }
        Behind::Unread
    }

    /// The commands: their arguments and their own bytes of `bytes`, which was parsed.
    pub(super) fn commands<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (&'a Args, &'a [u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let spans = self.ends.iter().zip(starts);
        let commands = self.args.iter().zip(spans);
        commands.map(|(args, (&end, start))| (args, &bytes[start..end]))
    }

    /// How many commands were parsed.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// What is most often the key: the second argument of every command that has one.
    pub(super) fn keys<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let commands = self.commands(bytes);
        let keyed = commands.filter(|(args, _)| args.len() > 1);
        keyed.map(|(args, source)| args.get(1, source))
    }
}

#[cfg(test)]
mod tests {
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
        assert!(matches!(batch.parse(bytes), Behind::Incomplete { .. }));
        assert_eq!(names(&batch, bytes), ["GET a", "SET b x y", "", "PING"]);
        assert_eq!(batch.keys(bytes).collect::<Vec<_>>(), [b"a", b"b"]);
        let sources: Vec<usize> = batch.commands(bytes).map(|(_, s)| s.len()).collect();
        assert_eq!(sources, [20, 13, 4, 14]);
    }

    #[test]
    fn what_was_parsed_before_broken_bytes_is_kept() {
        let bytes = b"PING\r\n*1\r\n$x\r\n";
        let mut batch = Batch::default();
        assert_eq!(batch.parse(bytes), Behind::Broken(RequestError::BulkLength));
        assert_eq!(names(&batch, bytes), ["PING"]);
    }

    #[test]
    fn long_pipelines_are_parsed_in_parts_and_leave_nothing_behind() {
        let bytes = b"PING\r\n".repeat(COMMANDS_MAX + 2);
        let mut batch = Batch::default();
        assert_eq!(batch.parse(&bytes), Behind::Unread);
        assert_eq!(names(&batch, &bytes).len(), COMMANDS_MAX);
        assert_eq!(batch.parse(b"GET c\r\n"), Behind::Unread);
        assert_eq!(names(&batch, b"GET c\r\n"), ["GET c"]);
    }
}
