//! Balancing by load, with hot partitions set apart as DynamoDB does (Elhemali et al., USENIX ATC 2022; "adaptive capacity").
//!
//! A shard's fair share is its part, by weight, of the CPU time that all partitions take. Nothing moves before a shard is
//! more than [`TOLERANCE`] away from its share; then moves bring all of them within half of that, so that the load has to
//! change by the other half before the next plan. Of what relieves a shard, what moves the fewest bytes goes first, and each
//! move brings its two shards together nearer to their shares: with figures that stay as they are plans come to rest.
//!
//! What alone is more than the largest share cannot be shared out: its shard keeps it and gives away what else takes
//! time, and the others share the rest. A shard with a partition of which nobody has told the load is left alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{Located, Move, Place, Spec, Unmet};

/// How far from its fair share a shard may be, in per cent of it.
pub const TOLERANCE: u64 = 20;

/// A shard that takes less, in per cent of a CPU, keeps nobody waiting: a command finds another before it one time in
/// five, and waits for a quarter of one on average. Unasked nothing moves before.
pub const BUSY_PERCENT: u64 = 20;

/// What a move costs beside the bytes that it sends, in bytes: as long as a partition is held at its end, some
/// milliseconds, a disk takes about so many.
const MOVE_BYTES: u64 = 1 << 20;

/// Millionths of a CPU, of which loads are whole numbers, in one per cent.
const PERCENT: u64 = 10_000;

/// Loads for weights are compared in such parts.
const PART: u128 = 1_000_000;

/// A partition, and what it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loaded {
    /// Where it is.
    pub located: Located,
    /// The share of a CPU that it takes; none: nobody has told yet.
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
    let mut plan = LoadPlan::default();
    let unknown = partitions.iter().filter(|one| one.cpu.is_none()).count();
    if unknown > 0 {
        plan.unmet.push(Unmet::LoadUnknown {
            partitions: unknown,
        });
    }
    let mut board = Board::of(places, partitions);
    board.set_apart(&mut plan);
    board.aim();
    let is_parted = !plan.moves.is_empty();
    let mut places = board.uneven();
    if !is_parted && places == 0 {
        return plan;
    }
    let before = board.distance();
    let mut order = Order::of(&board);
    while let Some(one) = board.next_move(&mut order) {
        plan.moves.push(one);
    }
    // What changes less than measuring does is not worth its bytes.
    let mean = board.load / (board.shards.len() as u64).max(1);
    let gain = before.saturating_sub(board.distance());
    if !is_parted && gain < mean / 100 * TOLERANCE / 4 {
        plan.moves.clear();
    } else {
        places = board.uneven();
    }
    if places > 0 {
        plan.unmet.push(Unmet::Uneven { places });
    }
    plan
}

/// A partition that takes time.
#[derive(Clone, Copy, Debug)]
struct Busy {
    located: Located,
    cpu: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Shard {
    place: Place,
    weight: u64,
    /// What it takes, beside a partition that it is set apart for.
    load: u64,
    /// What takes time of it, the least first.
    busy: Vec<Busy>,
    is_apart: bool,
    aim: Aim,
}

/// What a shard is to have, once it is known what is set apart.
#[derive(Clone, Copy, Debug, Default)]
struct Aim {
    wanted: u64,
    /// Between what it is near enough to that for who moves something, and for who looks whether to.
    near: (u64, u64),
    even: (u64, u64),
}

#[derive(Debug, Default)]
struct Board {
    /// By place.
    shards: Vec<Shard>,
    /// What is to be shared by those that are not set apart, and their weights.
    load: u64,
    weights: u64,
}

/// Shards by load for their weight, and by place.
#[derive(Debug, Default)]
struct Order {
    /// Those that may get something.
    takers: BTreeSet<(u128, usize)>,
    /// Those that may give something, the ones that have too much last.
    givers: BTreeSet<(bool, u128, usize)>,
}

impl Order {
    fn of(board: &Board) -> Order {
        let mut order = Order::default();
        for at in 0..board.shards.len() {
            order.put(board, at, true);
        }
        order
    }

    fn put(&mut self, board: &Board, at: usize, gives: bool) {
        let Some(shard) = board.shards.get(at) else {
            return;
        };
        let part = shard.part();
        if !shard.is_apart {
            self.takers.insert((part, at));
        }
        if gives {
            let is_over = shard.load > shard.aim.near.1;
            self.givers.insert((is_over, part, at));
        }
    }

    /// Removes a shard; whether it may give.
    fn take(&mut self, board: &Board, at: usize) -> bool {
        let Some(shard) = board.shards.get(at) else {
            return false;
        };
        let part = shard.part();
        self.takers.remove(&(part, at));
        self.givers.remove(&(true, part, at)) | self.givers.remove(&(false, part, at))
    }
}

impl Shard {
    /// Its load for its weight.
    fn part(&self) -> u128 {
        u128::from(self.load) * PART / u128::from(self.weight)
    }

