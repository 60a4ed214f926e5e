//! Keeping the kernel from backing new memory with huge pages for a while.
//!
//! Where a hypervisor has to provide the memory first, the first touch of a huge page stops a thread for
//! several ms, once for each; small pages cost more in all, and never that much at a time.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the guard is there, for those who touch memory in pieces of their own choice.
static ARE_WANTED: AtomicBool = AtomicBool::new(false);

/// While it is there, memory that this process touches for the first time gets small pages; one at a time.
/// What has huge ones keeps them, and `khugepaged` joins small ones later.
#[derive(Debug)]
pub struct SmallPages {
    /// What the flag of this process was before.
    were_disabled: bool,
}

impl SmallPages {
    #[must_use]
    pub fn begin() -> SmallPages {
        let were_disabled = are_disabled();
        disable_huge_pages(true);
        ARE_WANTED.store(true, Ordering::Relaxed);
        SmallPages { were_disabled }
    }

    #[must_use]
    pub fn are_wanted() -> bool {
        ARE_WANTED.load(Ordering::Relaxed)
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        ARE_WANTED.store(false, Ordering::Relaxed);
        disable_huge_pages(self.were_disabled);
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
    fn the_kernel_is_told_and_has_its_flag_back() {
        let before = are_disabled();
        let small = SmallPages::begin();
        assert!(SmallPages::are_wanted());
        assert!(cfg!(miri) || are_disabled());
        drop(small);
        assert_eq!(are_disabled(), before);
    }
}
