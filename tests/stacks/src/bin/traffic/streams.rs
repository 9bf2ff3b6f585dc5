//! Bytes of a stream: there and back, or one way.

use std::io::ErrorKind;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::figures::{Expense, Figure, Phase, Times, figure, half_round_trips};
use crate::sides::{self, Server};
use crate::way::Way;
use crate::{Options, Outcome};

/// Room for what is read at once.
const BUFFER: usize = 256 << 10;
/// Writes between two looks at the clock: small ones take less than that.
const WRITES: u64 = 16;

/// The server of [`ask`].
pub fn echo(way: &Way, options: &Options) -> Outcome {
    way.run(async {
        let (mut listener, address) = way.listen().await?;
        sides::announce(&address)?;
        let mut stream = listener.accept().await?;
        let mut message = vec![0; options.size];
        loop {
            match stream.read_exact(&mut message).await {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            };
            stream.write_all(&message).await?;
        }
    })
}

pub fn ask(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let times = way.run(async {
        let mut stream = way.connect(&server.address).await?;
        let (message, mut answer) = (vec![1; options.size], vec![0; options.size]);
        let (mut times, phase) = (Times::default(), Phase::new(options));
        let mut begun = Instant::now();
        while !phase.is_over(begun) {
            stream.write_all(&message).await?;
            stream.read_exact(&mut answer).await?;
            let now = Instant::now();
            if phase.has_begun(begun) {
                times.add(now - begun);
            }
            begun = now;
        }
        Ok(times)
    })?;
    half_round_trips(times)
}

/// The server of [`pour`]: reads to the end, and confirms it.
pub fn drain(way: &Way) -> Outcome {
    way.run(async {
        let (mut listener, address) = way.listen().await?;
        sides::announce(&address)?;
        let mut stream = listener.accept().await?;
        let mut buffer = vec![0; BUFFER];
        let mut received = 0;
        loop {
            match stream.read(&mut buffer).await? {
                0 => break,
                count => received += count as u64,
            }
        }
        stream.write_u64(received).await?;
        // The client reads the confirmation, and this process ends with it.
        std::future::pending().await
    })
}

/// Writes for some time, until the server confirms the last byte. What is in flight when the measured part begins counts, and is little of it.
pub fn pour(way: &Way, server: &Server, options: &Options) -> Outcome<Vec<Figure>> {
    let (writes, (seconds, cpu)) = way.run(async {
        let mut stream = way.connect(&server.address).await?;
        let message = vec![1; options.size];
        let phase = Phase::new(options);
        let (mut writes, mut total, mut expense) = (0_u64, 0_u64, None);
        let mut now = Instant::now();
        while !phase.is_over(now) {
            if expense.is_none() && phase.has_begun(now) {
                expense = Some(Expense::begin(server)?);
            }
            for _ in 0..WRITES {
                stream.write_all(&message).await?;
            }
            total += WRITES;
            writes += if expense.is_some() { WRITES } else { 0 };
            now = Instant::now();
        }
        stream.shutdown().await?;
        let received = stream.read_u64().await?;
        if received != total * options.size as u64 {
            return Err(format!("{received} bytes have arrived of {total} writes").into());
        }
        let expense = expense.ok_or("nothing was measured: allow more --milliseconds")?;
        Ok((writes, expense.end(server)?))
    })?;
    let bytes = writes as f64 * options.size as f64;
    Ok(vec![
        figure("bandwidth", bytes / seconds / 1e6, "MB/s"),
        figure("rate", writes as f64 / seconds / 1e6, "million writes/s"),
        figure("cpu", cpu / bytes * 1e3, "ns of both sides for 1000 bytes"),
    ])
}
