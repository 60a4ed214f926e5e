use super::*;

/// A cluster on paper: shards, and who has what.
#[derive(Clone, Debug, Default)]
pub(super) struct Bed {
    pub(super) places: Vec<Spec<'static>>,
    pub(super) current: Vec<Located>,
    pub(super) partitions: u16,
}

/// The UUID of a name: nodes sort by it.
pub(super) fn node(name: &str) -> NodeId {
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    NodeId(id)
}

impl Bed {
    pub(super) fn new(partitions: u16) -> Self {
        Bed {
            partitions,
            ..Bed::default()
        }
    }

    /// With one more node of so many shards of a weight.
    pub(super) fn with(mut self, id: NodeId, (shards, weight): (u16, u32)) -> Self {
        self.places.extend((0..shards).map(|shard| Spec {
            place: Place {
                node: id,
                shard: ShardId(shard),
            },
            weight,
            rack: None,
        }));
        self
    }

    /// With nodes of one shard, all alike.
    pub(super) fn named(self, names: &[&str]) -> Self {
        let each = names.iter();
        each.fold(self, |bed, name| bed.with(node(name), (1, 100)))
    }

    pub(super) fn without(mut self, id: NodeId) -> Self {
        self.places.retain(|spec| spec.place.node != id);
        self
    }

    pub(super) fn request(&self) -> Request<'_> {
        Request {
            partitions: self.partitions,
            places: &self.places,
            current: &self.current,
            moves_max: usize::MAX,
        }
    }

    pub(super) fn plan(&self, policy: &impl Planner) -> Plan {
        policy.plan(&self.request())
    }

    /// Plans, and carries it out; answers what has moved.
    pub(super) fn carry_out(&mut self, policy: &impl Planner) -> Vec<Move> {
        let plan = self.plan(policy);
        let moves = plan.moves(&self.current);
        self.current = located(&plan);
        moves
    }

    pub(super) fn placed(mut self, policy: &impl Planner) -> Self {
        self.carry_out(policy);
        self
    }

    /// How many each place has that is there.
    pub(super) fn loads(&self) -> Vec<usize> {
        let counts = |spec: &Spec<'_>| {
            let has = |one: &&Located| one.place == spec.place;
            self.current.iter().filter(has).count()
        };
        self.places.iter().map(counts).collect()
    }

    /// The nodes of the owners by partition, as numbers by UUID.
    pub(super) fn owners(&self) -> Vec<usize> {
        let mut nodes: Vec<NodeId> = self.places.iter().map(|spec| spec.place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let number = |one: &Located| nodes.iter().position(|id| *id == one.place.node).unwrap();
        self.current.iter().map(number).collect()
    }
}

pub(super) fn located(plan: &Plan) -> Vec<Located> {
    let ids = (0..).map(PartitionId);
    let of = |(partition, owner): (PartitionId, &Option<Place>)| {
        Some(Located {
            partition,
            place: (*owner)?,
            is_fixed: false,
        })
    };
    ids.zip(&plan.owners).filter_map(of).collect()
}

/// Every policy as it is told by default, and other ways of the ring.
pub(super) fn policies() -> Vec<Policy> {
    let more = [
        "ring:tokens=even",
        "ring:vnodes=100,seed=3",
        "maglev:seed=9",
        "bounded-ring:epsilon=0.05",
    ];
    let more = more.map(|text| text.parse().unwrap());
    Policy::all().into_iter().chain(more).collect()
}
