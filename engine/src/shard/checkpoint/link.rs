//! What a checkpointer needs of the way to a store.

use crate::image::{StoreClient, StoreReply, StoreRequest, TrySendError};

/// One shard's way to one store: neither end ever waits for the other.
pub trait StoreLink {
    /// Hands a request over, or returns it.
    ///
    /// # Errors
    /// [`TrySendError::Full`]: [`StoreReply::Capacity`] follows when there is room.
    fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError>;

    /// The next reply, if there is one.
    fn try_recv(&self) -> Option<StoreReply>;

    /// Whether there is a reply.
    fn has_reply(&self) -> bool;

    /// Grows while the store works, whoever it works for.
    fn steps(&self) -> u64;
}

impl StoreLink for StoreClient {
    fn try_send(&self, request: StoreRequest) -> Result<(), TrySendError> {
        StoreClient::try_send(self, request)
    }

    fn try_recv(&self) -> Option<StoreReply> {
        StoreClient::try_recv(self)
    }

    fn has_reply(&self) -> bool {
        !self.replies().is_empty()
    }

    fn steps(&self) -> u64 {
        StoreClient::steps(self)
    }
}
