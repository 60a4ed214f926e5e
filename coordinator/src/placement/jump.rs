//! Jump consistent hashing (Lamping and Veach, "A fast, minimal memory, consistent hash algorithm", 2014).

use serde::{Deserialize, Serialize};

use super::field::planned;
use super::murmur3::mix;
use super::{Plan, Planner, Request};

/// Places are numbered, a number for each 10 of weight, and a partition hashes to a number: a place that is appended takes
/// its share and nothing else moves. One that joins or leaves in the middle gives those behind it other numbers.
///
/// A place is off its share by a standard deviation of 1 / sqrt(its partitions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Jump {
    /// Another one gives another plan.
    pub seed: u32,
}

/// Weight of one number.
const WEIGHT_PER_BUCKET: u64 = 10;
/// With more buckets the steps of a jump are too small for a double.
const BUCKETS_MAX: u64 = 1 << 31;

impl Planner for Jump {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, _| {
            let most = BUCKETS_MAX / field.places.len().max(1) as u64;
            let mut buckets = 0;
            let ends = field.places.iter().map(|spec| {
                let tens = (u64::from(spec.weight) + WEIGHT_PER_BUCKET / 2) / WEIGHT_PER_BUCKET;
                buckets += tens.clamp(1, most.max(1));
                buckets
            });
            let ends: Vec<u64> = ends.collect();
            let seed = mix(!u64::from(self.seed));
            let owner = |partition: u16| {
                let bucket = hash(mix(seed ^ u64::from(partition)), buckets);
                ends.partition_point(|end| *end <= bucket)
            };
            (0..field.partitions).map(owner).collect()
        })
    }
}

/// The bucket of a key, below `buckets`, of which there is at least one: the paper's code.
#[must_use]
pub fn hash(mut key: u64, buckets: u64) -> u64 {
    let (mut bucket, mut next) = (0, 0);
    while next < buckets {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let step = (1_u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * step) as u64;
    }
    bucket
}
