//! What sets of blocks cost: a transfer of scattered blocks beside loops by hand, single futures, and its floor, in turn.
//!
//! A server, a process of its own, shares memory; this process reads blocks of it and writes them back. The floor of a transport that maps memory is a copy
//! between two mappings of this process that were allocated alike, that of the others a socket which carries as many bytes. Everything is warm.
//!
//! `cargo run --release -p uct-measured --bin blocks -- posix` (or `cma`, `tcp`, …), then blocks and bytes of each: 1024 32768. The processes are kept on
//! processors of their own by `taskset`, where there is one.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use uct_core::{Block as Piece, Completion, Context, Memory};
use uct_net::local::{Connection, Net, RemoteMemory};
use uct_net::{Block, Blocks, NetOptions, Wait};

/// Each way is measured so often, in turn.
const ROUNDS: usize = 15;
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(240);
/// Windows of the loops by hand; the best of them counts.
const WINDOWS: [usize; 3] = [8, 64, 256];

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        eprintln!("blocks: not done after {} s", LIMIT.as_secs());
        std::process::exit(1);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--serve", transport, bytes] => serve(transport, bytes),
        [transport] => measure(transport, "1024", "32768"),
        [transport, blocks, size] => measure(transport, blocks, size),
        _ => Err("usage: blocks TRANSPORT [BLOCKS BYTES]".into()),
    };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("blocks: {error}");
    ExitCode::FAILURE
}

fn net(transport: &str, wait: Wait) -> Outcome<Net> {
    let context = Context::builder().set("tls", transport).set("net_devices", "lo,mlx5_0:1").build()?;
    Ok(Net::new(&context, NetOptions { wait, ..NetOptions::default() })?)
}

/// Shares memory, and sends or receives as many bytes over a socket when asked.
fn serve(transport: &str, bytes: &str) -> Outcome {
    std::thread::spawn(|| {
        // The other process has ended.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let bytes: usize = bytes.parse()?;
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    // Between two blocks is as much room.
    std::thread::spawn(move || flow(&socket, bytes / 2));
    // It leaves its processor to the floor meanwhile.
    let net = net(transport, NetOptions::default().wait)?;
    net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await?;
        println!("{} {address}", listener.address());
        std::io::stdout().flush()?;
        let connection = listener.accept().await?.accept().await?;
        let memory = connection.allocate(bytes)?;
        memory.fill(0, bytes, 7);
        connection.share(&memory).await?;
        connection.closed().await;
        Ok(())
    })
}

/// The floor of what goes over sockets.
fn flow(listener: &TcpListener, bytes: usize) -> std::io::Result<()> {
    let (mut socket, _) = listener.accept()?;
    let mut buffer = vec![7; bytes];
    let mut way = [0];
    loop {
        socket.read_exact(&mut way)?;
        match way {
            [b'r'] => socket.write_all(&buffer)?,
            _ => {
                socket.read_exact(&mut buffer)?;
                socket.write_all(&way)?;
            }
        }
    }
}

