use std::path::PathBuf;

use super::*;

fn spec(product: Product, durability: Durability) -> ServerSpec {
    ServerSpec {
        product,
        binary: PathBuf::from("/bin/false"),
        durability,
        dir: PathBuf::from("/data/x"),
        cpus: vec![0],
        extra: "--no-pin".to_owned(),
    }
}

fn address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 21_000))
}

#[test]
fn durability_is_the_same_promise_in_both_languages() {
    for (durability, peer, own) in [
        (
            Durability::EverySecond,
            "--appendfsync everysec",
            "--durability relaxed",
        ),
        (
            Durability::Always,
            "--appendfsync always",
            "--durability strict",
        ),
    ] {
        let redis = spec(Product::Redis, durability)
            .arguments(address())
            .join(" ");
        assert!(
            redis.contains("--appendonly yes") && redis.contains(peer),
            "{redis}"
        );
        let ephesus = spec(Product::Ephesus, durability)
            .arguments(address())
            .join(" ");
        assert!(ephesus.starts_with("serve --data-dir /data/x/data --listen 127.0.0.1:21000"));
        assert!(
            ephesus.contains(own) && ephesus.ends_with("--no-pin"),
            "{ephesus}"
        );
    }
}

#[test]
fn snapshots_are_off_by_an_empty_argument_of_its_own() {
    let arguments = spec(Product::Valkey, Durability::Always).arguments(address());
    let save = arguments
        .iter()
        .position(|word| word == "--save")
        .expect("--save");
    assert_eq!(arguments[save + 1], "");
}

#[test]
fn ports_in_use_are_passed_over() {
    let base = ports::free_block(3).expect("port");
    let held = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, base + 2));
    // All there are, once around.
    let mut given = (0..1_000).map(|_| ports::free_block(3).expect("port"));
    assert!(held.is_err() || given.all(|next| next != base));
}

#[test]
fn a_server_that_ends_at_once_is_reported_with_its_output() {
    let dir = tempfile::tempdir().expect("dir");
    let mut failing = spec(Product::Redis, Durability::Always);
    failing.dir = dir.path().to_owned();
    failing.cpus = crate::affinity::allowed().expect("cpus");
    failing.binary = PathBuf::from("/bin/ls");
    match Server::start(failing) {
        Err(BenchError::Failed { problem, .. }) => {
            assert!(
                problem.starts_with("exited early") && problem.contains("ls: "),
                "{problem}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_case_adds_comes_last_and_so_decides() {
    let mut in_memory = spec(Product::Valkey, Durability::EverySecond);
    in_memory.extra = "--appendonly no".to_owned();
    let line = in_memory.arguments(address()).join(" ");
    assert!(line.contains("--appendonly yes"), "{line}");
    assert!(line.ends_with("--appendonly no"), "{line}");
}
