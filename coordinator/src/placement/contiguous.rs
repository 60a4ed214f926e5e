//! Kafka's `RangeAssignor`: each place gets one range of neighbours.

use super::field::planned;
use super::{Plan, Planner, Request};

/// Each place gets the partitions that begin within its part of all weights: within one of its fair share. Clients' slot
/// maps stay short; a place that joins moves all ranges behind it.
#[derive(Clone, Copy, Debug)]
pub struct Contiguous;

impl Planner for Contiguous {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, _| {
            let (mut owners, mut end) = (Vec::new(), 0);
            for (index, spec) in field.places.iter().enumerate() {
                end += u64::from(spec.weight);
                let until = (end * u64::from(field.partitions)).div_ceil(field.weights);
                owners.resize(until as usize, index);
            }
            owners
        })
    }
}
