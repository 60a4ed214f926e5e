//! Sessions of HOTKEYS. Which shards are in one is decided here for all of them at once, and they follow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephesus_wire::ShardId;

use crate::by_shard::ByShard;
use crate::command::error::ClientError;
use crate::command::hotkeys::Wanted;

/// What a shard looks at, or has looked at.
#[derive(Clone, Debug)]
pub struct Session {
    /// Grows with every session of the node.
    pub number: u64,
    pub wanted: Arc<Wanted>,
    /// Unix ms.
    pub started_ms: u64,
    /// When it was stopped.
    pub stopped_ms: Option<u64>,
}

impl Session {
    /// When it ends by itself; never: `u64::MAX`.
    #[must_use]
    pub fn until_ms(&self) -> u64 {
        let duration_ms = self.wanted.duration_ms;
        duration_ms.map_or(u64::MAX, |ms| self.started_ms.saturating_add(ms))
    }

    fn is_active(&self, now_ms: u64) -> bool {
        self.stopped_ms.is_none() && now_ms < self.until_ms()
    }
}

/// The last session of each shard, unless it was forgotten.
#[derive(Debug)]
pub struct Sessions(Mutex<(u64, ByShard<Option<Session>>)>);

impl Sessions {
    #[must_use]
    pub fn new(shards: u16) -> Sessions {
        Sessions(Mutex::new((0, (0..shards).map(|_| None).collect())))
    }

    fn lock(&self) -> MutexGuard<'_, (u64, ByShard<Option<Session>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one in these shards.
    ///
    /// # Errors
    /// One of them is in another one, or what is wrong with what is `wanted`.
    pub fn start(
        &self,
        shards: &[ShardId],
        now_ms: u64,
        wanted: impl FnOnce() -> Result<Wanted, ClientError>,
    ) -> Result<(), ClientError> {
        let (last, sessions) = &mut *self.lock();
        if is_active(sessions, shards, now_ms) {
            let text = "hotkey tracking session already in progress";
            return Err(ClientError::Hotkeys(text));
        }
        let wanted = Arc::new(wanted()?);
        *last += 1;
        for shard in shards {
            sessions[*shard] = Some(Session {
                number: *last,
                wanted: Arc::clone(&wanted),
                started_ms: now_ms,
                stopped_ms: None,
            });
        }
        Ok(())
    }

    /// Stops what is in progress in these shards; false: nothing is.
    pub fn stop(&self, shards: &[ShardId], now_ms: u64) -> bool {
        let (_, sessions) = &mut *self.lock();
        let was_active = is_active(sessions, shards, now_ms);
        for shard in shards {
            if let Some(session) = &mut sessions[*shard]
                && session.is_active(now_ms)
            {
                session.stopped_ms = Some(now_ms);
            }
        }
        was_active
    }

    /// Forgets what was found in these shards.
    ///
    /// # Errors
    /// A session is in progress.
    pub fn reset(&self, shards: &[ShardId], now_ms: u64) -> Result<(), ClientError> {
        let (_, sessions) = &mut *self.lock();
        if is_active(sessions, shards, now_ms) {
            let text = "hotkey tracking session in progress, stop tracking first";
            return Err(ClientError::Hotkeys(text));
        }
        shards.iter().for_each(|shard| sessions[*shard] = None);
        Ok(())
    }

    /// That of one shard.
    #[must_use]
    pub fn of(&self, shard: ShardId) -> Option<Session> {
        self.lock().1[shard].clone()
    }
}

fn is_active(sessions: &ByShard<Option<Session>>, shards: &[ShardId], now_ms: u64) -> bool {
    let mut sessions = shards.iter().filter_map(|shard| sessions[*shard].as_ref());
    sessions.any(|session| session.is_active(now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(duration_ms: Option<u64>) -> Wanted {
        let mut wanted =
            Wanted::parse(&["hotkeys", "start", "metrics", "1", "cpu"][..]).expect("valid");
        wanted.duration_ms = duration_ms;
        wanted
    }

    #[test]
    fn one_of_many_who_start_at_once_does() {
        let sessions = Sessions::new(3);
        let all = [0, 1, 2].map(ShardId);
        for round in 0..200 {
            let started = std::thread::scope(|scope| {
                let start = || sessions.start(&all, round, || Ok(wanted(None))).is_ok();
                let starting = [(); 4].map(|()| scope.spawn(start));
                starting.map(|thread| usize::from(thread.join().expect("no panic")))
            });
            assert_eq!(started.iter().sum::<usize>(), 1);
            let numbers = all.map(|shard| sessions.of(shard).expect("begun").number);
            assert_eq!(numbers, [round + 1; 3]);
            assert!(sessions.stop(&all, round) && !sessions.stop(&all, round));
        }
    }

    #[test]
    fn shards_may_be_in_sessions_of_their_own() {
        let sessions = Sessions::new(2);
        let (first, second, all) = ([ShardId(0)], [ShardId(1)], [0, 1].map(ShardId));
        let start = |shards: &[ShardId], now_ms, ms| {
            sessions.start(shards, now_ms, || Ok(wanted(ms))).is_ok()
        };
        assert!(start(&first, 10, Some(5)) && start(&second, 10, None));
        assert!(!start(&all, 12, None) && sessions.reset(&first, 12).is_err());
        // That of the first is over by itself.
        assert!(start(&first, 15, None) && !start(&all, 15, None));
        assert!(sessions.stop(&all, 16) && !sessions.stop(&first, 16));
        assert!(sessions.reset(&second, 16).is_ok());
        let numbers = all.map(|shard| sessions.of(shard).map(|session| session.number));
        assert_eq!(numbers, [Some(3), None]);
        assert!(start(&all, 17, None));
    }
}
