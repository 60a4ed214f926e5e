//! What one TCP connection over loopback can carry: the ceiling of everything that goes through one.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{During, Result};
use crate::{affinity, interrupt};

#[cfg(test)]
mod tests;

const CHUNK_BYTES: usize = 256 << 10;

/// MB/s of one connection over `duration`, sent on one CPU and received on another.
pub fn mb_per_s(from_cpu: usize, to_cpu: usize, duration: Duration) -> Result<f64> {
    let rate = measure(from_cpu, to_cpu, duration);
    interrupt::check()?;
    rate.during("measuring loopback TCP")
}

fn measure(from_cpu: usize, to_cpu: usize, duration: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sending = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiving, _) = listener.accept()?;
    let send = move || {
        affinity::confine_current(&[from_cpu])?;
        let chunk = vec![1; CHUNK_BYTES];
        let began = Instant::now();
        while began.elapsed() < duration && !interrupt::requested() {
            sending.write_all(&chunk)?;
        }
        Ok::<_, io::Error>(began)
    };
    let receive = move || {
        affinity::confine_current(&[to_cpu])?;
        let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0);
        loop {
            match receiving.read(&mut chunk)? {
                0 => return Ok::<_, io::Error>((bytes, Instant::now())),
                length => bytes += length,
            }
        }
    };
    let panicked = |_| io::Error::other("a thread has panicked");
    thread::scope(|scope| {
        let (sender, receiver) = (scope.spawn(send), scope.spawn(receive));
        let began = sender.join().map_err(panicked)??;
        let (bytes, ended) = receiver.join().map_err(panicked)??;
        Ok(bytes as f64 / 1e6 / (ended - began).as_secs_f64())
    })
}
