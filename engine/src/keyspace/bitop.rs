//! BITOP: values combined bit by bit, the shorter ones with zeros behind them.

use super::strings::{Outcome, check_sizes};
use super::{Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::ArgList;
use ephesus_wire::resp::reply;

/// Bytes of all values of one command: it is one turn, and may name a large value again and again.
const VALUES_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(name: &[u8]) -> Result<Operation, ClientError> {
        const NAMES: [(&[u8], Operation); 4] = [
            (b"and", Operation::And),
            (b"or", Operation::Or),
            (b"xor", Operation::Xor),
            (b"not", Operation::Not),
        ];
        let mut names = NAMES.into_iter();
        let found = names.find(|(known, _)| name.eq_ignore_ascii_case(known));
        found
            .map(|(_, operation)| operation)
            .ok_or(ClientError::Syntax)
    }

    /// Takes another value into what the ones before it came to. That takes as long as the value is, or once as long as
    /// the result: keys that are not there may be named any number of times.
    fn take_in(self, result: &mut Combined, value: &[u8]) {
        let Combined { bytes, zeros_from } = result;
        if bytes.len() < value.len() {
            bytes.resize(value.len(), 0);
        }
        let (both, alone) = bytes.split_at_mut(value.len());
        match self {
            Operation::And => {
                combine(both, value, |byte, other| byte & other);
                if let Some(ends) = zeros_from.checked_sub(value.len()) {
                    alone.iter_mut().take(ends).for_each(|byte| *byte = 0);
                    *zeros_from = value.len();
                }
            }
            Operation::Or | Operation::Not => combine(both, value, |byte, other| byte | other),
            Operation::Xor => combine(both, value, |byte, other| byte ^ other),
        }
    }
}

/// What values came to so far.
struct Combined {
    bytes: Vec<u8>,
    /// From there on `AND` has left zeros only.
    zeros_from: usize,
}

/// One loop for each operation, of which the compiler makes one over many bytes at once.
fn combine(bytes: &mut [u8], others: &[u8], each: impl Fn(u8, u8) -> u8) {
    for (byte, other) in bytes.iter_mut().zip(others) {
        *byte = each(*byte, *other);
    }
}

impl Keyspace {
    /// `BITOP operation destination key [key ...]`.
    pub(super) fn bitop<A: ArgList + ?Sized>(
        &mut self,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let operation = Operation::parse(args.arg(1))?;
        if operation == Operation::Not && args.len() != 4 {
            return Err(ClientError::BitopNot);
        }
        check_sizes(args.arg(2), &[])?;
        let mut result: Option<Combined> = None;
        let mut bytes = 0;
        self.each_key(args, (3, 1), |keyspace, _, key| {
            let value = keyspace.read(key, reply).map(|entry| entry.value);
            let value = value.unwrap_or_default();
            bytes += value.len();
            if bytes > VALUES_BYTES_MAX {
                return Err(ClientError::ValuesTooLarge(VALUES_BYTES_MAX));
            }
            match &mut result {
                None => {
                    result = Some(Combined {
                        bytes: value.to_vec(),
                        zeros_from: value.len(),
                    });
                }
                Some(result) => operation.take_in(result, value),
            }
            Ok(())
        })?;
        let mut result = result.map_or_else(Vec::new, |result| result.bytes);
        if operation == Operation::Not {
            result.iter_mut().for_each(|byte| *byte = !*byte);
        }
        self.note_work(bytes);
        let destination = self.key(args.arg(2));
        if !result.is_empty() {
            self.put(&destination, &result, 0, reply);
        } else if self.look_up(&destination, reply).is_some() {
            self.delete(&destination, reply);
        }
        reply::integer(reply.out, result.len() as i64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Of values of any lengths, in any order.
        #[test]
        fn values_are_combined_as_one_byte_after_another(
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..7),
        ) {
            for operation in [Operation::And, Operation::Or, Operation::Xor] {
                let mut result = Combined {
                    bytes: values[0].clone(),
                    zeros_from: values[0].len(),
                };
                values[1..].iter().for_each(|value| operation.take_in(&mut result, value));
                let longest = values.iter().map(Vec::len).max().unwrap_or(0);
                let byte = |at: usize| {
                    let bytes = values.iter().map(|value| value.get(at).copied().unwrap_or(0));
                    bytes.reduce(|one, other| match operation {
                        Operation::And => one & other,
                        Operation::Or | Operation::Not => one | other,
                        Operation::Xor => one ^ other,
                    })
                };
                let expected: Vec<u8> = (0..longest).filter_map(byte).collect();
                prop_assert_eq!(&result.bytes, &expected);
            }
        }
    }
}
