//! The load of one node's shards and partitions, and what its heartbeats say of it.

use super::hot::HotKeys;
use super::told::{HOTTEST_MAX, LoadReport, ROUND, SHARDS_MAX, SIZES_MAX, Told, ToldRange};
use super::windows::{Amount, Rates, WINDOWS_S, Windows};

/// Which window the balance of a cluster is about: the last minute.
pub(super) const MINUTE: usize = 1;

/// The window by which partitions are the hottest: the last second.
const SECOND: usize = 0;

/// A partition that was idle for so long is none of the hottest, ms.
const COOL_AFTER_MS: u64 = 10_000;

/// What was counted of a partition since its node has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What was done.
    pub amount: Amount,
    /// Bytes of its keys and values.
    pub bytes: u64,
}

/// One shard, or one partition.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    /// What was counted by the last look.
    counted: Amount,
    windows: Windows,
    /// Up to when the windows are told.
    told_ms: u64,
    /// When something was done last.
    busy_ms: u64,
    bytes: u64,
}

impl Meter {
    fn new(counted: Amount, now_ms: u64) -> Meter {
        Meter {
            counted,
            told_ms: now_ms,
            ..Meter::default()
        }
    }

    /// So much was counted by `now_ms`, and nothing of it before `since_ms`.
    fn look(&mut self, counted: Amount, since_ms: u64, now_ms: u64) {
        if counted == self.counted {
            return;
        }
        let amount = counted.since(&self.counted);
        self.counted = counted;
        self.idle_until(since_ms);
        self.windows.pass(&amount, seconds(self.told_ms, now_ms));
        self.told_ms = now_ms;
        self.busy_ms = now_ms;
    }

    fn idle_until(&mut self, until_ms: u64) {
        let idle = seconds(self.told_ms, until_ms);
        if idle > 0.0 {
            self.windows.pass(&Amount::default(), idle);
            self.told_ms = until_ms;
        }
    }

    /// By window, at a moment.
    fn rates(mut self, now_ms: u64) -> [Rates; WINDOWS_S.len()] {
        self.idle_until(now_ms);
        self.windows.rates()
    }
}

fn seconds(from_ms: u64, to_ms: u64) -> f64 {
    to_ms.saturating_sub(from_ms) as f64 / 1e3
}

/// The load of one node.
#[derive(Debug)]
pub struct Board {
    looked_ms: u64,
    shards: Vec<Meter>,
    /// By partition; none where the node has none.
    partitions: Vec<Option<Meter>>,
    /// Where the next report goes on.
    next_shard: usize,
    next_partition: u16,
    next_size: u16,
    hot_keys: HotKeys,
}

impl Board {
    /// Of a node that has done nothing yet.
    #[must_use]
    pub fn new(shards: u16, partitions: u16, now_ms: u64) -> Board {
        Board {
            looked_ms: now_ms,
            shards: vec![Meter::new(Amount::default(), now_ms); shards.into()],
            partitions: vec![None; partitions.into()],
            next_shard: 0,
            next_partition: 0,
            next_size: 0,
            hot_keys: HotKeys::default(),
        }
    }

    /// Takes what was counted by now of each shard, and of each partition that the node has.
    pub fn look(
        &mut self,
        now_ms: u64,
        shards: impl Iterator<Item = Amount>,
        partitions: impl Iterator<Item = Option<Counted>>,
    ) {
        let since_ms = self.looked_ms;
        if now_ms <= since_ms {
            return;
        }
        self.looked_ms = now_ms;
        for (meter, counted) in self.shards.iter_mut().zip(shards) {
            meter.look(counted, since_ms, now_ms);
        }
        for (place, counted) in self.partitions.iter_mut().zip(partitions) {
            match (place, counted) {
                (place, None) => *place = None,
                (Some(meter), Some(counted)) => {
                    meter.look(counted.amount, since_ms, now_ms);
                    meter.bytes = counted.bytes;
                }
                (place, Some(counted)) => *place = Some(Meter::new(counted.amount, now_ms)),
            }
        }
    }

    /// Takes the hottest keys of all shards.
    pub fn set_hot_keys(&mut self, keys: HotKeys) {
        self.hot_keys = keys;
    }

    /// The hottest keys, as they were taken last.
    #[must_use]
    pub fn hot_keys(&self) -> &HotKeys {
        &self.hot_keys
    }

    /// What was done per second in a shard, by window.
    #[must_use]
    pub fn shard(&self, shard: u16) -> Option<[Rates; WINDOWS_S.len()]> {
        let meter = self.shards.get(usize::from(shard))?;
        Some(meter.rates(self.looked_ms))
    }

    /// The partitions that use the most CPU now, the hottest first, with what was done per second in them, by window.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<(u16, [Rates; WINDOWS_S.len()])> {
        let now_ms = self.looked_ms;
        let partitions = (0..).zip(&self.partitions);
        let present = partitions.filter_map(|(id, meter)| Some((id, meter.as_ref()?)));
        let warm = present.filter(|(_, meter)| {
            meter.busy_ms > 0 && now_ms.saturating_sub(meter.busy_ms) < COOL_AFTER_MS
        });
        let mut warm: Vec<_> = warm.map(|(id, meter)| (id, meter.rates(now_ms))).collect();
        let hotter = |a: &(u16, [Rates; 3]), b: &(u16, [Rates; 3])| {
            let [a, b] = [a, b].map(|(_, windows)| windows.get(SECOND).map_or(0.0, |r| r.cpu));
            b.total_cmp(&a)
        };
        if warm.len() > most {
            warm.select_nth_unstable_by(most, hotter);
            warm.truncate(most);
        }
        warm.sort_by(hotter);
        warm
    }

    /// What the next heartbeat says.
    pub fn report(&mut self) -> LoadReport {
        let now_ms = self.looked_ms;
        let count = self.partitions.len() as u16;
        let all = self.shards.len();
        let shards = (0..all.min(SHARDS_MAX)).map(|step| (self.next_shard + step) % all);
        let shards = shards.filter_map(|at| Some((at as u16, self.shards.get(at)?.rates(now_ms))));
        let shards: Vec<_> = shards.collect();
        self.next_shard = (self.next_shard + SHARDS_MAX) % all.max(1);
        let part = count.div_ceil(ROUND);
        let rest = self.range(self.next_partition, part, |rates, _| (rates.cpu, rates.ops));
        self.next_partition = after(&rest, count);
        let sizes = self.range(self.next_size, part.min(SIZES_MAX), |rates, bytes| {
            (rates.bytes_in + rates.bytes_out, bytes as f32)
        });
        self.next_size = after(&sizes, count);
        LoadReport::new(&Told {
            shards,
            hottest: self.hottest(HOTTEST_MAX),
            rest,
            sizes,
        })
    }

    fn range(&self, first: u16, most: u16, of: impl Fn(&Rates, u64) -> (f32, f32)) -> ToldRange {
        let count = most.min(self.partitions.len() as u16 - first);
        let meters = (first..).zip(self.partitions.iter().skip(first.into()));
        let meters = meters.take(count.into());
        let entry = |(id, meter): (u16, &Option<Meter>)| {
            let meter = meter.as_ref()?;
            let windows = meter.rates(self.looked_ms);
            let (one, other) = of(windows.get(MINUTE)?, meter.bytes);
            Some((id, one, other))
        };
        ToldRange {
            first,
            count,
            entries: meters.filter_map(entry).collect(),
        }
    }
}

/// Where the next range begins.
fn after(range: &ToldRange, count: u16) -> u16 {
    let next = range.first + range.count;
    if next < count { next } else { 0 }
}
