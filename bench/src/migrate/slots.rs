use ephesus_wire::limits::SLOTS;

use crate::prefill;

/// Slots, as a set.
#[derive(Clone, Debug)]
pub(super) struct SlotSet(Vec<bool>);

impl SlotSet {
    /// Those of ranges, whose ends belong to them.
    pub(super) fn of_ranges(ranges: impl IntoIterator<Item = (u16, u16)>) -> Self {
        let mut set = SlotSet(vec![false; usize::from(SLOTS)]);
        for (first, last) in ranges {
            set.0[usize::from(first)..=usize::from(last)].fill(true);
        }
        set
    }

    /// Whether a key's slot is one of them.
    pub(super) fn has_key(&self, index: u64) -> bool {
        self.0[prefill::slot_of_key(index)]
    }
}
