//! The leader of a large cluster, as `cargo bench --bench leader` lets it live, smaller.

use ephesus_coordinator::coordinator::UNDECIDED_MAX;

use life::{Size, live};

#[path = "../benches/leader/life.rs"]
#[expect(dead_code, reason = "a bench shows more of it")]
mod life;

#[test]
fn a_leader_of_many_nodes_assigns_and_moves_everything_drops_nothing_and_encodes_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let size = Size {
        nodes: 100,
        partitions: 1024,
    };
    // Every step of the way has come to its end, or this is an error.
    let life = live(size, dir.path()).expect("a cluster");
    assert!(life.moves > 300, "many: {}", life.moves);
    // All sources want up to 16 decisions at the same moment.
    let undecided = life.undecided_max;
    assert!(undecided <= UNDECIDED_MAX + 16, "{undecided} under way");
    assert_eq!((life.dropped, life.encoded_again), (0, 0));
    let versions = life.versions as usize;
    assert!(life.encoded <= versions, "{} of {versions}", life.encoded);
}
