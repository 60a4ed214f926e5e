//! Keeping the kernel from backing new memory with huge pages for a while.
//!
//! Where a hypervisor has to provide the memory first, the first touch of a huge page stops a thread for
//! several ms, once for each; small pages cost more in all, and never that much at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static HOLDERS: Mutex<Holders> = Mutex::new(Holders {
    count: 0,
    were_disabled: false,
});

/// Whether there are holders, for those who touch memory in pieces of their own choice.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);

struct Holders {
    count: usize,
    /// What the flag of this process was without holders.
    were_disabled: bool,
}

impl Holders {
    /// What the flag becomes, if it changes.
    fn add(&mut self, are_disabled: impl FnOnce() -> bool) -> Option<bool> {
        self.count += 1;
        if self.count > 1 {
            return None;
        }
        self.were_disabled = are_disabled();
        Some(true)
    }

    /// What the flag becomes, if it changes.
    fn remove(&mut self) -> Option<bool> {
        self.count -= 1;
        (self.count == 0).then_some(self.were_disabled)
    }
}

/// While there is one of these, memory that this process touches for the first time gets small pages.
/// What has huge ones keeps them, and `khugepaged` joins small ones later.
#[derive(Debug)]
pub struct SmallPages(());

impl SmallPages {
    #[must_use]
    pub fn begin() -> SmallPages {
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(disabled) = holders.add(are_disabled) {
            disable_huge_pages(disabled);
            ARE_WANTED.store(true, Ordering::Relaxed);
        }
        SmallPages(())
    }

    /// Whether somebody has begun and not ended.
    #[must_use]
    pub fn are_wanted() -> bool {
        ARE_WANTED.load(Ordering::Relaxed)
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        let mut holders = HOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(disabled) = holders.remove() {
            ARE_WANTED.store(false, Ordering::Relaxed);
            disable_huge_pages(disabled);
        }
    }
}

#[cfg(not(miri))]
fn are_disabled() -> bool {
    // SAFETY: reads a flag of this process.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 }
}

/// Without effect where the kernel refuses: pages are a matter of speed only.
#[cfg(not(miri))]
fn disable_huge_pages(disabled: bool) {
    // SAFETY: changes a flag of this process and touches none of its memory.
    unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            libc::c_ulong::from(disabled),
            0,
            0,
            0,
        );
    }
}

#[cfg(miri)]
fn are_disabled() -> bool {
    false
}

#[cfg(miri)]
fn disable_huge_pages(_disabled: bool) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_comes_back_with_the_last_holder() {
        for were_disabled in [false, true] {
            let mut holders = Holders {
                count: 0,
                were_disabled: !were_disabled,
            };
            assert_eq!(holders.add(|| were_disabled), Some(true));
            assert_eq!(holders.add(|| unreachable!("it was asked")), None);
            assert_eq!(holders.remove(), None);
            assert_eq!(holders.remove(), Some(were_disabled));
        }
    }

    #[test]
    fn the_kernel_is_told() {
        // Other tests may hold some, too, so only what is while this one does can be seen.
        let small = SmallPages::begin();
        assert!(SmallPages::are_wanted());
        assert!(cfg!(miri) || are_disabled());
        drop(small);
    }
}
