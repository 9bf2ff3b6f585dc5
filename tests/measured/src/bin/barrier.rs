//! The time of a barrier of several processes, and what processor time it takes: with each way of waiting in turn, on a machine that is
//! otherwise idle, or with a busy program on each processor.
//!
//! A barrier is that of dissemination: in round k, rank r sends to rank r + 2^k and waits for a message of rank r - 2^k.
//! `cargo run --release -p uct-measured --bin barrier -- RANKS [busy] [pinned] [local|threads] [WAIT…]`, with `spin`, `sleep`, `adaptive`
//! and `adaptive=MICROSECONDS`. `taskset` keeps the busy programs on their processors, and with `pinned` the ranks in turn.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use uct_core::Context;
use uct_net::{NetOptions, Wait, local};

/// What is measured of each way of waiting, in turn, and how often; a fifth of it passes before.
const SPAN: Duration = Duration::from_millis(1000);
const ROUNDS: usize = 5;
/// All processes end by then.
const LIMIT: Duration = Duration::from_secs(120);

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["is-busy"] => be_busy(),
        ["is-rank", rank, ranks, flavour, wait] => be_rank(rank, ranks, flavour, wait),
        [ranks, ref how @ ..] => measure(ranks, how),
        [] => Err("how many ranks?".into()),
    };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("barrier: {error}");
    ExitCode::FAILURE
}

/// A process that ends with this.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Outcome<Process> {
        Ok(Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program, on a processor or any.
fn on(processor: Option<usize>) -> Outcome<Command> {
    let own = std::env::current_exe()?;
    let Some(processor) = processor else { return Ok(Command::new(own)) };
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string()]).arg(own);
    Ok(command)
}

fn measure(ranks: &str, how: &[&str]) -> Outcome {
    let mut ways: Vec<&str> = how.iter().copied().filter(|word| wait(word).is_ok()).collect();
    if ways.is_empty() {
        ways = vec!["spin", "adaptive"];
    }
    let (mut is_busy, mut is_pinned, mut flavour) = (false, false, "local");
    for word in how.iter().filter(|word| wait(word).is_err()) {
        match *word {
            "busy" => is_busy = true,
            "pinned" => is_pinned = true,
            "local" | "threads" => flavour = word,
            other => {
                return Err(
                    format!("{other}: expected busy, pinned, local, threads, or a way of waiting").into()
                );
            }
        }
    }
    let processors = std::thread::available_parallelism()?.get();
    let busy = if is_busy { 0..processors } else { 0..0 };
    let busy: Vec<Process> =
        busy.map(|number| Process::start(on(Some(number))?.arg("is-busy"))).collect::<Outcome<_>>()?;
    let processors = is_pinned.then_some(processors);
    println!(
        "{:<16}{:>12}{:>12}{:>12}{:>12}   µs, medians of {ROUNDS}",
        "wait", "p50", "mean", "p99", "processor"
    );
    let mut figures = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, figures) in ways.iter().zip(&mut figures) {
            figures.push(run(ranks, processors, flavour, way)?);
        }
    }
    for (way, figures) in ways.iter().zip(&figures) {
        let columns = [0, 1, 2, 3].map(|column| {
            let mut values: Vec<f64> = figures.iter().map(|row: &[f64; 4]| row[column]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        });
        let [p50, mean, p99, processor] = columns;
        println!("{way:<16}{p50:>12.2}{mean:>12.2}{p99:>12.1}{processor:>12.2}");
    }
    drop(busy);
    Ok(())
}

/// p50, mean and p99 of a barrier as rank 0 has seen it, and the processor time of all ranks for each.
fn run(ranks: &str, processors: Option<usize>, flavour: &str, way: &str) -> Outcome<[f64; 4]> {
    let count: usize = ranks.parse()?;
    if !(2..=64).contains(&count) {
        return Err(format!("{count} ranks: expected 2 to 64").into());
    }
    let mut processes = Vec::new();
    let mut outputs = Vec::new();
    for rank in 0..count {
        let mut command = on(processors.map(|processors| rank % processors))?;
        let mut process = Process::start(command.args(["is-rank", &rank.to_string(), ranks, flavour, way]))?;
        outputs.push(BufReader::new(process.0.stdout.take().ok_or("no output")?));
        processes.push(process);
    }
    let lines = |outputs: &mut Vec<BufReader<_>>| -> Outcome<Vec<String>> {
        let read = |output: &mut BufReader<_>| -> Outcome<String> {
            let mut line = String::new();
            if output.read_line(&mut line)? == 0 {
                return Err("a rank has ended".into());
            }
            Ok(line.trim_end().to_owned())
        };
        outputs.iter_mut().map(read).collect()
    };
    let addresses = lines(&mut outputs)?.join(" ");
    for process in &mut processes {
        writeln!(process.0.stdin.as_mut().ok_or("no input")?, "{addresses}")?;
    }
    let rows: Vec<Vec<f64>> = lines(&mut outputs)?
        .iter()
        .map(|line| line.split(' ').map(str::parse).collect::<Result<_, _>>())
        .collect::<Result<_, _>>()?;
    let processor: f64 = rows.iter().map(|row| row[3]).sum();
    Ok([rows[0][0], rows[0][1], rows[0][2], processor])
}

