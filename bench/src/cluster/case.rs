use serde::Serialize;

/// One question about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// a change of the table until every one of 10 nodes answers by it
    TableChange,
    /// SIGKILL of the leading coordinator until a change is accepted
    LeaderLost,
    /// CPU of 10 nodes and 3 coordinators without clients
    Idle,
    /// CLUSTER SLOTS of 1024 partitions on 64 shards
    ClusterSlots,
    /// two nodes in one cluster against each alone, pipeline 16
    ScalingP16,
    /// two nodes in one cluster against each alone, no pipeline
    ScalingP1,
}
