//! What is found in a store, and what is made of a reader that ends badly.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use ephesus_wire::block::BlockBuilder;
use ephesus_wire::{Epoch, Lsn, PartitionId};

use super::*;
use crate::image::{Generation, ImageId, ImageWriter};

#[test]
fn a_store_is_named_by_its_number_and_how_many_there_are() {
    let one: OneStore = "1/4".parse().expect("a store");
    assert_eq!((one.db, one.stores), (DbId(1), 4));
    assert_eq!(one.to_string(), "1/4");
    for bad in ["", "1", "4/4", "0/0", "1/5", "a/4", "1/4/1", "-1/4"] {
        assert!(bad.parse::<OneStore>().is_err(), "{bad:?}");
    }
}

#[test]
fn the_last_words_of_a_reader_say_how_it_ended() {
    let output = |status, stderr: &str| Output {
        status: ExitStatus::from_raw(status),
        stdout: Vec::new(),
        stderr: stderr.as_bytes().to_vec(),
    };
    let refused = output(1 << 8, "error: db-1: cannot open it; restore it\n");
    assert_eq!(last_words(&refused), "db-1: cannot open it; restore it");
    let aborted = last_words(&output(libc::SIGABRT, "\nthread panicked:\n  bad page\n"));
    assert!(aborted.contains("SIGABRT"), "{aborted}");
    assert!(
        aborted.ends_with(": thread panicked:; bad page"),
        "{aborted}"
    );
}

/// A store with one image of one key, whose manifest is as `change` leaves it.
fn findings_of(change: impl FnOnce(&mut Manifest)) -> Findings {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut store = SledStore::open(dir.path(), DbId(0), 1).expect("a new store");
    let image = ImageId {
        partition: PartitionId(3),
        epoch: Epoch(1),
        generation: Generation(1),
    };
    let (mut builder, mut built) = (BlockBuilder::new(), Vec::new());
    builder.push(b"key", b"value", 0, |block| built.push(block.to_vec()));
    builder.finish(|block| built.push(block.to_vec()));
    let mut writer = ImageWriter::begin(&mut store, image).expect("begin");
    for block in &built {
        writer.put(&mut store, block).expect("put");
    }
    writer.seal(&mut store).expect("seal");
    let mut digest = Digest::EMPTY;
    digest.add(b"key", b"value", 0);
    let (blocks, bytes) = writer.written();
    let mut manifest = Manifest {
        image,
        log: [7; 16],
        lsn_start: Lsn(1),
        lsn_end: Lsn(1),
        seq_start: 0,
        count: 1,
        digest: digest.to_words(),
        blocks,
        bytes,
        created_ms: 1,
    };
    change(&mut manifest);
    writer.switch(&mut store, &manifest).expect("switch");
    drop(store);

    let mut out = Vec::new();
    let one = OneStore {
        db: DbId(0),
        stores: 1,
    };
    read_store(dir.path(), one, &mut out).expect("readable");
    let findings: Findings = postcard::from_bytes(&out).expect("findings");
    assert_eq!(findings.images[0].manifest(), manifest);
    findings
}

#[test]
fn keys_are_compared_with_the_manifest_by_count_and_by_digest() {
    let sound = findings_of(|_| ());
    assert!(sound.is_there && sound.unlisted.is_empty());
    let [image] = &sound.images[..] else {
        panic!("{sound:?}");
    };
    assert_eq!((image.keys, image.blocks, &image.problem), (1, 1, &None));
    for findings in [
        findings_of(|manifest| manifest.count = 2),
        findings_of(|manifest| manifest.digest[1] ^= 1),
    ] {
        let problem = findings.images[0].problem.as_ref().expect("a problem");
        assert!(problem.contains("its manifest says"), "{problem}");
    }
}

#[test]
fn a_store_that_is_not_there_is_not_created() {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut out = Vec::new();
    let one = OneStore {
        db: DbId(2),
        stores: 4,
    };
    read_store(dir.path(), one, &mut out).expect("nothing to read");
    let findings: Findings = postcard::from_bytes(&out).expect("findings");
    assert!(!findings.is_there);
    let mut entries = std::fs::read_dir(dir.path()).expect("list");
    assert!(entries.next().is_none());
}