/// The server's process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn start(transport: &str, bytes: usize) -> Outcome<(Server, String, String)> {
    let own = std::env::current_exe()?;
    let start = |command: &mut Command| {
        command.args(["--serve", transport, &bytes.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let pinned = start(Command::new("taskset").args(["-c", "0"]).arg(&own));
    let mut server = Server(pinned.or_else(|_| start(&mut Command::new(&own)))?);
    let _ = Command::new("taskset")
        .args(["-cp", "1", &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let (address, socket) = line.trim().split_once(' ').ok_or("the server ended before it listened")?;
    Ok((server, address.to_owned(), socket.to_owned()))
}

/// What is measured.
struct Bench {
    net: Net,
    connection: Connection,
    local: Memory,
    /// The target of the floor.
    other: Memory,
    remote: RemoteMemory,
    blocks: Blocks,
    socket: TcpStream,
    buffer: Vec<u8>,
    /// Whether peers' memory is reached without the peer.
    is_mapped: bool,
    /// Seconds until `start` of a transfer has returned.
    posting: Vec<f64>,
}

fn measure(transport: &str, blocks: &str, size: &str) -> Outcome {
    let (count, size): (usize, usize) = (blocks.parse()?, size.parse()?);
    // Between two blocks is as much room.
    let bytes = 2 * count * size;
    let (_server, address, socket) = start(transport, bytes)?;
    let net = net(transport, Wait::Spin)?;
    let mut bench = net.block_on(async {
        let connection = net.connect(address).require(transport).await?;
        let remote = connection.shared().await?;
        let (local, other) = (connection.allocate(bytes)?, connection.allocate(bytes)?);
        local.fill(0, bytes, 1);
        other.fill(0, bytes, 2);
        // An order without neighbours, different on both sides.
        let place = |number: usize, step: usize| (number * step % count * 2 * size) as u64;
        let block =
            |number| Block { local: place(number, 7), remote: place(number, 11), length: size as u64 };
        let blocks = (0..count).map(block).collect();
        let (socket, buffer) = (TcpStream::connect(socket)?, vec![0; count * size]);
        let is_mapped = !transport.starts_with("tcp") && !transport.ends_with("verbs");
        let net = net.clone();
        Ok::<_, Box<dyn Error>>(Bench {
            net,
            connection,
            local,
            other,
            remote,
            blocks,
            socket,
            buffer,
            is_mapped,
            posting: Vec::new(),
        })
    })?;
    println!(
        "{count} blocks of {size} bytes over {}, GB/s: best and median of {ROUNDS} rounds, median of the floor's part",
        bench.connection.explanation().chosen
    );
    let ways: [(&str, Way); 8] = [
        ("floor, read", |bench| bench.floor(true)),
        ("floor, write", |bench| bench.floor(false)),
        ("transfer, read", |bench| bench.transfer(true)),
        ("transfer, write", |bench| bench.transfer(false)),
        ("one completion, read", |bench| bench.by_endpoint(true)),
        ("one completion, write", |bench| bench.by_endpoint(false)),
        ("all futures at once, read", |bench| bench.at_once(true)),
        ("all futures at once, write", |bench| bench.at_once(false)),
    ];
    let windows = WINDOWS.iter().flat_map(|window| [(*window, true), (*window, false)]);
    let mut times = vec![Vec::new(); ways.len() + 2 * WINDOWS.len()];
    for round in 0..=ROUNDS {
        let mut taken: Vec<f64> = Vec::new();
        for (_, way) in &ways {
            taken.push(way(&mut bench)?.as_secs_f64());
        }
        for (window, is_read) in windows.clone() {
            taken.push(bench.by_hand(window, is_read)?.as_secs_f64());
        }
        // The first one warms up.
        if round > 0 {
            times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
        }
    }
    let names = ways.iter().map(|(name, _)| (*name).to_owned());
    let by_hand = windows.map(|(window, is_read)| {
        format!("futures, {window} at once, {}", if is_read { "read" } else { "write" })
    });
    for (row, name) in names.chain(by_hand).enumerate() {
        let floor = usize::from(name.ends_with("write"));
        let parts = times[row].iter().zip(&times[floor]).map(|(own, floor)| floor / own).collect();
        let rate = |seconds: f64| (count * size) as f64 / seconds / 1e9;
        let best = times[row].iter().copied().fold(f64::MAX, f64::min);
        println!(
            "{name:<32}{:>8.2}{:>8.2}{:>8.2}",
            rate(best),
            rate(median(times[row].clone())),
            median(parts)
        );
    }
    println!("a transfer is posted within {:.3} ms (median)", median(bench.posting) * 1e3);
    Ok(())
}

type Way = fn(&mut Bench) -> Outcome<Duration>;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Bench {
    fn floor(&mut self, is_read: bool) -> Outcome<Duration> {
        let begun = Instant::now();
        if self.is_mapped {
            for block in self.blocks.iter() {
                let (from, to) = (self.local.as_ptr(), self.other.as_ptr());
                // SAFETY: the block is within both memories, of which nobody has a reference.
                let from = unsafe { from.add(block.local as usize) };
                // SAFETY: as above.
                let to = unsafe { to.add(block.remote as usize) };
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(from, block.length as usize) };
            }
        } else if is_read {
            self.socket.write_all(b"r")?;
            self.socket.read_exact(&mut self.buffer)?;
        } else {
            self.socket.write_all(b"w")?;
            self.socket.write_all(&self.buffer)?;
            self.socket.read_exact(&mut [0])?;
        }
        Ok(begun.elapsed())
    }

    fn transfer(&mut self, is_read: bool) -> Outcome<Duration> {
        let begun = Instant::now();
        let new = if is_read {
            self.connection.get_blocks(&self.local, &self.remote, &self.blocks)
        } else {
            self.connection.put_blocks(&self.local, &self.remote, &self.blocks)
        };
        let started = new.start()?;
        self.posting.push(begun.elapsed().as_secs_f64());
        self.net.block_on(started)?;
        Ok(begun.elapsed())
    }

    fn by_endpoint(&mut self, is_read: bool) -> Outcome<Duration> {
        let (address, key) = self.remote.raw();
        let piece = |block: Block| Piece {
            local: block.local as usize,
            remote: address + block.remote,
            length: block.length as usize,
        };
        let begun = Instant::now();
        let pieces: Vec<Piece> = self.blocks.iter().map(piece).collect();
        let (ep, worker) = (self.connection.endpoint(), self.net.worker());
        let completion = Completion::new(worker);
        let mut left = &pieces[..];
        while !left.is_empty() {
            let batch = if is_read {
                ep.get_blocks(&self.local, key, left, &completion)?
            } else {
                ep.put_blocks(&self.local, key, left, &completion)?
            };
            left = &left[batch.started..];
            if let Some(refused) = batch.refused.filter(|refused| *refused != uct_core::Error::NO_RESOURCE) {
                return Err(refused.into());
            }
            worker.progress();
        }
        completion.wait(LIMIT)?;
        Ok(begun.elapsed())
    }

    fn one(&self, block: Block, is_read: bool) -> impl Future<Output = uct_net::Result> + use<> {
        let slice = self.local.slice(block.local as usize..(block.local + block.length) as usize);
        let (connection, remote) = (self.connection.clone(), self.remote.clone());
        async move {
            if is_read {
                connection.get(slice, &remote, block.remote).await
            } else {
                connection.put(slice, &remote, block.remote).await
            }
        }
    }

    /// Futures of single operations, so many at once: each is polled when it was woken, as by an executor or `join_all`.
    fn by_hand(&mut self, window: usize, is_read: bool) -> Outcome<Duration> {
        let begun = Instant::now();
        let mut next = self.blocks.iter();
        let mut running: FuturesUnordered<_> =
            next.by_ref().take(window).map(|block| self.one(block, is_read)).collect();
        self.net.block_on(async {
            while let Some(outcome) = running.next().await {
                outcome?;
                running.extend(next.next().map(|block| self.one(block, is_read)));
            }
            Ok::<_, uct_net::Error>(())
        })?;
        Ok(begun.elapsed())
    }

    fn at_once(&mut self, is_read: bool) -> Outcome<Duration> {
        self.by_hand(usize::MAX, is_read)
    }
}
