//! The newest view of a node, which others look at while it moves on.
//!
//! A view is large and a delta small. Whoever was given a view holds on to it for a moment only; so one that
//! nobody has any more is brought up to date by the deltas since, instead of copying the newest one for each.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::view::{Delta, UpdateError, View};

/// Views before the newest that are kept: as many as others hold at the same time, as a rule.
const SPARES_MAX: usize = 3;

/// The newest view, and what makes the next one of it.
#[derive(Debug, Default)]
pub(super) struct Views {
    newest: Option<Arc<View>>,
    /// Earlier ones, by ascending version.
    spares: VecDeque<Arc<View>>,
    /// What led from the oldest spare to the newest view, without gaps.
    deltas: VecDeque<Delta>,
}

impl Views {
    pub(super) fn newest(&self) -> Option<&Arc<View>> {
        self.newest.as_ref()
    }

    /// The version of the newest; 0: there is none.
    pub(super) fn version(&self) -> u64 {
        self.newest.as_ref().map_or(0, |view| view.version())
    }

    /// Takes a view as a whole.
    pub(super) fn replace(&mut self, view: View) {
        *self = Views {
            newest: Some(Arc::new(view)),
            ..Views::default()
        };
    }

    /// Moves on to the delta's version.
    ///
    /// # Errors
    /// [`UpdateError`]: nothing has changed.
    pub(super) fn update(&mut self, delta: Delta) -> Result<(), UpdateError> {
        let (from, held) = (delta.from, self.version());
        if from != held {
            return Err(UpdateError::Base { from, held });
        }
        let copy = |views: &Views| Some(Arc::new(View::clone(views.newest()?)));
        let next = self.take_spare().or_else(|| copy(self));
        let mut next = next.ok_or(UpdateError::Base { from, held })?;
        // Nobody else has it, and so it is not copied.
        Arc::make_mut(&mut next).update(delta.clone())?;
        self.spares.extend(self.newest.replace(next));
        self.deltas.push_back(delta);
        if self.spares.len() > SPARES_MAX {
            self.spares.pop_front();
        }
        self.forget_deltas();
        Ok(())
    }

    /// The same, whatever version the delta is for: a bug.
    pub(super) fn update_unchecked(&mut self, delta: Delta) -> Result<(), UpdateError> {
        (self.spares, self.deltas) = (VecDeque::new(), VecDeque::new());
        let (from, held) = (delta.from, self.version());
        let newest = self.newest.as_mut();
        let newest = newest.ok_or(UpdateError::Base { from, held })?;
        Arc::make_mut(newest).update_unchecked(delta)
    }

    /// A view that nobody has any more, brought up to date.
    fn take_spare(&mut self) -> Option<Arc<View>> {
        let mut spares = self.spares.iter_mut();
        let place = spares.position(|spare| Arc::get_mut(spare).is_some())?;
        let mut spare = self.spares.remove(place)?;
        let view = Arc::get_mut(&mut spare)?;
        let version = view.version();
        for delta in self.deltas.iter().filter(|delta| delta.from >= version) {
            view.update(delta.clone()).ok()?;
        }
        Some(spare)
    }

    /// Forgets what no spare needs.
    fn forget_deltas(&mut self) {
        let oldest = self.spares.front().map_or(u64::MAX, |view| view.version());
        while self.deltas.front().is_some_and(|delta| delta.to <= oldest) {
            self.deltas.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
