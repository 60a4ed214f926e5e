use serde::Serialize;

/// One question about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// How long a change of the table takes to every node.
    TableChange,
    /// How long the table cannot be changed after the leader is lost.
    LeaderLost,
    /// What coordination costs when nothing happens.
    Idle,
    /// What CLUSTER SLOTS costs.
    ClusterSlots,
    /// Two nodes in one cluster against each alone, pipeline 16.
    ScalingP16,
    /// The same without a pipeline.
    ScalingP1,
    /// What a large cluster costs its leader.
    Scale,
}

impl Case {
    /// Every case, in the order they run.
    pub const ALL: [Case; 7] = [
        Case::TableChange,
        Case::LeaderLost,
        Case::Idle,
        Case::ClusterSlots,
        Case::ScalingP16,
        Case::ScalingP1,
        Case::Scale,
    ];

    /// Its name in `--cases`.
    pub fn name(self) -> &'static str {
        match self {
            Case::TableChange => "table-change",
            Case::LeaderLost => "leader-lost",
            Case::Idle => "idle",
            Case::ClusterSlots => "cluster-slots",
            Case::ScalingP16 => "scaling-p16",
            Case::ScalingP1 => "scaling-p1",
            Case::Scale => "scale",
        }
    }

    /// What it shows, in words.
    pub fn title(self) -> &'static str {
        match self {
            Case::TableChange => "a change of the table until every one of 10 nodes answers by it",
            Case::LeaderLost => "SIGKILL of the leading coordinator until a change is accepted",
            Case::Idle => "CPU of 10 nodes and 3 coordinators without clients",
            Case::ClusterSlots => "CLUSTER SLOTS of 1024 partitions on 64 shards",
            Case::ScalingP16 => "two nodes in one cluster against each alone, pipeline 16",
            Case::ScalingP1 => "two nodes in one cluster against each alone, no pipeline",
            Case::Scale => "the leader's turns and memory in a large simulated cluster",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_are_those_of_the_flag() {
        for case in Case::ALL {
            assert_eq!(Case::from_str(case.name(), false), Ok(case));
        }
        assert_eq!(Case::value_variants(), Case::ALL);
    }
}
