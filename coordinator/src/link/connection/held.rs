//! What all links of a thread hold together. Each has bounds of its own, and there may be thousands: when all hold too
//! much, the one that holds most ends.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::{LinkError, Shared};

thread_local! {
    static LINKS: Links = Links::default();
}

#[derive(Default)]
struct Links {
    bytes: Cell<usize>,
    open: RefCell<Vec<Weak<Shared>>>,
}

impl Links {
    fn replace(&self, before: usize, now: usize) -> usize {
        let bytes = self.bytes.get() - before + now;
        self.bytes.set(bytes);
        bytes
    }

    fn largest(&self) -> Option<Rc<Shared>> {
        let open = self.open.borrow();
        let open = open.iter().filter_map(Weak::upgrade);
        open.max_by_key(|link| link.held.get())
    }
}

/// Bytes that the links of this thread hold.
#[cfg(test)]
pub(in crate::link) fn bytes() -> usize {
    LINKS.with(|links| links.bytes.get())
}

/// A link that is counted from now on.
pub(super) fn enter(link: &Rc<Shared>) {
    LINKS.with(|links| {
        let mut open = links.open.borrow_mut();
        open.retain(|link| link.strong_count() > 0);
        open.push(Rc::downgrade(link));
    });
    link.count();
}

impl Shared {
    /// Counts what the link holds, after that has changed: bytes that have come and were not taken, and its own
    /// bytes that wait to be written. Frames that many links write are kept once.
    pub(super) fn count(&self) {
        let held = self.inbound.borrow().held_bytes() + self.outbound.borrow().own_bytes();
        let before = self.held.replace(held);
        let max = self.options.all_bytes_max;
        LINKS.with(|links| {
            let mut bytes = links.replace(before, held);
            while held > before && bytes > max {
                let Some(largest) = links.largest() else {
                    return;
                };
                largest.end(LinkError::Crowded { max });
                if links.bytes.get() == bytes {
                    return;
                }
                bytes = links.bytes.get();
            }
        });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // When the thread ends they may be gone.
        let _ = LINKS.try_with(|links| links.replace(self.held.get(), 0));
    }
}
