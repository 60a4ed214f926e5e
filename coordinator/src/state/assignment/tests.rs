//! What logs have decided is decided.

use super::super::tests::{after, bootstrap, id, register};
use super::*;
use crate::command::Command;
use crate::placement::murmur3::x64_128;

/// The name and rack, shards, and capacity of each node.
const NODES: [(&str, &str, u16, u32); 4] = [
    ("athens", "east", 3, 100),
    ("byzantium", "west", 1, 250),
    ("cyrene", "east", 2, 40),
    ("delphi", "", 2, 100),
];

/// A hash of who owns what, by partition.
fn owners(state: &State) -> String {
    let mut bytes = Vec::new();
    for entry in &state.table.entries {
        let owner = entry.primary().expect("an owner");
        bytes.extend([owner.node.0[0], owner.shard.0 as u8]);
    }
    format!("{:016x}", x64_128(&bytes, 0)[0])
}

/// Who owns what after the first assignment, and once cyrene was given up with its data.
fn assigned(policy: &str) -> [String; 2] {
    let policy: Policy = policy.parse().expect("a policy");
    let mut commands = vec![bootstrap(512, 4, policy)];
    for (n, (name, rack, shards, capacity)) in (1..).zip(NODES) {
        let mut command = register(n, name, 1, shards);
        if let Command::Register(registration) = &mut command {
            registration.addresses.rack = rack.to_owned();
            registration.capacity = capacity;
        }
        commands.push(command);
    }
    let first = owners(&after(&commands));
    let (node, incarnation, lose_data) = (id(3), 1, true);
    commands.push(Command::Fail { node, incarnation });
    commands.push(Command::Remove { node, lose_data });
    [first, owners(&after(&commands))]
}

#[test]
fn logs_are_replayed_to_the_owners_that_they_had() {
    for (policy, expected) in [
        ("contiguous", ["2284f7a2a338f654", "35b9d795e94c9ffb"]),
        ("round-robin", ["2c34e4f00236d2f9", "faf0a54bf14b8be6"]),
        ("sticky", ["68eac2b5d7a42221", "c6b32f899edecbac"]),
        (
            "cooperative-sticky",
            ["68eac2b5d7a42221", "c6b32f899edecbac"],
        ),
        ("ring", ["f216aa7f40a02c49", "9b0551c416bf2281"]),
        (
            "ring:vnodes=300,seed=7",
            ["58f68c5d732e6a66", "4e827077b90ad67b"],
        ),
        ("ring:tokens=even", ["24c244af6df0ea30", "f7c21dc26fcdacaa"]),
        ("rendezvous", ["c1dcee8e400a2f3d", "be75de3523776fc8"]),
        ("jump", ["6fafaa5e3cf099a9", "da1a52ad711f53a0"]),
        ("maglev", ["04b807aec63598f1", "004c52781753c582"]),
        ("bounded-ring", ["688eca2ae5b7b5b4", "4801c174370d6095"]),
        (
            "bounded-ring:epsilon=0.05",
            ["41877668fe8202a2", "5558cb9e03f03778"],
        ),
    ] {
        assert_eq!(assigned(policy), expected, "{policy}");
    }
}
