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

    /// Takes another value into what the ones before it came to.
    fn take_in(self, result: &mut Vec<u8>, value: &[u8]) {
        if result.len() < value.len() {
            result.resize(value.len(), 0);
        }
        let (both, alone) = result.split_at_mut(value.len());
        match self {
            Operation::And => {
                combine(both, value, |byte, other| byte & other);
                alone.fill(0);
            }
            Operation::Or | Operation::Not => combine(both, value, |byte, other| byte | other),
            Operation::Xor => combine(both, value, |byte, other| byte ^ other),
        }
    }
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
        let mut result: Option<Vec<u8>> = None;
        let mut bytes = 0;
        self.each_key(args, (3, 1), |keyspace, _, key| {
            let value = keyspace.read(key, reply).map(|entry| entry.value);
            let value = value.unwrap_or_default();
            bytes += value.len();
            if bytes > VALUES_BYTES_MAX {
                return Err(ClientError::ValuesTooLarge(VALUES_BYTES_MAX));
            }
            match &mut result {
                None => result = Some(value.to_vec()),
                Some(result) => operation.take_in(result, value),
            }
            Ok(())
        })?;
        let mut result = result.unwrap_or_default();
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
