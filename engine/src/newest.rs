//! What all shards of a node share and seldom changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What grows whenever something is not as it was.
pub trait Versioned {
    fn version(&self) -> u64;
}

/// The newest `T`. Whoever executes commands looks at the version alone, and takes the lock once that is another one.
#[derive(Debug, Default)]
pub struct Newest<T> {
    version: AtomicU64,
    /// Shards wait for it on the path of commands: it is held for as long as it takes to copy a pointer.
    newest: Mutex<Arc<T>>,
    /// Held by whoever makes the next one, however long that takes.
    changing: Mutex<()>,
}

impl<T: Versioned> Newest<T> {
    #[must_use]
    pub fn new(first: T) -> Newest<T> {
        Newest {
            version: AtomicU64::new(first.version()),
            newest: Mutex::new(Arc::new(first)),
            changing: Mutex::default(),
        }
    }

    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&lock(&self.newest))
    }

    /// Puts in its place what `make` makes of it; nobody else changes it meanwhile.
    ///
    /// # Errors
    /// Of `make`: nothing has changed.
    pub fn change<R, E>(&self, make: impl FnOnce(&T) -> Result<(T, R), E>) -> Result<R, E> {
        let _changing = lock(&self.changing);
        let (next, made) = make(&self.get())?;
        let version = next.version();
        let before = std::mem::replace(&mut *lock(&self.newest), Arc::new(next));
        self.version.store(version, Ordering::Release);
        // Large ones take long, and nobody waits for it.
        drop(before);
        Ok(made)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counted(u64);

    impl Versioned for Counted {
        fn version(&self) -> u64 {
            self.0
        }
    }

    /// A shard that reads meanwhile would wait for whoever changes.
    #[test]
    fn the_one_before_is_read_while_another_is_made() {
        let newest = Newest::new(Counted(1));
        let changed: Result<(), ()> = newest.change(|before| {
            assert_eq!((newest.get().0, newest.version()), (1, 1));
            Ok((Counted(before.0 + 1), ()))
        });
        assert_eq!(changed, Ok(()));
        assert_eq!((newest.get().0, newest.version()), (2, 2));
        assert_eq!(newest.change(|_| Err::<(Counted, ()), _>(7)), Err(7));
        assert_eq!((newest.get().0, newest.version()), (2, 2));
    }
}