    /// Whether it has more than it is to have, and something of it can go.
    fn may_give(&self) -> bool {
        let mut busy = self.busy.iter();
        self.load > self.aim.wanted && busy.any(|one| !one.located.is_fixed)
    }
}

impl Board {
    fn of(places: &[Spec<'_>], partitions: &[Loaded]) -> Board {
        let mut places = places.to_vec();
        places.sort_unstable_by_key(|spec| (spec.place, spec.weight));
        places.dedup_by_key(|spec| spec.place);
        let told = places.into_iter().filter(|spec| spec.weight > 0);
        let mut shards: BTreeMap<Place, Shard> = told
            .map(|spec| {
                let shard = Shard {
                    place: spec.place,
                    weight: u64::from(spec.weight),
                    load: 0,
                    busy: Vec::new(),
                    is_apart: false,
                    aim: Aim::default(),
                };
                (spec.place, shard)
            })
            .collect();
        for one in partitions.iter().filter(|one| one.cpu.is_none()) {
            shards.remove(&one.located.place);
        }
        let mut partitions = partitions.to_vec();
        partitions.sort_unstable_by_key(|one| (one.located.partition, one.located.place));
        partitions.dedup_by_key(|one| one.located.partition);
        for Loaded {
            located,
            cpu,
            bytes,
        } in partitions
        {
            let cpu = cpu.map_or(0, |cpu| (f64::from(cpu) * 100.0 * PERCENT as f64) as u64);
            if let Some(shard) = shards.get_mut(&located.place).filter(|_| cpu > 0) {
                shard.load = shard.load.saturating_add(cpu);
                shard.busy.push(Busy {
                    located,
                    cpu,
                    bytes,
                });
            }
        }
        let mut shards: Vec<Shard> = shards.into_values().collect();
        for shard in &mut shards {
            shard.busy.sort_by_key(|one| one.cpu);
        }
        let loads = shards.iter().map(|shard| shard.load);
        Board {
            load: loads.fold(0, u64::saturating_add),
            weights: shards.iter().map(|shard| shard.weight).sum(),
            shards,
        }
    }

    /// The fair share of a weight.
    fn fair(&self, weight: u64) -> u64 {
        let fair = u128::from(self.load) * u128::from(weight) / u128::from(self.weights.max(1));
        u64::try_from(fair).unwrap_or(u64::MAX)
    }

    /// Says what each shard is to have: nothing more if it is set apart.
    fn aim(&mut self) {
        let fair = |board: &Board, shard: &Shard| board.fair(shard.weight);
        let fair: Vec<u64> = self.shards.iter().map(|shard| fair(self, shard)).collect();
        for (shard, fair) in self.shards.iter_mut().zip(fair) {
            let wanted = if shard.is_apart { 0 } else { fair };
            let within = |tolerance: u64| {
                let part = u128::from(fair) * u128::from(tolerance) / 100;
                let part = u64::try_from(part).unwrap_or(u64::MAX);
                (wanted.saturating_sub(part), wanted.saturating_add(part))
            };
            shard.aim = Aim {
                wanted,
                near: within(TOLERANCE / 2),
                even: within(TOLERANCE),
            };
        }
    }

    /// How many shards are not near enough.
    fn uneven(&self) -> usize {
        let is_uneven = |shard: &&Shard| {
            let (from, to) = shard.aim.even;
            !(from..=to).contains(&shard.load)
        };
        self.shards.iter().filter(is_uneven).count()
    }

    /// How far all shards are from what they are to have.
    fn distance(&self) -> u64 {
        let far = |shard: &Shard| shard.load.abs_diff(shard.aim.wanted);
        self.shards.iter().map(far).fold(0, u64::saturating_add)
    }

    /// Finds what alone is too much for any share. Each stays, or, where there are two of them, goes to the shard that
    /// does the least for its weight.
    fn set_apart(&mut self, plan: &mut LoadPlan) {
        let all = (0..).zip(&self.shards);
        let all = all.flat_map(|(at, shard)| shard.busy.iter().map(move |one| (at, *one)));
        let mut hottest: Vec<(usize, Busy)> = all.collect();
        hottest.sort_unstable_by_key(|(_, one)| (u64::MAX - one.cpu, one.located.partition));
        // Those that are not set apart, by what they do for their weights, and by weight.
        let free = || (0..).zip(&self.shards);
        let mut coldest: BTreeSet<(u128, usize)> = free().map(|(at, s)| (s.part(), at)).collect();
        let mut largest: BTreeSet<(u64, usize)> = free().map(|(at, s)| (s.weight, at)).collect();
        for (home, one) in hottest {
            let most = largest.last().map_or(0, |(weight, _)| self.fair(*weight));
            let most = u128::from(most) * u128::from(100 + TOLERANCE) / 100;
            if u128::from(one.cpu) <= most || largest.len() < 2 {
                return;
            }
            let Some(before) = self.shards.get(home).map(Shard::part) else {
                return;
            };
            let is_free = coldest.remove(&(before, home));
            let mut at = home;
            if !is_free && !one.located.is_fixed {
                at = coldest.first().map_or(home, |(_, at)| *at);
            }
            self.take(home, &one);
            self.load = self.load.saturating_sub(one.cpu);
            let Some(shard) = self.shards.get_mut(at) else {
                return;
            };
            if !shard.is_apart {
                shard.is_apart = true;
                self.weights -= shard.weight;
                coldest.remove(&(shard.part(), at));
                largest.remove(&(shard.weight, at));
            }
            let partition = one.located.partition;
            if at != home {
                let to = shard.place;
                plan.moves.push(Move { partition, to });
            }
            if one.cpu >= BUSY_PERCENT * PERCENT {
                plan.unmet.push(Unmet::Hot {
                    partition: partition.0,
                    percent: one.cpu / PERCENT,
                });
            }
        }
    }

    /// Removes a partition from the shard that has it.
    fn take(&mut self, at: usize, one: &Busy) {
        if let Some(shard) = self.shards.get_mut(at) {
            shard.load = shard.load.saturating_sub(one.cpu);
            let partition = one.located.partition;
            shard
                .busy
                .retain(|busy| busy.located.partition != partition);
        }
    }

    /// Does the next move, from the shard that has the most for its weight to one that has little.
    fn next_move(&mut self, order: &mut Order) -> Option<Move> {
        // Who has more lacks nothing.
        let enough = u128::from(self.load) * PART / u128::from(self.weights.max(1));
        while let Some(&(_, part, from)) = order.givers.last() {
            let source = self.shards.get(from)?;
            let (is_apart, may_give) = (source.is_apart, source.may_give());
            let takers = order.takers.iter();
            let takers = takers
                .take_while(|taker| may_give && (is_apart || taker.0 < part && taker.0 <= enough));
            let mut found = takers.filter_map(|&(_, to)| Some((to, self.cheapest(from, to)?)));
            let Some((to, one)) = found.next() else {
                order.givers.pop_last();
                continue;
            };
            let gives = [order.take(self, from), order.take(self, to)];
            self.take(from, &one);
            let target = self.shards.get_mut(to)?;
            target.load = target.load.saturating_add(one.cpu);
            let place = target.place;
            for (at, gives) in [from, to].into_iter().zip(gives) {
                order.put(self, at, gives);
            }
            let partition = one.located.partition;
            return Some(Move {
                partition,
                to: place,
            });
        }
        None
    }

    /// What relieves a shard, or fills another, most for its bytes; none: they are near enough, or nothing fits.
    fn cheapest(&self, from: usize, to: usize) -> Option<Busy> {
        let (source, target) = (self.shards.get(from)?, self.shards.get(to)?);
        let (source_wanted, target_wanted) = (source.aim.wanted, target.aim.wanted);
        let missing = target.aim.near.0.saturating_sub(target.load);
        let need = match source.load.saturating_sub(source.aim.near.1) {
            0 => missing.min(source.load.saturating_sub(source_wanted)),
            excess => excess,
        };
        let fits = |cpu: u64| {
            let (left, after) = (
                source.load.saturating_sub(cpu),
                target.load.saturating_add(cpu),
            );
            if source.is_apart {
                return after <= target.aim.even.1;
            }
            let far = |source: u64, target: u64| {
                let far = source.abs_diff(source_wanted);
                far.saturating_add(target.abs_diff(target_wanted))
            };
            far(left, after) < far(source.load, target.load)
        };
        let worth = |one: &Busy| {
            let relief = one.cpu.min(need) as f64;
            relief / (one.bytes.saturating_add(MOVE_BYTES)) as f64
        };
        let movable = || source.busy.iter().filter(|one| !one.located.is_fixed);
        // If anything fits, the least does.
        if need == 0 || !fits(movable().next()?.cpu) {
            return None;
        }
        let fitting = movable().filter(|one| fits(one.cpu));
        let best = fitting.max_by(|a, b| {
            let rank = worth(a).total_cmp(&worth(b));
            rank.then(b.located.partition.cmp(&a.located.partition))
        });
        best.copied()
    }
}

#[cfg(test)]
mod tests;
