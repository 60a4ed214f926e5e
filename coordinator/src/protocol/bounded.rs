//! Lists of messages with more in them than there can be are refused before they take room.

use std::fmt;
use std::marker::PhantomData;

use ephesus_wire::limits::{SLOTS, STREAM_OPENS_MAX};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A list of what a node has at most once for each partition: copies, or migrations, which are under way one at a time.
pub(super) fn by_partition<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    at_most(SLOTS.into(), deserializer)
}

/// A list of migrations whose streams share a connection.
pub(crate) fn by_stream<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    at_most(STREAM_OPENS_MAX as usize, deserializer)
}

fn at_most<'de, D, T>(max: usize, deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T>(usize, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "at most {} entries", self.0)
        }

        // What is told to come takes no room before it has.
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(entry) = seq.next_element()? {
                if list.len() == self.0 {
                    return Err(de::Error::invalid_length(list.len() + 1, &self));
                }
                list.push(entry);
            }
            Ok(list)
        }
    }
    deserializer.deserialize_seq(List(max, PhantomData))
}
