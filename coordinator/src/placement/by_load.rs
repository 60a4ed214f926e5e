//! Balancing by load, with hot partitions set apart as DynamoDB does (Elhemali et al., USENIX ATC 2022; "adaptive capacity").
//!
//! A shard's fair share is its part, by weight, of the CPU time that all partitions take. Nothing moves before a shard is
//! more than [`TOLERANCE`] away from its share; then moves bring all of them within half of that, so that the load has to
//! change by the other half before the next plan. Of what relieves a shard, what moves the fewest bytes goes first.
//!
//! What alone is more than a share cannot be shared out: its shard keeps it and gives away what else takes time, and the
//! others share the rest.

use std::collections::BTreeMap;

use super::{Located, Move, Place, Spec, Unmet};

/// How far from its fair share a shard may be, in per cent of it.
pub const TOLERANCE: u64 = 20;

/// What a move costs beside the bytes that it sends, in bytes: as long as a partition is held at its end, some
/// milliseconds, a disk takes about so many.
const MOVE_BYTES: u64 = 1 << 20;

/// A partition, and what it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// Where it is.
    pub located: Located,
    /// The share of a CPU that it takes; none: nobody has told yet, and it stays.
    pub cpu: Option<f32>,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

/// What is to move for the sake of load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadPlan {
    /// The moves, those that relieve the most first.
    pub moves: Vec<Move>,
    /// What could not be done.
    pub unmet: Vec<Unmet>,
}

