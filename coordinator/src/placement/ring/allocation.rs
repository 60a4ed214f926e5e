//! Cassandra's token allocation that evens out (CASSANDRA-7032, `NoReplicationTokenAllocator`), at the grain of partitions.
//!
//! Cassandra keeps tokens; here the owners of now say where they are: neighbours that have one owner are a range, at the end
//! of which it has a token. So who is there already keeps its ranges, but for what is taken from it:
//!
//! - A place that joins splits ranges of those that have most for their weight. These are as many as bring it and them to
//!   the same load, at most one for each of its tokens; each gives of its longest ranges their beginnings.
//! - What has left, or has no owner, goes to whoever has the partition behind.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::field::Field;
use super::super::round_robin;

/// A place: what it has.
#[derive(Default)]
struct Unit {
    weight: u64,
    /// Of those that have as much for their weight the first one gives first: so no node keeps all that is left over.
    rank: usize,
    load: u64,
    /// Length and beginning, the longest one first.
    ranges: BinaryHeap<(u64, Reverse<usize>)>,
}

/// Load for a weight, to compare.
type Density = u64;

pub(super) fn owners(field: &Field<'_>, vnodes: u16) -> Vec<usize> {
    let partitions = field.held.len();
    let mut holders: Vec<Option<usize>> = (0..partitions).map(|p| field.holder(p)).collect();
    // Who joins: first one shard of every node.
    let (mut joining, _) = round_robin::order(field);
    let mut ring = Ring::new(field, &joining);
    let mut has = vec![false; field.places.len()];
    for holder in holders.iter().flatten() {
        if let Some(has) = has.get_mut(*holder) {
            *has = true;
        }
    }
    joining.retain(|place| has.get(*place) == Some(&false));
    let mut behind = holders.iter().copied().flatten().next();
    if behind.is_none() {
        behind = joining.first().copied();
        joining.rotate_left(1);
        joining.pop();
    }
    for holder in holders.iter_mut().rev() {
        behind = holder.or(behind);
        *holder = behind;
    }
    ring.owners = holders.into_iter().flatten().collect();
    ring.find_ranges();
    // Who gets nothing, because so little is too much for it, may get it when others have joined.
    loop {
        let before = joining.len();
        joining.retain(|place| {
            let spec = field.places.get(*place);
            let tokens = spec.map_or(1, |spec| Field::scaled(vnodes.into(), spec));
            !ring.join(*place, tokens as usize)
        });
        if joining.is_empty() || joining.len() == before {
            break;
        }
    }
    ring.owners
}

struct Ring {
    owners: Vec<usize>,
    units: Vec<Unit>,
    /// Those that have something, the one with most for its weight first; of equals the one of the lowest rank.
    fullest: BinaryHeap<(Density, Reverse<usize>, usize)>,
}

#[expect(
    clippy::indexing_slicing,
    reason = "there is a unit of each place, and ranges are of the owners"
)]
impl Ring {
    fn new(field: &Field<'_>, order: &[usize]) -> Self {
        let unit = |weight: u32| Unit {
            weight: weight.into(),
            ..Unit::default()
        };
        let units = field.places.iter().map(|spec| unit(spec.weight));
        let mut units: Vec<Unit> = units.collect();
        for (rank, place) in order.iter().enumerate() {
            units[*place].rank = rank;
        }
        Ring {
            owners: Vec::new(),
            units,
            fullest: BinaryHeap::new(),
        }
    }

    fn find_ranges(&mut self) {
        let mut begin = 0;
        for range in self.owners.chunk_by(|one, next| one == next) {
            let unit = &mut self.units[range[0]];
            unit.load += range.len() as u64;
            unit.ranges.push((range.len() as u64, Reverse(begin)));
            begin += range.len();
        }
        for place in 0..self.units.len() {
            self.rank(place);
        }
    }

    fn rank(&mut self, place: usize) {
        let Unit {
            load, weight, rank, ..
        } = self.units[place];
        if load > 0 {
            let density = (load << 32) / weight;
            self.fullest.push((density, Reverse(rank), place));
        }
    }

    /// Gives a place that has nothing its share; answers whether that is anything.
    fn join(&mut self, place: usize, tokens: usize) -> bool {
        let own = self.units[place].weight;
        let (mut load, mut weight, mut givers) = (0, own, Vec::new());
        while givers.len() < tokens {
            let Some(&(_, _, giver)) = self.fullest.peek() else {
                break;
            };
            let unit = &self.units[giver];
            // One that has no more for its weight than all would have with it gives nothing, nor do those after it.
            let with = (load + unit.load, weight + unit.weight);
            if unit.load * with.1 <= with.0 * unit.weight {
                break;
            }
            self.fullest.pop();
            givers.push(giver);
            (load, weight) = with;
        }
        let (mut due, mut taken) = (0, 0);
        let splits = tokens / givers.len().max(1);
        let more = tokens % givers.len().max(1);
        for (number, giver) in givers.iter().enumerate() {
            // What is rounded away is due from the next one.
            let unit = &self.units[*giver];
            due += (unit.load * weight).saturating_sub(load * unit.weight);
            let wanted = ((due + weight / 2) / weight).saturating_sub(taken);
            taken += self.take(*giver, place, wanted, splits + usize::from(number < more));
        }
        for place in givers.into_iter().chain([place]) {
            self.rank(place);
        }
        taken > 0
    }

    /// Takes so much from the beginnings of so many ranges, from each in proportion; answers how much it was.
    fn take(&mut self, from: usize, to: usize, wanted: u64, ranges: usize) -> u64 {
        let longest: Vec<_> = std::iter::from_fn(|| self.units[from].ranges.pop())
            .take(ranges.max(1))
            .collect();
        let all: u64 = longest.iter().map(|(len, _)| len).sum();
        let wanted = wanted.min(all).min(self.units[from].load - 1);
        let (mut seen, mut taken) = (0, 0);
        for (len, Reverse(begin)) in longest {
            seen += len;
            let slice = seen * wanted / all - taken;
            taken += slice;
            let middle = begin + slice as usize;
            if slice > 0 {
                self.owners[begin..middle].fill(to);
                self.units[to].ranges.push((slice, Reverse(begin)));
            }
            if len > slice {
                let rest = (len - slice, Reverse(middle));
                self.units[from].ranges.push(rest);
            }
        }
        self.units[from].load -= taken;
        self.units[to].load += taken;
        taken
    }
}
