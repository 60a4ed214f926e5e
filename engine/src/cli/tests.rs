mod compatibility;
mod reference;

use super::*;

fn serve(args: &[&str]) -> Result<ServeOptions, String> {
    let args = ["ephesus", "serve"].iter().chain(args);
    match Cli::try_parse_from(args)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Serve(serve) => serve.options(),
        other => unreachable!("serve was asked for, not {other:?}"),
    }
}

#[test]
fn bytes_have_units_of_1024() {
    for (text, expected) in [
        ("0", 0),
        ("4096", 4096),
        ("7b", 7),
        ("1k", 1 << 10),
        ("2KB", 2 << 10),
        ("3kib", 3 << 10),
        ("64m", 64 << 20),
        ("4G", 4 << 30),
        ("1TiB", 1 << 40),
        ("18446744073709551615", u64::MAX),
        ("16777215t", 16_777_215 << 40),
    ] {
        assert_eq!(bytes(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_no_number_of_bytes_is_refused() {
    for text in [
        "",
        "g",
        "-1",
        "1.5g",
        "1 g",
        "1x",
        "1gg",
        "0x10",
        "18446744073709551616",
        "16777216t",
        "99999999999g",
    ] {
        assert!(bytes(text).is_err(), "{text}");
    }
    assert_eq!(
        bytes("12q"),
        Err("unknown unit 'q', use k, m, g or t".to_owned())
    );
}

#[test]
fn flags_become_options() {
    let options = serve(&[]).expect("defaults");
    assert_eq!(options.listen.to_string(), "127.0.0.1:7379");
    assert_eq!((options.shards, options.partitions), (None, None));
    assert_eq!((options.max_memory, options.wal_budget), (0, 1 << 30));
    assert_eq!(options.durability, Durability::Strict);
    assert_eq!(options.on_damage, OnDamage::Refuse);
    assert!(options.pin && !options.name.is_empty());
    let line = "--shards 3 --partitions 16384 --durability relaxed --max-memory 2g --wal-budget 64m \
                --name x --max-clients 5 --on-damage cut --no-pin --data-dir /d";
    let args: Vec<&str> = line.split_whitespace().collect();
    let options = serve(&args).expect("valid flags");
    assert_eq!(
        (options.shards, options.partitions),
        (Some(3), Some(16_384))
    );
    assert_eq!(
        (options.max_memory, options.wal_budget),
        (2 << 30, 64 << 20)
    );
    assert_eq!(options.durability, Durability::Relaxed);
    assert_eq!(options.on_damage, OnDamage::Cut);
    assert_eq!((&options.name[..], options.max_clients), ("x", 5));
    assert!(!options.pin);
    assert_eq!(options.data_dir, PathBuf::from("/d"));
}

#[test]
fn bad_flags_are_refused_by_name() {
    for (args, named) in [
        (&["--shards", "0"][..], "--shards"),
        (&["--partitions", "16385"], "--partitions"),
        (&["--wal-budget", "63m"], "--wal-budget"),
        (&["--max-memory", "lots"], "--max-memory"),
        (&["--durability", "none"], "--durability"),
        (&["--listen", "localhost"], "--listen"),
        (&["--listen", "0.0.0.0:7379"], "--listen"),
    ] {
        let error = serve(args).expect_err(named);
        assert!(error.contains(named), "{error}");
    }
    let beyond = ["--listen", "0.0.0.0:7379", "--insecure"];
    let error = serve(&beyond).expect_err("peers and coordinators need the secret");
    assert!(error.contains("--cluster-secret-file"), "{error}");
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, b"a secret of the tests").expect("written");
    let path = file.path().to_str().expect("plain");
    let secret = ["--cluster-secret-file", path];
    let error = serve(&[&beyond[..2], &secret].concat()).expect_err("clients have no password");
    assert!(error.contains("--insecure"), "{error}");
    assert!(serve(&[&beyond[..], &secret].concat()).is_ok());
}

#[test]
fn a_node_that_nobody_could_reach_is_refused() {
    for (flags, named) in [
        (["--max-clients", "0"], "--max-clients"),
        (["--listen", "127.0.0.1:0"], "--listen 127.0.0.1:0"),
        (["--listen", "[::1]:0"], "--listen [::1]:0"),
    ] {
        let error = serve(&flags).expect_err(named);
        assert!(error.contains(named), "{error}");
    }
}
