use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: MigrateArgs,
}

fn line(words: &[&str]) -> std::result::Result<MigrateArgs, clap::Error> {
    let words = ["migrate"].iter().chain(words);
    Line::try_parse_from(words).map(|line| line.arguments)
}

fn parsed(words: &[&str]) -> MigrateArgs {
    line(words).expect("good arguments")
}

#[test]
fn a_cluster_that_runs_is_named_in_full_or_not_at_all() {
    const C: [&str; 2] = ["--coordinator", "10.0.0.1:7500,10.0.0.2:7500"];
    line(&C).expect_err("no nodes");
    line(&["--nodes", "a,b"]).expect_err("no coordinator");
    line(&["--cluster-secret-file", "s"]).expect_err("no coordinator");
    for wrong in ["a", "a,a", "a,b,c"] {
        let found = parsed(&[C[0], C[1], "--nodes", wrong]).cluster();
        let flag = |error: BenchError| error.to_string().starts_with("--nodes: ");
        assert!(found.is_err_and(flag), "{wrong}");
    }
    let found = parsed(&[C[0], C[1], "--nodes", "a,b"]).cluster();
    let found = found.expect("good arguments").expect("a cluster");
    assert_eq!(found.coordinators, ["10.0.0.1:7500", "10.0.0.2:7500"]);
    assert_eq!(found.nodes, ["a", "b"]);
    assert!(found.secret.is_none());
    assert!(parsed(&[]).cluster().expect("good arguments").is_none());
}

#[test]
fn its_secret_comes_from_a_file_that_others_cannot_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    fs::write(&path, "of sixteen bytes at the least\n").expect("a file");
    let words = |path| {
        [
            "--coordinator",
            "a:1",
            "--nodes",
            "a,b",
            "--cluster-secret-file",
            path,
        ]
    };
    let text = path.to_str().expect("a path");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("permissions");
    let open = parsed(&words(text))
        .cluster()
        .expect_err("everybody may read it");
    assert!(open.to_string().contains("chmod"), "{open}");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("permissions");
    let found = parsed(&words(text)).cluster().expect("good arguments");
    assert!(found.expect("a cluster").secret.is_some());
    parsed(&words("/nowhere"))
        .cluster()
        .expect_err("there is no such file");
}

#[test]
fn nothing_else_is_compared_in_a_cluster_that_runs() {
    let words = [
        "--coordinator",
        "a:1",
        "--nodes",
        "a,b",
        "--servers",
        "ephesus,valkey",
    ];
    let flags = parsed(&words);
    let error = Bench::new(&flags).err().expect("Valkey is not there");
    assert!(error.to_string().contains("--coordinator"), "{error}");
}

#[test]
fn more_data_than_there_is_memory_for_is_refused() {
    let much = "--ephesus /bin/true --load 0 --keys 1000000000 --value-bytes 1048576";
    let flags = parsed(&much.split(' ').collect::<Vec<_>>());
    let bench = Bench::new(&flags).expect("two CPUs and a disk");
    let [much] = flags.shapes()[..] else {
        panic!("one case")
    };
    let error = bench.check_memory(much, 1 << 40).expect_err("a TiB");
    assert!(error.to_string().starts_with("--keys"), "{error}");
    let little = Shape::new(100, None, true);
    bench.check_memory(little, 1 << 30).expect("a GiB");
}
