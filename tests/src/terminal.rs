//! A program on a terminal of its own, as a person sits before it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the program may take for what a test waits for.
const LIMIT: Duration = Duration::from_secs(30);

/// The person's side.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Terminal {
    /// Starts a program whose input, output and errors are the terminal, which controls it.
    pub fn start(mut command: Command) -> Self {
        let (ours, theirs) = open();
        let end = |fd: &OwnedFd| fd.try_clone().expect("duplicate an end of the terminal");
        command
            .stdin(end(&theirs))
            .stdout(end(&theirs))
            .stderr(end(&theirs));
        // SAFETY: all three are async-signal-safe and touch no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // As a login does: tests that run in a shell's background inherit that it is ignored.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("start the program");
        // The last open ends are the program's: the screen ends with it.
        drop((command, theirs));
        let screen = Arc::<Mutex<String>>::default();
        let (mut input, shown) = (File::from(end(&ours)), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                match input.read(&mut bytes) {
                    Ok(0) => return,
                    Ok(count) => {
                        let text = String::from_utf8_lossy(&bytes[..count]);
                        shown.lock().expect("the screen").push_str(&text);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // EIO: the program has ended.
                    Err(_) => return,
                }
            }
        });
        Self {
            child,
            keyboard: File::from(ours),
            screen,
            reader: Some(reader),
        }
    }

    /// What was shown so far, what was typed included.
    pub fn screen(&self) -> String {
        self.screen.lock().expect("the screen").clone()
    }

    /// Waits until the screen has `text`.
    ///
    /// # Panics
    /// When it never has.
    pub fn wait_shows(&self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.screen().contains(text) {
            assert!(
                Instant::now() < deadline,
                "no {text:?} in {}",
                self.screen()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Presses these keys; `\n` is Enter, `\x04` the end of the input, `\x03` an interrupt.
    pub fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("press keys");
    }

    /// Waits for the program's end; answers how, and all that was shown.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait_exit(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("poll the program") {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on: {}", self.screen());
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader");
        }
        (status, self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends: the person's and the program's.
fn open() -> (OwnedFd, OwnedFd) {
    let owned = |fd| {
        assert!(fd >= 0, "no terminal: {}", std::io::Error::last_os_error());
        // SAFETY: a descriptor that was just opened and is nobody else's.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    // SAFETY: no memory is involved.
    let ours =
        owned(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) });
    let raw = ours.as_raw_fd();
    let unlock: libc::c_int = 0;
    // SAFETY: `unlock` outlives the call, which reads one int of it.
    let unlocked = unsafe { libc::ioctl(raw, libc::TIOCSPTLCK, &raw const unlock) };
    assert_eq!(unlocked, 0, "unlock: {}", std::io::Error::last_os_error());
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the request takes flags as its argument and opens the other end.
    let theirs = owned(unsafe { libc::ioctl(raw, libc::TIOCGPTPEER, flags) });
    (ours, theirs)
}
