//! What must hold at every moment of every run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ephesus_coordinator::Coordinator;
use ephesus_coordinator::command::RaftId;
use ephesus_coordinator::state::{MemberStatus, State};
use ephesus_coordinator::view::View;
use ephesus_wal::FaultDisk;
use ephesus_wire::table::{PartitionEntry, PartitionStatus};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, ShardId};

/// What was acknowledged to the clients of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// That of the last write.
    epoch: Epoch,
    /// How many there were since it was empty.
    writes: u64,
}

/// What was seen so far, and what was promised.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// By term.
    leaders: BTreeMap<u64, u64>,
    /// Digest of the state by applied index.
    states: BTreeMap<u64, u64>,
    views: BTreeMap<u64, Arc<View>>,
    /// Newest start that was told to be registered.
    registered: BTreeMap<NodeId, u64>,
    /// Nodes whose removal was asked for, and those of which it was confirmed.
    pub(crate) given_up: BTreeSet<NodeId>,
    removed: BTreeSet<NodeId>,
    coordinators_added: BTreeSet<RaftId>,
    coordinators_removed: BTreeSet<RaftId>,
    /// Who owns a partition under an epoch.
    owners: BTreeMap<(PartitionId, Epoch), (NodeId, ShardId)>,
    truth: BTreeMap<PartitionId, Truth>,
    /// Partitions in which not all keys are written that nobody writes again.
    pub(crate) unfilled: BTreeSet<PartitionId>,
    /// By applied index, the last migration and who does not know migrations.
    behind: BTreeMap<u64, (MigrationId, BTreeSet<String>)>,
    /// How many migrations were seen to arrive.
    pub(crate) arrivals: u64,
    /// How often a member was failed.
    pub(crate) failures: u64,
    pub(crate) trace: u64,
}

impl Checks {
    /// The newest members and table that any coordinator has seen.
    pub(crate) fn latest(&self) -> Option<&Arc<View>> {
        self.views.values().next_back()
    }

