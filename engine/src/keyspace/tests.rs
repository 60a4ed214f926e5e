//! The keyspace against simple models, with a log whose writes the tests complete.

mod growth;
mod model;
mod sequences;
mod tape;