/// Plans the moves after which shards take about what their weights say. Partitions at places that take no part, or have
/// no weight, are left out of account. The same arguments in any order give the same plan.
#[must_use]
pub fn by_load(places: &[Spec<'_>], partitions: &[Loaded]) -> LoadPlan {
    let mut board = Board::of(places, partitions);
    let unknown = partitions.iter().filter(|one| one.cpu.is_none()).count();
    let mut plan = LoadPlan::default();
    if unknown > 0 {
        plan.unmet.push(Unmet::LoadUnknown {
            partitions: unknown,
        });
    }
    board.set_apart(&mut plan);
    let before = board.furthest();
    if before <= TOLERANCE && plan.moves.is_empty() {
        return plan;
    }
    while let Some(one) = board.next_move() {
        plan.moves.push(one);
    }
    let after = board.furthest();
    // What changes less than measuring does is not worth its bytes.
    if after.saturating_add(TOLERANCE / 4) > before && !board.has_moved_apart {
        plan.moves.clear();
    }
    let coarse = board.shards.values().filter(|shard| {
        let (from, to) = board.bounds(shard, TOLERANCE);
        !(from..=to).contains(&shard.load)
    });
    let coarse = coarse.count();
    if coarse > 0 {
        plan.unmet.push(Unmet::Uneven { places: coarse });
    }
    plan
}

/// A partition that may move.
#[derive(Clone, Copy, Debug)]
struct Movable {
    located: Located,
    /// Millionths of a CPU.
    cpu: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Shard {
    weight: u64,
    /// What it takes beside a partition that it is set apart for, in millionths of a CPU.
    load: u64,
    movable: Vec<Movable>,
    is_apart: bool,
    /// Nothing more can be moved from here.
    is_done: bool,
}

#[derive(Debug, Default)]
struct Board {
    shards: BTreeMap<Place, Shard>,
    /// What the shards that are not set apart have to share, and their weights.
    load: u64,
    weights: u64,
    has_moved_apart: bool,
}

impl Board {
    fn of(places: &[Spec<'_>], partitions: &[Loaded]) -> Board {
        let mut board = Board::default();
        let mut places = places.to_vec();
        places.sort_unstable_by_key(|spec| (spec.place, spec.weight));
        places.dedup_by_key(|spec| spec.place);
        for spec in places.iter().filter(|spec| spec.weight > 0) {
            let weight = u64::from(spec.weight);
            board.weights += weight;
            let shard = Shard {
                weight,
                ..Shard::default()
            };
            board.shards.insert(spec.place, shard);
        }
        let mut partitions = partitions.to_vec();
        partitions.sort_unstable_by_key(|one| (one.located.partition, one.located.place));
        partitions.dedup_by_key(|one| one.located.partition);
        for one in partitions {
            let Some(shard) = board.shards.get_mut(&one.located.place) else {
                continue;
            };
            let cpu = one.cpu.map_or(0, |cpu| (f64::from(cpu) * 1e6) as u64);
            shard.load = shard.load.saturating_add(cpu);
            board.load = board.load.saturating_add(cpu);
            if cpu > 0 {
                shard.movable.push(Movable {
                    located: one.located,
                    cpu,
                    bytes: one.bytes,
                });
            }
        }
        board
    }

    /// The fair share of a weight.
    fn fair(&self, weight: u64) -> u64 {
        let fair = u128::from(self.load) * u128::from(weight) / u128::from(self.weights.max(1));
        u64::try_from(fair).unwrap_or(u64::MAX)
    }

    /// Between what a shard is near enough to its share: of one that is set apart, near to nothing.
    fn bounds(&self, shard: &Shard, tolerance: u64) -> (u64, u64) {
        let fair = self.fair(shard.weight);
        let part = u128::from(fair) * u128::from(tolerance) / 100;
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        match shard.is_apart {
            true => (0, part),
            false => (fair.saturating_sub(part), fair.saturating_add(part)),
        }
    }

    /// How far the furthest shard is from its share, in per cent of it.
    fn furthest(&self) -> u64 {
        let far = self.shards.values().map(|shard| {
            let fair = self.fair(shard.weight);
            let wanted = if shard.is_apart { 0 } else { fair };
            let far = u128::from(shard.load.abs_diff(wanted)) * 100 / u128::from(fair.max(1));
            u64::try_from(far).unwrap_or(u64::MAX)
        });
        far.max().unwrap_or(0)
    }

    /// Finds what alone is too much for a share. Each stays, or, where there are two of them, goes to the shard that does
    /// the least.
    fn set_apart(&mut self, plan: &mut LoadPlan) {
        let all = self.shards.values().flat_map(|shard| &shard.movable);
        let mut hottest: Vec<Movable> = all.copied().collect();
        hottest.sort_unstable_by_key(|one| (u64::MAX - one.cpu, one.located.partition));
        for one in hottest {
            let Some(home) = self.shards.get(&one.located.place) else {
                continue;
            };
            let (_, most) = self.bounds(
                &Shard {
                    weight: home.weight,
                    ..Shard::default()
                },
                TOLERANCE,
            );
            let others = self.shards.values().filter(|shard| !shard.is_apart);
            if one.cpu <= most || others.count() < 2 {
                return;
            }
            let mut place = one.located.place;
            if home.is_apart && !one.located.is_fixed {
                let free = self.shards.iter().filter(|(_, shard)| !shard.is_apart);
                let coldest = free.min_by_key(|(place, shard)| (shard.load, **place));
                place = coldest.map_or(place, |(place, _)| *place);
            }
            self.take(one);
            if let Some(shard) = self.shards.get_mut(&place) {
                self.load = self.load.saturating_sub(one.cpu);
                if !shard.is_apart {
                    self.weights -= shard.weight;
                    shard.is_apart = true;
                }
            }
            if place != one.located.place {
                self.has_moved_apart = true;
                let partition = one.located.partition;
                plan.moves.push(Move {
                    partition,
                    to: place,
                });
            }
            plan.unmet.push(Unmet::Hot {
                partition: one.located.partition.0,
                percent: one.cpu / 10_000,
            });
        }
    }

    /// Removes a partition from the shard that has it.
    fn take(&mut self, one: Movable) {
        if let Some(shard) = self.shards.get_mut(&one.located.place) {
            shard.load = shard.load.saturating_sub(one.cpu);
            let partition = one.located.partition;
            shard
                .movable
                .retain(|movable| movable.located.partition != partition);
        }
    }

    /// Does the next move: from the shard that has the most for its weight to the one that has the least.
    fn next_move(&mut self) -> Option<Move> {
        loop {
            let (from, to, need) = self.pair()?;
            let Some(one) = self.cheapest(from, to, need) else {
                self.shards.get_mut(&from)?.is_done = true;
                continue;
            };
            self.take(one);
            let target = self.shards.get_mut(&to)?;
            target.load = target.load.saturating_add(one.cpu);
            let partition = one.located.partition;
            return Some(Move { partition, to });
        }
    }

    /// Who gives, who gets, and how much; none: all are near enough.
    fn pair(&self) -> Option<(Place, Place, u64)> {
        let near = TOLERANCE / 2;
        let excess = |shard: &Shard| shard.load.saturating_sub(self.bounds(shard, near).1);
        let part =
            |shard: &Shard, load: u64| u128::from(load) * 1_000_000 / u128::from(shard.weight);
        let givers = || self.shards.iter().filter(|(_, shard)| !shard.is_done);
        let takers = || self.shards.iter().filter(|(_, shard)| !shard.is_apart);
        let (to, target) =
            takers().min_by_key(|(place, shard)| (part(shard, shard.load), **place))?;
        let most = givers().filter(|(place, _)| *place != to);
        let (from, source) = most.max_by_key(|(_, shard)| {
            let is_over = excess(shard) > 0;
            (is_over, part(shard, shard.load))
        })?;
        let missing = self.bounds(target, near).0.saturating_sub(target.load);
        let spare = source.load.saturating_sub(self.fair(source.weight));
        let need = match excess(source) {
            0 => missing.min(spare),
            excess => excess,
        };
        (need > 0).then_some((*from, *to, need))
    }

    /// What relieves most for its bytes, and leaves the target with less for its weight than the source had.
    fn cheapest(&self, from: Place, to: Place, need: u64) -> Option<Movable> {
        let (source, target) = (self.shards.get(&from)?, self.shards.get(&to)?);
        let near = if source.is_apart {
            TOLERANCE
        } else {
            TOLERANCE / 2
        };
        let (_, most) = self.bounds(target, near);
        let fits = |cpu: u64| {
            let after = target.load.saturating_add(cpu);
            let is_less = u128::from(after) * u128::from(source.weight)
                < u128::from(source.load) * u128::from(target.weight);
            after <= most || is_less && !source.is_apart
        };
        let worth = |one: &Movable| {
            let relief = one.cpu.min(need) as f64;
            relief / (one.bytes.saturating_add(MOVE_BYTES)) as f64
        };
        let movable = source.movable.iter();
        let movable = movable.filter(|one| !one.located.is_fixed && fits(one.cpu));
        let best = movable.max_by(|a, b| {
            let rank = worth(a).total_cmp(&worth(b));
            rank.then(b.located.partition.cmp(&a.located.partition))
        });
        best.copied()
    }
}

#[cfg(test)]
mod tests;
