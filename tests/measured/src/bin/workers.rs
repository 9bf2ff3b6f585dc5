//! The message rate of one worker, and of several, each in a thread of its own of this process.
//!
//! Each thread has an interface that is connected to itself, on a worker of the same context. `cargo run --release -p uct-measured --bin workers`,
//! with the number of threads (default 2), on a machine that is otherwise idle and has as many processors.

use std::cell::Cell;
use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use uct_core::{AmId, Context, Ep, Error as Status, Worker};

const ID: AmId = AmId::new(1).unwrap();
const TRANSPORTS: [(&str, &str); 3] = [("self", "memory"), ("posix", "memory"), ("tcp", "lo")];
/// Messages between two calls of progress.
const BURST: u64 = 16;
/// Duration of one measurement.
const DURATION: Duration = Duration::from_millis(500);
/// Measurements of one worker and of all of them, in turn.
const ROUNDS: usize = 7;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let threads: usize = env::args().nth(1).map_or(Ok(2), |number| number.parse())?;
    let context = Context::builder().build()?;
    println!("{:<8}{:>12}{:>12}{:>8}   M messages/s, medians of {ROUNDS}", "", "1 worker", threads, "ratio");
    for (transport, device) in TRANSPORTS {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let one = rate(&context, transport, device, 1)?;
            rounds.push((one, rate(&context, transport, device, threads)?));
        }
        let one = median(rounds.iter().map(|(one, _)| *one));
        let all = median(rounds.iter().map(|(_, all)| *all));
        let ratio = median(rounds.iter().map(|(one, all)| all / one));
        println!("{transport:<8}{:>12.2}{:>12.2}{ratio:>8.2}", one / 1e6, all / 1e6);
    }
    Ok(())
}

/// Messages a second of so many threads together.
fn rate(context: &Context, transport: &str, device: &str, threads: usize) -> Outcome<f64> {
    let start = Arc::new(Barrier::new(threads));
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|_| {
                let start = Arc::clone(&start);
                scope.spawn(move || measure(context, transport, device, &start))
            })
            .collect();
        all.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    })
}

/// Messages a second of this thread.
fn measure(context: &Context, transport: &str, device: &str, start: &Barrier) -> Outcome<f64> {
    let side = Side::open(context, transport, device);
    // Also after an error: the others wait.
    start.wait();
    side?.rate()
}

/// A worker, and an interface that is connected to itself.
struct Side {
    worker: Worker,
    ep: Ep,
    received: Rc<Cell<u64>>,
}

impl Side {
    /// Returns it after it has received messages, so that it is connected and has grown its buffers.
    fn open(context: &Context, transport: &str, device: &str) -> Outcome<Side> {
        let worker = Worker::new(context)?;
        let iface = worker.open(transport, device)?;
        let received = Rc::new(Cell::new(0_u64));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let side = Side { ep: iface.connect(&iface.address()?)?, worker, received };
        let limit = Instant::now() + Duration::from_secs(60);
        while side.received.get() < 10_000 {
            side.burst()?;
            if Instant::now() > limit {
                return Err(format!("{transport}: 10,000 messages did not arrive within a minute").into());
            }
        }
        Ok(side)
    }

    fn burst(&self) -> Result<(), Status> {
        for _ in 0..BURST {
            match self.ep.am_short(ID, 0, b"12345678") {
                Ok(()) => {}
                Err(Status::NO_RESOURCE) => break,
                Err(error) => return Err(error),
            }
        }
        self.worker.progress();
        Ok(())
    }

    /// Messages a second.
    fn rate(&self) -> Outcome<f64> {
        let (begun, before) = (Instant::now(), self.received.get());
        while begun.elapsed() < DURATION {
            for _ in 0..64 {
                self.burst()?;
            }
        }
        Ok((self.received.get() - before) as f64 / begun.elapsed().as_secs_f64())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
