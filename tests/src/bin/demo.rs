//! `make demo`: writes from several connections, kills the node with SIGKILL, restarts it on the same
//! data directory and verifies every acknowledgement it had given.
#![expect(
    clippy::disallowed_methods,
    reason = "the demo measures a real process"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use ephesus_tests::ledger::{self, Unit};
use ephesus_tests::load::Load;
use ephesus_tests::{Node, Options, Rng};

const CONNECTIONS: u64 = 6;
const UNITS_PER_CONNECTION: u64 = 200;
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("demo"));
    let mut node = Node::start(Options::default());
    println!(
        "ephesus serves on 127.0.0.1:{}, data in {}",
        node.port(),
        node.data_dir().display()
    );
    let mut units: Vec<Vec<Unit>> = (0..CONNECTIONS)
        .map(|writer| {
            let first = writer * UNITS_PER_CONNECTION;
            (first..first + UNITS_PER_CONNECTION)
                .map(Unit::new)
                .collect()
        })
        .collect();
    let mut total = 0;
    for round in 1..=ROUNDS {
        let load = Load::start(node.port(), units, &mut rng);
        std::thread::sleep(Duration::from_millis(rng.between(800, 1600)));
        load.expect_break();
        let acknowledged = load.acknowledged();
        let pid = node.process().pid();
        node.kill();
        units = load.finish();
        println!("round {round}: {acknowledged} writes acknowledged, then kill -9 {pid}");
        let begun = Instant::now();
        node.restart();
        let back = begun.elapsed().as_millis();
        let keys = ledger::verify(&mut node.client(), units.iter_mut().flatten());
        println!("         back after {back} ms; all {keys} keys hold what was acknowledged");
        total += acknowledged;
    }
    node.stop();
    println!(
        "proved: of {total} acknowledged SET, MSET, RENAME, INCR and DEL over {CONNECTIONS} \
         connections and {ROUNDS} kills none was lost, no MSET or RENAME was half done, nothing that \
         a client had read was taken back, and no value appeared that was never written"
    );
    ExitCode::SUCCESS
}
