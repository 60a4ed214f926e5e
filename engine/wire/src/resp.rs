//! The Redis protocol: requests parsed in place, replies written into a buffer, replies decoded.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

pub mod reply;
pub mod request;
pub mod value;

pub use reply::Protocol;
pub use request::{Args, Parsed, RequestError, RequestLimits, parse};
pub use value::Value;
