//! How much of what was sent has arrived.

use std::os::fd::RawFd;

/// Where `struct tcp_info` has `tcpi_bytes_acked`, a `u64` (Linux 4.1 and later).
const BYTES_ACKED_AT: usize = 120;

/// Bytes that the other end of a connection has acknowledged so far.
#[must_use]
pub fn acknowledged_bytes(socket: RawFd) -> Option<u64> {
    let mut info = [0_u8; BYTES_ACKED_AT + size_of::<u64>()];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, and tells how many.
    let result = unsafe {
        let place = info.as_mut_ptr().cast();
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut len)
    };
    let acked = info.last_chunk().copied().map(u64::from_ne_bytes);
    acked.filter(|_| result == 0 && len as usize == info.len())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_the_other_end_has_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let before = acknowledged_bytes(here.as_raw_fd()).unwrap();
        here.write_all(&[7; 1000]).unwrap();
        there.read_exact(&mut [0; 1000]).unwrap();
        let acknowledged = || acknowledged_bytes(here.as_raw_fd()).unwrap() - before;
        let mut looks = 0;
        while acknowledged() != 1000 && looks < 1000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            looks += 1;
        }
        assert_eq!(acknowledged(), 1000);
        assert_eq!(acknowledged_bytes(-1), None);
    }
}
