//! The first transfer of a new process, the ones after it, and the time that makes the difference.
//!
//! For each transport a child process shares memory of the net, and another child reads scattered blocks of it, or writes them: once at once, then
//! several times. `cargo run --release -p uct-measured --bin cold`, with transports (default `posix cma tcp`); `UCT_POPULATE=no` shows what the
//! key `populate` does.

use std::env;
use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use uct_core::Context;
use uct_net::NetOptions;
use uct_net::local::{Connection, Net};

const BLOCK: usize = 32 << 10;
/// Blocks of one transfer: 33.5 MB.
const BLOCKS: usize = 1024;
/// Blocks of the memory that they are scattered in: 256 MiB.
const POOL: usize = 8 * BLOCKS;
/// Transfers after the first one, of which the median counts.
const WARM: usize = 9;
/// Operations of a transfer at once.
const WINDOW: usize = 16;
/// New processes for each line, of which the median counts.
const ROUNDS: usize = 5;
/// Set in the process that reads and writes: address, transport and direction.
const ROLE: &str = "UCT_TEST_COLD";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match env::var(ROLE).map_or_else(|_| run(), |role| client(&role)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cold: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let named: Vec<String> = env::args().skip(1).collect();
    let transports = if named.is_empty() { vec!["posix".into(), "cma".into(), "tcp".into()] } else { named };
    println!(
        "{:<8}{:<6}{:>12}{:>12}{:>8}{:>14}{:>14}{:>14}   medians of {ROUNDS} processes",
        "", "", "cold GB/s", "warm GB/s", "ratio", "allocate ms", "first use ms", "own memory ms"
    );
    for transport in &transports {
        for direction in ["get", "put"] {
            let mut lines = Vec::new();
            for _ in 0..ROUNDS {
                lines.push(round(transport, direction)?);
            }
            let of = |index: usize| median(lines.iter().map(|line| line[index]));
            let [cold, warm, ratio, allocate, first, own] = [0, 1, 2, 3, 4, 5].map(of);
            println!(
                "{transport:<8}{direction:<6}{cold:>12.2}{warm:>12.2}{ratio:>8.2}{allocate:>14.1}{first:>14.1}{own:>14.1}"
            );
        }
    }
    Ok(())
}

/// One owner of memory, this process, and one new process that uses it. Returns GB/s cold and warm, their ratio, and times in ms: of the
/// owner's allocation, of the first use of the key, of the new process's own allocation.
fn round(transport: &str, direction: &str) -> Outcome<[f64; 6]> {
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    let mut listener = net.block_on(net.listen("127.0.0.1:0"))?;
    let start = Instant::now();
    let memory = net.allocate(POOL * BLOCK)?;
    let allocate = start.elapsed();
    let child = Command::new(env::current_exe()?)
        .env(ROLE, format!("{} {transport} {direction}", listener.address()))
        .stdout(Stdio::piped())
        .spawn()?;
    net.block_on(async {
        let connection = listener.accept().await?.accept().await?;
        connection.share(&memory).await?;
        // Until it has ended.
        while connection.recv().await.is_ok() {}
        Ok::<_, uct_net::Error>(())
    })?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [cold, warm, first, own] = numbers[..] else {
        return Err(format!("the process printed {text:?}").into());
    };
    Ok([cold, warm, cold / warm, milliseconds(allocate), first, own])
}

/// The new process. Prints GB/s of the first transfer and of the ones after it, and the times of the first use of the key and of its own
/// allocation in ms.
fn client(role: &str) -> Outcome<()> {
    let words: Vec<&str> = role.split(' ').collect();
    let [address, transport, direction] = words[..] else { return Err("no role".into()) };
    let net = Net::new(&Context::builder().build()?, NetOptions::default())?;
    net.block_on(async {
        let device = net.ifaces().iter().map(|iface| iface.resource());
        let mut devices = device.filter(|it| it.transport == transport);
        let device =
            devices.clone().find(|it| it.device == "lo").or_else(|| devices.next()).ok_or("not open")?;
        let connection = net.connect(address).require(device.to_string()).await?;
        let remote = connection.shared().await?;
        let start = Instant::now();
        let local = connection.allocate(BLOCKS * BLOCK)?;
        let own = start.elapsed();
        let start = Instant::now();
        connection.get(local.slice(..8), &remote, 0).await?;
        let first = start.elapsed();
        let mut times = Vec::new();
        for _ in 0..=WARM {
            times.push(transfer(&connection, &local, &remote, direction == "put").await?);
        }
        let rate = |time: Duration| (BLOCKS * BLOCK) as f64 / time.as_secs_f64() / 1e9;
        let warm = median(times[1..].iter().map(|&time| rate(time)));
        let (first, own) = (milliseconds(first), milliseconds(own));
        println!("{} {warm} {first} {own}", rate(times[0]));
        connection.close().await?;
        Ok(())
    })
}

/// One transfer of scattered blocks, a window of operations at a time.
async fn transfer(
    connection: &Connection,
    local: &uct_core::Memory,
    remote: &uct_net::local::RemoteMemory,
    is_put: bool,
) -> Outcome<Duration> {
    let start = Instant::now();
    for first in (0..BLOCKS).step_by(WINDOW) {
        let operations = (first..first + WINDOW).map(|block| async move {
            let slice = local.slice(block * BLOCK..(block + 1) * BLOCK);
            // Coprime to the number of blocks: each one is in another place.
            let place = (block * 4871 % POOL * BLOCK) as u64;
            if is_put {
                connection.put(slice, remote, place).await
            } else {
                connection.get(slice, remote, place).await
            }
        });
        let mut operations: Vec<_> = operations.map(Box::pin).collect();
        std::future::poll_fn(|context| {
            let mut outcome = Ok(());
            operations.retain_mut(|operation| match operation.as_mut().poll(context) {
                std::task::Poll::Ready(Ok(())) => false,
                std::task::Poll::Ready(Err(error)) => {
                    outcome = Err(error);
                    false
                }
                std::task::Poll::Pending => true,
            });
            match outcome {
                Ok(()) if !operations.is_empty() => std::task::Poll::Pending,
                outcome => std::task::Poll::Ready(outcome),
            }
        })
        .await?;
    }
    connection.flush().await?;
    Ok(start.elapsed())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
