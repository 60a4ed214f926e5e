//! Whether the coordinator in this process is the only one there is, and the node around it the only one, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// While it is so, there is nobody whom the node's partitions could be given to: it needs no lease. The coordinator
/// itself says so. Among several nodes it counts its own one as failed like any other that stands still.
#[derive(Clone, Debug, Default)]
pub struct SoleNode(Arc<AtomicBool>);

impl SoleNode {
    /// Whether it is so at this moment.
    #[inline]
    #[must_use]
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, is_so: bool) {
        self.0.store(is_so, Ordering::Release);
    }
}
