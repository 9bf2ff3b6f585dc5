//! The floor of connections and streams: sockets of the standard library over loopback, between two threads.
//! `stream connect` prints nanoseconds to connect, send 8 bytes there and back, and close, the median; `stream BYTES` prints MB/s of
//! writes of so many bytes, until the other side confirms the last one. Compiled by `cargo xtask compare`; needs std alone.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 2000;
const VOLUME: usize = 1 << 30;
const MOST_WRITES: usize = 1 << 20;
/// Time limit for a peer that never replies.
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> std::io::Result<()> {
    let figure = match std::env::args().nth(1).and_then(|size| size.parse().ok()) {
        Some(size) => bandwidth(size)?,
        None => connect()?,
    };
    println!("{figure:.1}");
    Ok(())
}

fn connect() -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        loop {
            let mut stream = prepare(listener.accept()?.0)?;
            let mut message = [0; 8];
            stream.read_exact(&mut message)?;
            stream.write_all(&message)?;
            // The end of the caller.
            stream.read_to_end(&mut Vec::new())?;
        }
    });
    let mut nanoseconds = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let start = Instant::now();
        let mut stream = prepare(TcpStream::connect(address)?)?;
        stream.write_all(&[1; 8])?;
        stream.read_exact(&mut [0; 8])?;
        drop(stream);
        nanoseconds.push(start.elapsed().as_nanos() as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    Ok(nanoseconds[CONNECTIONS / 2])
}

fn bandwidth(size: usize) -> std::io::Result<f64> {
    let size = size.max(1);
    let count = (VOLUME / size).min(MOST_WRITES);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let reader = std::thread::spawn(move || -> std::io::Result<()> {
        let mut stream = prepare(listener.accept()?.0)?;
        let mut buffer = vec![0; size.clamp(4 << 10, 1 << 20)];
        let mut left = size * count;
        while left > 0 {
            let room = buffer.len().min(left);
            match stream.read(&mut buffer[..room])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => left -= count,
            }
        }
        stream.write_all(&[1])
    });
    let mut stream = prepare(TcpStream::connect(address)?)?;
    let message = vec![1; size];
    let start = Instant::now();
    for _ in 0..count {
        stream.write_all(&message)?;
    }
    stream.read_exact(&mut [0])?;
    let seconds = start.elapsed().as_secs_f64();
    if !matches!(reader.join(), Ok(Ok(()))) {
        return Err(std::io::Error::other("the other side failed"));
    }
    Ok((size * count) as f64 / seconds / 1e6)
}

fn prepare(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}