    pub(crate) fn mix(&mut self, value: u64) {
        self.trace = (self.trace.rotate_left(5) ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    /// A coordinator has had a turn.
    pub(crate) fn coordinator(
        &mut self,
        id: u64,
        coordinator: &Coordinator<FaultDisk>,
    ) -> Result<(), String> {
        let member = coordinator.member();
        let (term, applied) = (member.term(), member.applied());
        self.mix(id ^ (term << 8) ^ (applied << 20));
        if member.is_leader() {
            let leader = *self.leaders.entry(term).or_insert(id);
            if leader != id {
                return Err(format!(
                    "coordinators {leader} and {id} both lead term {term}"
                ));
            }
        }
        let bytes = member.state().to_snapshot();
        let digest = bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |digest: u64, byte| {
                (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        if *self.states.entry(applied).or_insert(digest) != digest {
            return Err(format!(
                "coordinator {id} has another state at entry {applied}"
            ));
        }
        self.mix(digest);
        self.known_by_all(applied, member.state())?;
        match View::of(member.state()) {
            Some(view) => self.version(view),
            None => Ok(()),
        }
    }

    /// Nothing is planned while somebody does not know what that is.
    fn known_by_all(&mut self, applied: u64, state: &State) -> Result<(), String> {
        let last = state.migrations().last;
        let nodes = state.members().iter();
        let nodes = nodes.map(|(id, member)| (id.to_string(), Some(member.speaks)));
        // Who only learns votes once it knows all, and harms nobody before.
        let unheard = |id: &RaftId| {
            state.learners().contains(id) && state.coordinator_speaks_now(*id).is_none()
        };
        let coordinators = state.coordinators().keys().filter(|id| !unheard(id));
        let coordinators =
            coordinators.map(|id| (id.to_string(), state.coordinator_speaks_now(*id)));
        let all = nodes.chain(coordinators);
        let behind = all.filter(|(_, speaks)| speaks.is_none_or(|speaks| speaks.max < 2));
        let behind: BTreeSet<String> = behind.map(|(who, _)| who).collect();
        // Who came or was upgraded in the same turn may have done so before it.
        let before = self.behind.range(..applied).next_back();
        if let Some((_, (planned, before))) = before
            && last > *planned
            && let Some(who) = behind.intersection(before).next()
        {
            return Err(format!(
                "migration {last} is planned, and {who} does not know migrations"
            ));
        }
        self.behind.insert(applied, (last, behind));
        Ok(())
    }

    fn version(&mut self, view: View) -> Result<(), String> {
        let version = view.version();
        if let Some(known) = self.views.get(&version) {
            return if **known == view {
                Ok(())
            } else {
                Err(format!("there are two tables of version {version}"))
            };
        }
        if let Some(gone) = self
            .removed
            .iter()
            .find(|id| view.members.contains_key(*id))
            && self
                .latest()
                .is_some_and(|latest| latest.version() < version)
        {
            return Err(format!("node {gone} is back, though it was removed"));
        }
        if let Some((_, before)) = self.views.range(..version).next_back() {
            follows(before, &view)?;
            let is_failed = |view: &View, id| {
                let member = view.members.get(id);
                member.is_some_and(|member| member.status == MemberStatus::Failed)
            };
            let members = view.members.keys();
            let failed = members.filter(|id| is_failed(&view, id) && !is_failed(before, id));
            self.failures += failed.count() as u64;
            let old = &before.migrations.arrivals;
            let arrivals = view.migrations.arrivals.iter();
            let moved = arrivals.filter(|(_, arrival)| arrival.migration.0 > 0);
            let new = moved.filter(|(partition, arrival)| old.get(partition) != Some(*arrival));
            self.arrivals += new.count() as u64;
        }
        if let Some((_, after)) = self.views.range(version..).next() {
            follows(&view, after)?;
        }
        is_complete(&view)?;
        for (index, entry) in view.table.entries.iter().enumerate() {
            let Some(primary) = entry.primary() else {
                continue;
            };
            let partition = PartitionId(index as u16);
            let place = (primary.node, primary.shard);
            let known = self.owners.entry((partition, entry.epoch)).or_insert(place);
            if *known != place {
                return Err(format!(
                    "partition {partition} has two owners under epoch {}",
                    entry.epoch
                ));
            }
        }
        self.views.insert(version, Arc::new(view));
        Ok(())
    }

    /// A node has taken a table over.
    pub(crate) fn table(&mut self, node: usize, view: &View) -> Result<(), String> {
        let version = view.version();
        match self.views.get(&version) {
            Some(known) if **known == *view => Ok(()),
            Some(_) => Err(format!(
                "node {node} has another table of version {version}"
            )),
            None => Err(format!(
                "node {node} has version {version}, which nobody decided"
            )),
        }
    }

    /// A write was acknowledged, while its node has a copy of this epoch.
    pub(crate) fn written(&mut self, partition: PartitionId, epoch: Epoch) {
        let truth = self.truth.entry(partition).or_default();
        truth.epoch = truth.epoch.max(epoch);
        truth.writes += 1;
    }

    /// Whether no copy of a partition was seen that is as new as this.
    pub(crate) fn is_unseen(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let truth = self.truth.get(&partition);
        truth.is_none_or(|truth| truth.epoch < epoch)
    }

    /// A node begins with an empty copy: what was there before has been given up. Answers whether that is the newest
    /// copy: one that is begun by an old table holds nothing that clients know.
    pub(crate) fn emptied(
        &mut self,
        node: usize,
        partition: PartitionId,
        epoch: Epoch,
    ) -> Result<bool, String> {
        let truth = self.truth.entry(partition).or_default();
        if truth.epoch > epoch {
            // A write to this copy would be noticed.
            return Ok(false);
        }
        if truth.writes > 0 && truth.epoch == epoch {
            return Err(format!(
                "node {node} begins partition {partition} anew, which has {} writes under epoch {epoch}",
                truth.writes
            ));
        }
        *truth = Truth { epoch, writes: 0 };
        Ok(true)
    }

    /// A node was told that it is registered.
    pub(crate) fn registered(&mut self, node: NodeId, incarnation: u64) {
        let newest = self.registered.entry(node).or_default();
        *newest = incarnation.max(*newest);
    }

    pub(crate) fn removed(&mut self, node: NodeId) {
        self.removed.insert(node);
    }

    pub(crate) fn coordinator_added(&mut self, id: RaftId) {
        self.coordinators_added.insert(id);
    }

    pub(crate) fn coordinator_removed(&mut self, id: RaftId) {
        self.coordinators_removed.insert(id);
    }

    /// Everything that was acknowledged is in the newest state.
    pub(crate) fn promises(&self) -> Result<(), String> {
        let Some(latest) = self.latest() else {
            return Err("nothing was ever decided".into());
        };
        for (node, promised) in &self.registered {
            let found = latest.members.get(node).map(|member| member.incarnation);
            let is_kept = match found {
                Some(found) => found >= *promised,
                None => self.given_up.contains(node),
            };
            if !is_kept {
                return Err(format!(
                    "node {node}: start {promised} was acknowledged, {found:?} is there"
                ));
            }
        }
        if let Some(node) = self
            .removed
            .iter()
            .find(|id| latest.members.contains_key(*id))
        {
            return Err(format!("node {node} was removed, and is there"));
        }
        for id in &self.coordinators_added {
            let is_there = latest.coordinators.contains_key(id);
            if !is_there && !self.coordinators_removed.contains(id) {
                return Err(format!("coordinator {id} was added, and is not there"));
            }
        }
        let mut gone = self.coordinators_removed.iter();
        if let Some(id) = gone.find(|id| latest.coordinators.contains_key(*id)) {
            return Err(format!("coordinator {id} was removed, and is there"));
        }
        Ok(())
    }
}

/// Every partition is there, and who owns it is a member that has that shard.
fn is_complete(view: &View) -> Result<(), String> {
    let (found, expected) = (view.table.entries.len(), view.options.partitions);
    if found != usize::from(expected) {
        return Err(format!("{found} of {expected} partitions are in the table"));
    }
    for (index, entry) in view.table.entries.iter().enumerate() {
        let has_owner = entry.primary().is_some();
        if has_owner == (entry.status == PartitionStatus::Unassigned) {
            return Err(format!(
                "partition {index} is {:?}: {entry:?}",
                entry.status
            ));
        }
        if has_owner
            != view
                .migrations
                .arrivals
                .contains_key(&PartitionId(index as u16))
        {
            return Err(format!(
                "partition {index} has an owner, and no arrival, or the reverse"
            ));
        }
        for replica in &entry.replicas {
            let member = view.members.get(&replica.node);
            if member.is_none_or(|member| replica.shard.0 >= member.shards) {
                return Err(format!(
                    "partition {index} is on a shard that is not there: {replica:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Epochs never decrease, and grow with every change of the owner.
fn follows(before: &View, after: &View) -> Result<(), String> {
    if before.options != after.options {
        return Err("the cluster has another layout".into());
    }
    let entries = before.table.entries.iter().zip(&after.table.entries);
    for (index, (old, new)) in entries.enumerate() {
        let partition = PartitionId(index as u16);
        let place =
            |entry: &PartitionEntry| entry.primary().map(|primary| (primary.node, primary.shard));
        let is_new_owner = place(new).is_some() && place(old) != place(new);
        if new.epoch < old.epoch || (is_new_owner && new.epoch == old.epoch) {
            return Err(format!(
                "partition {partition}: epoch {} after {}",
                new.epoch, old.epoch
            ));
        }
        let primaries = new.replicas.len();
        if primaries > 1 {
            return Err(format!("partition {partition} has {primaries} owners"));
        }
    }
    Ok(())
}