fn wait(way: &str) -> Outcome<Wait> {
    Ok(match way.split_once('=') {
        None if way == "spin" => Wait::Spin,
        None if way == "sleep" => Wait::Sleep,
        None if way == "adaptive" => NetOptions::default().wait,
        Some(("adaptive", time)) => Wait::Adaptive(Duration::from_micros(time.parse()?)),
        _ => return Err(format!("{way}: no way of waiting").into()),
    })
}

fn be_busy() -> Outcome {
    let limit = Instant::now() + LIMIT;
    while Instant::now() < limit {
        std::hint::black_box((0..10_000_u64).sum::<u64>());
    }
    Ok(())
}

fn be_rank(rank: &str, ranks: &str, flavour: &str, way: &str) -> Outcome {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT);
        std::process::exit(1);
    });
    let (rank, ranks) = (rank.parse()?, ranks.parse()?);
    let context = Context::builder().set("net_devices", "lo").build()?;
    let options = NetOptions { wait: wait(way)?, ..NetOptions::default() };
    if flavour == "local" {
        let net = local::Net::new(&context, options)?;
        return net.block_on(local_rank(&net, rank, ranks));
    }
    let net = uct_net::Net::new(&context, options)?;
    net.block_on(threads_rank(&net, rank, ranks))
}

/// All addresses, after this one was told.
fn addresses(own: &str) -> Outcome<Vec<String>> {
    println!("{own}");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// Processor time of this process so far, in µs.
fn processor_time() -> Outcome<f64> {
    let mut time = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let statistics = std::fs::read_to_string(task?.path().join("schedstat"))?;
        time += statistics.split_whitespace().next().ok_or("an empty schedstat")?.parse::<f64>()?;
    }
    Ok(time / 1000.0)
}

macro_rules! rank {
    ($name:ident, $net:ty) => {
        /// Measures barriers with the others, until rank 0 ends it.
        async fn $name(net: &$net, rank: usize, ranks: usize) -> Outcome {
            let mut listener = net.listen("127.0.0.1:0").await?;
            let addresses = addresses(&listener.address().to_string())?;
            // A rank calls those behind it, after all that are ahead have called it.
            let mut peers = Vec::new();
            peers.resize_with(ranks, || None);
            for _ in 0..rank {
                let caller = listener.accept().await?;
                let number = usize::from(*caller.private().first().ok_or("no number")?);
                peers[number] = Some(caller.accept().await?);
            }
            for (number, address) in addresses.iter().enumerate().skip(rank + 1) {
                peers[number] = Some(net.connect(address).private([rank as u8]).await?);
            }
            let (mut times, mut used) = (Vec::new(), 0.0);
            let begun = Instant::now();
            let (from, until) = (begun + SPAN / 5, begun + SPAN / 5 + SPAN);
            let mut last = begun;
            let mut is_over = false;
            while !is_over {
                let mut ends = rank == 0 && last >= until;
                let mut distance = 1;
                while distance < ranks {
                    let to = peers[(rank + distance) % ranks].as_ref().ok_or("no such rank")?;
                    let from = peers[(rank + ranks - distance) % ranks].as_ref().ok_or("no such rank")?;
                    to.send(&[u8::from(ends)]).await?;
                    ends |= from.recv().await?[0] != 0;
                    distance *= 2;
                }
                is_over = ends;
                let now = Instant::now();
                if last >= from {
                    times.push((now - last).as_nanos() as f64 / 1000.0);
                } else {
                    used = processor_time()?;
                }
                last = now;
            }
            used = processor_time()? - used;
            let count = times.len().max(1) as f64;
            let mean = times.iter().sum::<f64>() / count;
            times.sort_by(f64::total_cmp);
            let quantile =
                |quantile: f64| times.get((count * quantile) as usize).copied().unwrap_or(f64::NAN);
            println!("{} {mean} {} {}", quantile(0.5), quantile(0.99), used / count);
            Ok(())
        }
    };
}

rank!(local_rank, local::Net);
rank!(threads_rank, uct_net::Net);
