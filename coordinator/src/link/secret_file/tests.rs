use std::fs::{self, Permissions};

use super::*;

fn file(dir: &tempfile::TempDir, contents: &[u8], mode: u32) -> PathBuf {
    let path = dir.path().join("secret");
    let _ = fs::remove_file(&path);
    fs::write(&path, contents).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_private_file_of_sixteen_bytes_is_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [0o600, 0o400, 0o640] {
        load_secret(&file(&dir, b"0123456789abcdef\n", mode)).unwrap();
    }
    load_secret(&file(&dir, &[b'x'; SECRET_BYTES_MAX], 0o600)).unwrap();
}

#[test]
fn a_file_that_others_may_read_is_refused_with_the_command_to_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir, b"0123456789abcdef\n", 0o644);
    let error = load_secret(&path).unwrap_err().to_string();
    assert!(error.contains(&format!("chmod o-rwx '{}'", path.display())));
    assert!(load_secret(&file(&dir, b"0123456789abcdef\n", 0o602)).is_err());
}

#[test]
fn short_long_and_missing_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let short = load_secret(&file(&dir, b"0123456789abcde\n", 0o600)).unwrap_err();
    assert!(short.to_string().contains("15"), "{short}");
    let long = file(&dir, &[b'x'; SECRET_BYTES_MAX + 1], 0o600);
    assert!(load_secret(&long).is_err());
    let missing = load_secret(&dir.path().join("nowhere")).unwrap_err();
    assert!(missing.to_string().contains("nowhere"), "{missing}");
}
