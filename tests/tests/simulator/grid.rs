//! Every party of a batch of migrations dies at every step of it, for a moment or for so long that it is failed, with what it
//! has just said lost or not; or nothing that it says arrives, or nothing that is said to it.
//!
//! `EPHESUS_SEEDS=n` runs the whole grid under n seeds.

use ephesus_coordinator::command::ClusterOptions;
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::protocol::PROTOCOL_VERSION;
use ephesus_coordinator::report::Query;
use ephesus_coordinator::state::MOVES_MAX;
use ephesus_wire::table::PartitionEntry;

use ephesus_engine::planted::Bug;

use crate::moment::Moment;
use crate::world::{Harm, Kill, Party, Shape, World};

/// How long a party is away, ms: its start changes nothing, or it was failed before.
const AWAY_MS: [u64; 2] = [150, 3_500];

const HARMS: [Harm; 5] = [
    Harm::Dies,
    Harm::DiesUnheard,
    Harm::IsMute,
    Harm::IsDeaf,
    Harm::Stands,
];

/// Which partition moves, with two others of its shard.
const PARTITION: u16 = 4;
const MOVES: usize = 3;

pub(crate) fn shape() -> Shape {
    Shape {
        coordinators: 3,
        nodes: 3,
        options: ClusterOptions {
            partitions: 9,
            min_nodes: 3,
            policy: Policy::RoundRobin,
            heartbeat_timeout_ms: 2_000,
        },
        is_plain: true,
        auto_rebalance: None,
        moves_max: MOVES_MAX,
        speaks: PROTOCOL_VERSION,
    }
}

/// All of the grid, in order.
pub(crate) fn kills() -> impl Iterator<Item = Kill> {
    let parties = [Party::Source, Party::Target, Party::Leader];
    Moment::ALL.into_iter().flat_map(move |moment| {
        parties.into_iter().flat_map(move |party| {
            AWAY_MS.into_iter().flat_map(move |away_ms| {
                HARMS.into_iter().map(move |harm| Kill {
                    moment,
                    party,
                    harm,
                    away_ms,
                })
            })
        })
    })
}

/// One batch in which one party dies; whether it came to that.
pub(crate) fn run(seed: u64, kill: Kill, mistake: Option<Bug>) -> Result<bool, String> {
    let mut world = World::new(seed, shape(), None)?;
    world.mistake = mistake;
    world.heal()?;
    world.run_until(world.now + 1_000)?;
    let latest = world.checks.latest().cloned().ok_or("no table")?;
    let entries = &latest.table.entries;
    let place = |entry: &PartitionEntry| entry.primary().map(|owner| (owner.node, owner.shard));
    let owner = entries.get(usize::from(PARTITION)).and_then(place);
    let (node, _) = owner.ok_or("no owner")?;
    let mut nodes = world.nodes.iter();
    let other = nodes.find(|process| process.disk.id != node);
    let other = other.ok_or("no other")?.name.clone();
    let of_owner = (0..)
        .zip(entries)
        .filter(|(_, entry)| place(entry) == owner);
    let of_owner = of_owner.map(|(partition, _)| (partition, other.clone(), 0));
    let moves: Vec<_> = of_owner.take(MOVES).collect();
    assert_eq!(moves.len(), MOVES, "enough of them");
    let moved = moves.clone();
    world.kill = Some(kill);
    let leader = world.leader().ok_or("nobody leads")?;
    world.ask(leader, Query::MoveAll { moves });
    world.run_until(world.now + 2_000 + kill.away_ms)?;
    world.heal()?;
    world.run_until(world.now + 1_000)?;
    let is_struck = world.is_struck;
    let latest = world.checks.latest().cloned().ok_or("no table")?;
    let last = latest.migrations.last.0;
    if is_struck && last != MOVES as u64 {
        return Err(format!("{last} migrations were planned"));
    }
    let entries = &latest.table.entries;
    let has_stayed = |partition: u16| entries.get(usize::from(partition)).and_then(place) == owner;
    let stayed = moved
        .iter()
        .filter(|(partition, ..)| has_stayed(*partition));
    let stayed = stayed.count();
    if stayed != 0 && stayed != MOVES {
        return Err(format!(
            "{stayed} of {MOVES} partitions of a batch have stayed"
        ));
    }
    world.read_everything()?;
    world.checks.promises()?;
    Ok(is_struck)
}

#[test]
fn whoever_dies_or_is_cut_off_at_any_step_of_a_move_loses_nothing() {
    let seeds = crate::seeds(0..1);
    for seed in seeds {
        let mut runs = 0;
        for kill in kills() {
            match run(seed, kill, None) {
                Ok(true) => runs += 1,
                Ok(false) => panic!("seed {seed}: {kill:?}: it did not come to that"),
                Err(violation) => panic!("seed {seed}: {kill:?}: {violation}"),
            }
        }
        println!("seed {seed}: {runs} runs");
        assert_eq!(runs, Moment::ALL.len() * 3 * HARMS.len() * AWAY_MS.len());
    }
}
