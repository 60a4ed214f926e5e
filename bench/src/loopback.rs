//! What one TCP connection over loopback can carry: the ceiling of everything that goes through one.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity;
use crate::error::{BenchError, Result};
use crate::interrupt;

#[cfg(test)]
mod tests;

const CHUNK_BYTES: usize = 256 << 10;

/// MB/s of one connection over `duration`, sent on one CPU and received on another.
///
/// # Errors
/// When a CPU may not be used or the connection breaks.
pub fn mb_per_s(from_cpu: usize, to_cpu: usize, duration: Duration) -> Result<f64> {
    let what = || BenchError::io("measuring loopback TCP");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(what())?;
    let address = listener.local_addr().map_err(what())?;
    let sending = TcpStream::connect(address).map_err(what())?;
    let (receiving, _) = listener.accept().map_err(what())?;
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(move || send(sending, from_cpu, duration));
        let receiver = scope.spawn(move || receive(receiving, to_cpu));
        (sender.join(), receiver.join())
    });
    let panicked = |_| Err(io::Error::other("a thread has panicked"));
    let began = sent.unwrap_or_else(panicked).map_err(what())?;
    let panicked = |_| Err(io::Error::other("a thread has panicked"));
    let (bytes, ended) = received.unwrap_or_else(panicked).map_err(what())?;
    interrupt::check()?;
    Ok(bytes as f64 / 1e6 / (ended - began).as_secs_f64())
}

/// Sends for so long; when it began.
fn send(mut stream: TcpStream, cpu: usize, duration: Duration) -> io::Result<Instant> {
    affinity::confine_current(&affinity::mask(&[cpu]))?;
    let chunk = vec![1; CHUNK_BYTES];
    let began = Instant::now();
    loop {
        stream.write_all(&chunk)?;
        if began.elapsed() >= duration || interrupt::requested() {
            return Ok(began);
        }
    }
}

/// Receives until the end: how much, and when that was.
fn receive(mut stream: TcpStream, cpu: usize) -> io::Result<(u64, Instant)> {
    affinity::confine_current(&affinity::mask(&[cpu]))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        match stream.read(&mut chunk)? {
            0 => return Ok((total, Instant::now())),
            length => total += length as u64,
        }
    }
}
