//! Images: each copy's checkpoint inside its partition's sled tree, behind the log.
//!
//! ```text
//! shard --StoreClient--> store thread --ImageWriter--> ImageStore (SledStore)
//!                                       recovery --reader--^
//! ```
//!
//! One tree per partition; an image belongs to a *copy*, (partition, epoch), so that a staging copy's
//! image never displaces that of the copy it is made from on the same node.
//!
//! **Invariants.** A copy has at most one manifest, and every block it counts was durable before it was
//! written. Blocks of other generations are garbage and never read. Nothing here is on the request path:
//! the log is the durability promise.

pub mod extent;
pub mod manifest;
pub mod reader;
pub mod request;
pub mod sled_store;
pub mod store;
pub mod thread;
pub mod writer;

mod layout;
mod open_guard;
mod rebuild;
mod reclaim;
mod removal;
mod room;
mod scheduling;
mod waiting;
mod worker;

#[cfg(any(test, feature = "planted"))]
#[expect(clippy::indexing_slicing, reason = "a test's equipment")]
pub mod fault;

pub use extent::ExtentError;
pub use manifest::{Generation, ImageId, Manifest, ManifestError};
pub use open_guard::end_process_on_panics;
pub use reader::{ReadError, load, manifests, read, verify};
pub use rebuild::least_live_bytes;
#[cfg(any(test, feature = "planted"))]
pub use removal::drop_copy;
pub use removal::{collect_garbage, drop_copies};
pub use request::{StoreFault, StoreReply, StoreRequest, TrySendError};
pub use sled_store::{SledStore, open_stores};
#[cfg(test)]
pub use store::ROOM;
pub use store::{
    BLOCK_BYTES_MAX, DbId, IMAGE_ROOM, ImageStore, STORES_MAX, StoreError, Visit, check_room,
};
pub use thread::{REQUESTS_MAX, StoreClient, StoreThread, Wake};
pub use waiting::{wait_for_room, waits_for_room};
pub use writer::ImageWriter;

#[cfg(test)]
mod tests;
