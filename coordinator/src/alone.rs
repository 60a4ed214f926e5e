//! Whether the coordinator in this process is the only one there is, for the node around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// While it is so, nobody else can count the node as failed and give its partitions away: it needs no
/// lease. The coordinator itself says so, and takes it back before it proposes another coordinator.
#[derive(Clone, Debug, Default)]
pub struct Alone(Arc<AtomicBool>);

impl Alone {
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
