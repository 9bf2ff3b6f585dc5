//! What interfaces and endpoints that carry nothing cost a worker: the time of a message, of a progress that finds nothing, and of arming.
//!
//! The message goes from an interface of posix to itself. The others are of tcp on loopback, with connected endpoints, all on the same worker.
//! `cargo run --release -p uct-measured --bin crowd`, on a machine that is otherwise idle.

use std::cell::Cell;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_core::{AmId, Context, Ep, Error as Status, Flush, Iface, Worker};

const ID: AmId = AmId::new(1).unwrap();
/// Interfaces besides that of posix, and endpoints on each.
const CROWDS: [(usize, usize); 3] = [(0, 0), (15, 1), (15, 67)];
/// Repetitions of a measurement, of which there are `ROUNDS` for each crowd, in turn.
const REPEATS: u32 = 20_000;
const ROUNDS: usize = 9;
const LIMIT: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crowd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let context = Context::builder().build()?;
    let sides = CROWDS.iter().map(|&crowd| Side::open(&context, crowd)).collect::<Outcome<Vec<_>>>()?;
    let mut times = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for (side, times) in sides.iter().zip(&mut times) {
            times.push([side.message()?, side.idle(), side.arm()?]);
        }
    }
    println!(
        "{:<11}{:<11}{:>12}{:>16}{:>10}   ns, medians of {ROUNDS}",
        "interfaces", "endpoints", "message", "idle progress", "arm"
    );
    for ((interfaces, endpoints), times) in CROWDS.into_iter().zip(&times) {
        let [message, idle, arm] = [0, 1, 2].map(|column| median(times.iter().map(|row| row[column])));
        println!(
            "{:<11}{:<11}{message:>12.1}{idle:>16.1}{arm:>10.0}",
            1 + interfaces,
            1 + interfaces * endpoints
        );
    }
    Ok(())
}

/// A worker with an interface that is used, and a crowd that is not.
struct Side {
    worker: Worker,
    ep: Ep,
    received: Rc<Cell<u64>>,
    /// Open while this lives.
    _crowd: Vec<(Iface, Vec<Ep>)>,
}

impl Side {
    fn open(context: &Context, (interfaces, endpoints): (usize, usize)) -> Outcome<Side> {
        let worker = Worker::new(context)?;
        let iface = worker.open("posix", "memory")?;
        let received = Rc::new(Cell::new(0_u64));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let mut crowd = Vec::new();
        for _ in 0..interfaces {
            let other = worker.open("tcp", "lo")?;
            other.set_am_handler(ID, |_| ());
            let address = other.address()?;
            let eps = (0..endpoints).map(|_| other.connect(&address)).collect::<Result<Vec<_>, _>>()?;
            crowd.push((other, eps));
        }
        let side = Side { ep: iface.connect(&iface.address()?)?, worker, received, _crowd: crowd };
        // All are connected, and what carries nothing has become idle.
        for ep in side._crowd.iter().flat_map(|(_, eps)| eps) {
            side.retry(|| ep.am_short(ID, 0, &[]))?;
            side.retry(|| ep.flush(Flush::empty(), None).map(drop))?;
        }
        for _ in 0..REPEATS {
            side.round()?;
        }
        Ok(side)
    }

    fn retry(&self, mut attempt: impl FnMut() -> Result<(), Status>) -> Outcome<()> {
        let limit = Instant::now() + LIMIT;
        loop {
            match attempt() {
                Err(Status::NO_RESOURCE) if Instant::now() < limit => drop(self.worker.progress()),
                outcome => return Ok(outcome?),
            }
        }
    }

    /// A message there, and received.
    fn round(&self) -> Result<(), Status> {
        let before = self.received.get();
        self.ep.am_short(ID, 0, b"12345678")?;
        while self.received.get() == before {
            self.worker.progress();
        }
        Ok(())
    }

    fn message(&self) -> Outcome<f64> {
        // Arming has called everything back, and what carries nothing becomes idle again.
        for _ in 0..REPEATS {
            self.round()?;
        }
        let begun = Instant::now();
        for _ in 0..REPEATS {
            self.round()?;
        }
        Ok(each(begun))
    }

    fn idle(&self) -> f64 {
        let begun = Instant::now();
        for _ in 0..REPEATS {
            self.worker.progress();
        }
        each(begun)
    }

    /// Arms as a thread does that is about to sleep. There is nothing to do, so it may each time.
    fn arm(&self) -> Outcome<f64> {
        while self.worker.arm() == Err(Status::BUSY) {
            self.worker.progress();
        }
        let (begun, repeats) = (Instant::now(), REPEATS / 100);
        for _ in 0..repeats {
            self.worker.arm()?;
        }
        Ok(each(begun) * f64::from(REPEATS / repeats))
    }
}

fn each(begun: Instant) -> f64 {
    begun.elapsed().as_nanos() as f64 / f64::from(REPEATS)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
