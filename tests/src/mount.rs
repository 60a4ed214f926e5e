//! A small file system of the test's own, to be filled.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::paths;

/// An ext4 image mounted over a loop device; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    home: TempDir,
}

impl SmallDisk {
    /// # Panics
    /// When mounting is not permitted: a test that cannot run says so and fails. Run it as root, or
    /// leave it out by name.
    pub fn mount(bytes: u64) -> Self {
        let home = paths::scratch();
        let image = home.path().join("image");
        let at = home.path().join("mount");
        File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .and_then(|()| std::fs::create_dir(&at))
            .expect("create the image of a small disk");
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&at));
        Self { home }
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.home.path().join("mount")
    }

    /// Bytes an unprivileged writer could still write.
    pub fn free_bytes(&self) -> u64 {
        free_bytes(&self.path())
    }

    /// Fills the disk until `leave` bytes are free; the returned file gives the space back.
    pub fn fill(&self, leave: u64) -> Ballast {
        self.fill_as("ballast", leave)
    }

    /// The same once more, beside what fills it already.
    pub fn fill_more(&self, leave: u64) -> Ballast {
        self.fill_as("more", leave)
    }

    fn fill_as(&self, name: &str, leave: u64) -> Ballast {
        let path = self.path().join(name);
        let file = File::create(&path).expect("create the ballast");
        let ballast = Ballast { path };
        let mut len = 0;
        let mut step = self.free_bytes().saturating_sub(leave);
        while step >= 4096 {
            // SAFETY: fallocate on a descriptor that `file` keeps open.
            let status = unsafe {
                libc::fallocate(std::os::fd::AsRawFd::as_raw_fd(&file), 0, len, step as i64)
            };
            if status == 0 {
                len += step as i64;
                step = self.free_bytes().saturating_sub(leave);
            } else {
                step /= 2;
            }
        }
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("could not unmount {}", self.path().display());
        }
    }
}

/// A file that fills a disk; removed when dropped.
#[derive(Debug)]
pub struct Ballast {
    path: std::path::PathBuf,
}

impl Drop for Ballast {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("could not remove {}: {error}", self.path.display());
        }
    }
}

fn free_bytes(path: &Path) -> u64 {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: statvfs is plain data, for which all zeros is a valid value.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    let status = unsafe { libc::statvfs(path.as_ptr(), &raw mut stats) };
    assert_eq!(status, 0, "statvfs: {}", std::io::Error::last_os_error());
    stats.f_bavail * stats.f_frsize
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\nThis test mounts a small disk, so it has to run as root; without root leave \
         it out with: cargo test --workspace -- --skip full_disk",
        String::from_utf8_lossy(&output.stderr).trim()
    );
}
