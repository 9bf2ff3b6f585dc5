//! The floor of tcp latency: two threads that exchange messages over loopback and spin on recv.
//! `tcp BYTES` prints nanoseconds one way, the median of all round trips. Compiled by `cargo xtask compare`; needs std
//! alone.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const WARM_UP: usize = 2000;
const ROUND_TRIPS: usize = 30_000;
/// Time limit for a peer that never replies.
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> std::io::Result<()> {
    let size = std::env::args().nth(1).and_then(|size| size.parse().ok()).unwrap_or(8);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let deadline = Instant::now() + LIMIT;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = prepare(listener.accept()?.0)?;
        let mut message = vec![0; size];
        for _ in 0..WARM_UP + ROUND_TRIPS {
            receive(&mut stream, &mut message, deadline)?;
            send(&mut stream, &message, deadline)?;
        }
        Ok(())
    });
    let mut stream = prepare(TcpStream::connect(address)?)?;
    let mut message = vec![0; size];
    let mut nanoseconds = Vec::with_capacity(WARM_UP + ROUND_TRIPS);
    for _ in 0..WARM_UP + ROUND_TRIPS {
        let start = Instant::now();
        send(&mut stream, &message, deadline)?;
        receive(&mut stream, &mut message, deadline)?;
        nanoseconds.push(start.elapsed().as_nanos() as f64 / 2.0);
    }
    if !matches!(echo.join(), Ok(Ok(()))) {
        eprintln!("tcp: the other side failed");
        std::process::exit(1);
    }
    let counted = &mut nanoseconds[WARM_UP..];
    counted.sort_by(f64::total_cmp);
    println!("{:.1}", counted[ROUND_TRIPS / 2]);
    Ok(())
}

fn prepare(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, mut message: &[u8], deadline: Instant) -> std::io::Result<()> {
    while !message.is_empty() {
        match stream.write(message) {
            Ok(sent) => message = &message[sent..],
            Err(error) => again(error, deadline)?,
        }
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, mut message: &mut [u8], deadline: Instant) -> std::io::Result<()> {
    while !message.is_empty() {
        match stream.read(message) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(received) => message = &mut message[received..],
            Err(error) => again(error, deadline)?,
        }
    }
    Ok(())
}

/// Nothing yet is no error before the deadline.
fn again(error: std::io::Error, deadline: Instant) -> std::io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock if Instant::now() < deadline => Ok(()),
        ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        _ => Err(error),
    }
}
