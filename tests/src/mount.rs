//! A small file system of the test's own, to be filled.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Rng;
use crate::needs::lacks;
use crate::paths;

/// An ext4 image mounted over a loop device; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    home: TempDir,
}

impl SmallDisk {
    /// None where the machine does not permit it and tests may be left out.
    ///
    /// # Panics
    /// Where it does not permit it, unless `EPHESUS_ALLOW_SKIP=1`.
    #[must_use]
    pub fn mount(bytes: u64) -> Option<Self> {
        let home = paths::scratch();
        let image = home.path().join("image");
        let at = home.path().join("mount");
        File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .and_then(|()| std::fs::create_dir(&at))
            .expect("create the image of a small disk");
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-m", "0"]).arg(&image);
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(&at);
        match run(&mut make).and_then(|()| run(&mut mount)) {
            Ok(()) => Some(Self { home }),
            Err(reason) => {
                lacks(&format!("no small disk can be mounted: {reason}"));
                None
            }
        }
    }

    pub fn path(&self) -> PathBuf {
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

    /// Others who fill the disk, take at once whatever somebody sets free, and give all of it back, again and again and
    /// for up to `most` each; until it is dropped.
    pub fn come_and_go(&self, seed: u64, most: Duration) -> Others {
        let mut random = Rng::new(seed);
        let mut time = move || Duration::from_micros(random.below(most.as_micros() as u64));
        let is_over = Arc::new(AtomicBool::new(false));
        let path = self.path().join("others");
        let thread = {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let mut ballast = Ballast::new(path.clone());
                    let until = Instant::now() + time();
                    while Instant::now() < until {
                        ballast.grow(0);
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    drop(ballast);
                    std::thread::sleep(time());
                }
            })
        };
        Others {
            is_over,
            thread: Some(thread),
        }
    }

    fn fill_as(&self, name: &str, leave: u64) -> Ballast {
        let mut ballast = Ballast::new(self.path().join(name));
        ballast.grow(leave);
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
    path: PathBuf,
    file: File,
    len: u64,
}

impl Ballast {
    fn new(path: PathBuf) -> Self {
        let file = File::create(&path).expect("create the ballast");
        Self { path, file, len: 0 }
    }

    fn grow(&mut self, leave: u64) {
        let free = || free_bytes(&self.path).saturating_sub(leave);
        let mut step = free();
        while step >= 4096 {
            let (from, bytes) = (self.len as i64, step as i64);
            // SAFETY: fallocate on a descriptor that `file` keeps open.
            let status = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, from, bytes) };
            if status == 0 {
                self.len += step;
                step = free();
            } else {
                step /= 2;
            }
        }
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("could not remove {}: {error}", self.path.display());
        }
    }
}

/// Others who write to a disk, until this is dropped.
#[derive(Debug)]
pub struct Others {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Others {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if ended.is_some_and(|ended| ended.is_err()) {
            eprintln!("what has filled the disk has panicked");
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

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or_default();
    let is_done = output.status.success();
    is_done
        .then_some(())
        .ok_or_else(|| format!("{program}: {}: {line}", output.status))
}
