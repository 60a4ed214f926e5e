//! Parts of a node beside their limits, as `cargo bench --bench micro` shows them, with little data.

use clap::Parser;
use ephesus_bench::record::Record;

use parts::MicroArgs;

#[path = "../benches/micro/parts.rs"]
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
mod parts;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    micro: MicroArgs,
}

#[test]
fn parts_of_a_node_are_shown_beside_their_limits() {
    let scratch = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (data, results) = (scratch(), scratch());
    let json = results.path().join("micro.json");
    let [dir, file] = [data.path(), &json].map(|path| path.display().to_string());
    let flags = format!("micro --quick --seconds 1 --dir {dir} --json {file}");
    let line = Line::parse_from(flags.split(' '));
    line.micro.execute().expect("figures");
    let text = std::fs::read_to_string(json).expect("a file");
    let record = Record::parse(&text).expect("a record");
    let rows = &record.cases[0].rows;
    assert_eq!(rows.len(), 11);
    assert!(rows.iter().any(|row| row.name == "image, of disk"));
    for row in rows {
        let all = row.samples.values().flatten().flatten();
        assert_eq!(row.samples.keys().collect::<Vec<_>>(), ["ephesus", "limit"]);
        assert!(
            all.clone().count() == 10 && all.clone().all(|value| *value > 0.0),
            "{row:?}"
        );
    }
    assert_eq!(std::fs::read_dir(data.path()).expect("dir").count(), 0);
}
