//! What all policies see of a request: places sorted, and who has what by partition.

use super::{Located, Place, Plan, Request, Spec, Unmet};

pub(super) struct Field<'a> {
    pub(super) partitions: u16,
    /// All that take part, by node and shard.
    pub(super) all: Vec<Spec<'a>>,
    /// Those that have weight.
    pub(super) places: Vec<Spec<'a>>,
    /// The sum of weights.
    pub(super) weights: u64,
    /// By partition.
    pub(super) held: Vec<Option<Located>>,
}

impl<'a> Field<'a> {
    pub(super) fn of(request: &Request<'a>) -> Self {
        let mut all = request.places.to_vec();
        all.sort_unstable_by_key(|spec| (spec.place, spec.weight, spec.rack));
        all.dedup_by_key(|spec| spec.place);
        let mut places = all.clone();
        places.retain(|spec| spec.weight > 0);
        let mut held = vec![None::<Located>; usize::from(request.partitions)];
        for located in request.current {
            if let Some(held) = held.get_mut(usize::from(located.partition.0)) {
                let rank = |one: &Located| (one.place, one.is_fixed);
                let earliest = held.filter(|known| rank(known) < rank(located));
                *held = Some(earliest.unwrap_or(*located));
            }
        }
        Field {
            partitions: request.partitions,
            weights: places.iter().map(|spec| u64::from(spec.weight)).sum(),
            all,
            places,
            held,
        }
    }

    /// Whether a partition stays: it is under way, or its owner takes no part.
    fn keeps(&self, held: &Located) -> bool {
        held.is_fixed || find(&self.all, held.place).is_none()
    }

    /// Who of [`Field::places`] has a partition that may move.
    pub(super) fn holder(&self, partition: usize) -> Option<usize> {
        let held = self.held.get(partition).copied().flatten()?;
        find(&self.places, held.place)
    }

    /// The places of each node.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &[Spec<'a>]> {
        self.places
            .chunk_by(|one, next| one.place.node == next.place.node)
    }

    /// How many of something a place gets that has so many for a weight of 100: as its weight says, but at least one.
    pub(super) fn scaled(count: u64, spec: &Spec<'_>) -> u64 {
        ((count * u64::from(spec.weight) + 50) / 100).max(1)
    }
}

fn find(specs: &[Spec<'_>], place: Place) -> Option<usize> {
    specs.binary_search_by_key(&place, |spec| spec.place).ok()
}

/// The plan of a policy that answers, per partition, an index into [`Field::places`], of which there is one at least.
pub(super) fn planned(
    request: &Request<'_>,
    owners: impl FnOnce(&Field<'_>, &mut Vec<Unmet>) -> Vec<usize>,
) -> Plan {
    let field = Field::of(request);
    let mut unmet = Vec::new();
    let chosen = match field.places.is_empty() {
        true => Vec::new(),
        false => owners(&field, &mut unmet),
    };
    let (mut kept, mut is_used) = (0, vec![false; field.places.len()]);
    let held = field.held.iter().enumerate();
    let owners: Vec<Option<Place>> = held
        .map(|(partition, held)| {
            let stays = held.filter(|held| field.keeps(held));
            kept += usize::from(stays.is_some());
            let at = match stays {
                Some(held) => find(&field.places, held.place),
                None => chosen.get(partition).copied(),
            };
            if let Some(is_used) = at.and_then(|at| is_used.get_mut(at)) {
                *is_used = true;
            }
            let chosen = at.and_then(|at| field.places.get(at));
            let chosen = chosen.map(|spec| spec.place);
            chosen.or(held.map(|held| held.place))
        })
        .collect();
    let idle = is_used.iter().filter(|is_used| !**is_used).count();
    let weightless = field.all.len() - field.places.len();
    let is_short = field.places.len() > owners.len();
    let all = [
        (field.places.is_empty(), Unmet::NoPlaces),
        (field.nodes().count() == 1, Unmet::OneNode),
        (weightless > 0, Unmet::Weightless { places: weightless }),
        (kept > 0, Unmet::Kept { partitions: kept }),
        (is_short, Unmet::Idle { places: idle }),
    ];
    unmet.extend(
        all.into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, unmet)| unmet),
    );
    Plan {
        owners,
        later: 0,
        unmet,
    }
}
