//! What goes over loopback, as somebody sees it who listens on the network.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::needs::lacks;

/// Bytes that the kernel keeps for a listener that is late.
const KEPT_BYTES: libc::c_int = 64 << 20;

/// Ethernet's and IP's headers; behind them both ports follow.
const PORTS_AT: usize = 14 + 20;

/// Looks for a text in all that goes over loopback.
#[derive(Debug)]
pub struct Wiretap {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Heard>,
}

/// What was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Bytes from and to the port.
    pub bytes: u64,
    /// Packets of it with the text.
    pub texts: u64,
}

impl Wiretap {
    /// Begins to listen to a port; none where that is [lacking](lacks).
    pub fn start(port: u16, text: &str) -> Option<Self> {
        let socket = match open() {
            Ok(socket) => socket,
            Err(error) => {
                lacks(&format!("nobody but root hears loopback: {error}"));
                return None;
            }
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, text) = (Arc::clone(&is_over), text.as_bytes().to_vec());
        let thread = std::thread::spawn(move || {
            let mut heard = Heard::default();
            let mut packet = vec![0; 1 << 17];
            loop {
                // SAFETY: the buffer is this function's own, and as long as is said.
                let len = unsafe {
                    let place = packet.as_mut_ptr().cast();
                    libc::recv(socket, place, packet.len(), libc::MSG_DONTWAIT)
                };
                let Ok(len) = usize::try_from(len) else {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let packet = &packet[..len];
                let ports = packet.get(PORTS_AT..PORTS_AT + 4).unwrap_or_default();
                if ports.chunks(2).any(|found| found == port.to_be_bytes()) {
                    heard.bytes += len as u64;
                    let found = packet.windows(text.len()).any(|part| part == text);
                    heard.texts += u64::from(found);
                }
            }
            // SAFETY: it is this thread's own.
            unsafe { libc::close(socket) };
            heard
        });
        Some(Self { is_over, thread })
    }

    /// Ends, and answers what was heard.
    ///
    /// # Panics
    /// When listening has.
    pub fn finish(self) -> Heard {
        self.is_over.store(true, Ordering::Release);
        self.thread.join().expect("it listens")
    }
}

/// A socket that gets every packet of loopback.
fn open() -> io::Result<libc::c_int> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: plain calls with arguments of this function; results are checked.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, libc::c_int::from(protocol));
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = libc::if_nametoindex(c"lo".as_ptr()) as libc::c_int;
        let len = size_of_val(&address) as libc::socklen_t;
        let bound = libc::bind(socket, (&raw const address).cast(), len);
        let kept = KEPT_BYTES;
        let len = size_of_val(&kept) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);
        let set = libc::setsockopt(socket, level, option, (&raw const kept).cast(), len);
        if bound < 0 || set < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}
