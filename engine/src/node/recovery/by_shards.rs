//! Recovery as a coordinator would have it that gives one node everything: for tests.

use ephesus_coordinator::migration::MigrationTable;
use ephesus_coordinator::placement::{self, Policy};
use ephesus_wire::NodeId;

use super::*;
use crate::node::data_dir::Place;

/// The plan of so many shards: what is there, if their number has not changed, otherwise a new
/// epoch of everything.
fn plan(layout: &Layout, shards: u16) -> Plan {
    if layout.shards() == shards {
        let copies = layout.partitions.clone();
        return of(shards, copies);
    }
    let node = NodeId([7; 16]);
    let shard = |shard| placement::Place {
        node,
        shard: ShardId(shard),
    };
    let places: Vec<_> = (0..shards).map(shard).collect();
    let count = layout.partitions.len() as u16;
    let plan = placement::plan(count, &places, Policy::Contiguous).expect("there are shards");
    let owners = plan.into_iter().zip(&layout.partitions);
    let copies = owners.map(|(place, (_, epoch))| (places[place].shard, epoch.next()));
    of(shards, copies.collect())
}

fn of(shards: u16, copies: Vec<Place>) -> Plan {
    Plan {
        shards,
        copies,
        migrations: MigrationTable::default(),
    }
}

/// A layout in which every partition has a first, empty copy.
pub(super) fn first_layout(partitions: u16, shards: u16) -> Layout {
    let logs = (0..shards).map(|_| LogId(*uuid::Uuid::new_v4().as_bytes()));
    let mut layout = Layout::empty(partitions, std::iter::empty());
    layout.partitions = plan(&layout, shards).copies;
    layout.logs = logs.map(|log| log.0).collect();
    layout
}

impl<H: Home> Recovery<'_, H> {
    /// Recovers everything for so many shards.
    pub(super) fn run<S: ImageStore + Sync>(
        &self,
        layout: Layout,
        shards: u16,
        stores: &mut [S],
    ) -> Result<(Layout, Vec<Recovered<H>>), RecoveryError> {
        let replayed = self.replay_with(&Progress::default(), &layout, stores)?;
        let plan = plan(&layout, shards);
        self.open(layout, &plan, replayed, stores)
    }
}
