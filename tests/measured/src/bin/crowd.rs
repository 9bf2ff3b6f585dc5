//! What interfaces and endpoints that carry nothing cost a worker: the time of a message, of a progress that finds nothing, and of arming.
//! And what they cost themselves: the time of the first message on one of them, which is idle, and of the next one.
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
const ROUNDS: usize = 31;
/// First messages in a round.
const FIRSTS: u32 = 20;
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
            let [first, next] = side.first_and_next()?;
            times.push([side.message()?, side.idle(), side.arm()?, first, next]);
        }
    }
    println!(
        "{:<11}{:<11}{:>9}{:>15}{:>8}{:>13}{:>9}   ns, medians of {ROUNDS}",
        "interfaces", "endpoints", "message", "idle progress", "arm", "first of tcp", "next"
    );
    for ((interfaces, endpoints), times) in CROWDS.into_iter().zip(&times) {
        let columns = [0, 1, 2, 3, 4].map(|column| median(times.iter().map(|row| row[column])));
        let [message, idle, arm, first, next] = columns;
        println!(
            "{:<11}{:<11}{message:>9.1}{idle:>15.1}{arm:>8.0}{first:>13.0}{next:>9.0}",
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
    /// Messages that the crowd has received.
    by_crowd: Rc<Cell<u64>>,
    crowd: Vec<(Iface, Vec<Ep>)>,
}

impl Side {
    fn open(context: &Context, (interfaces, endpoints): (usize, usize)) -> Outcome<Side> {
        let worker = Worker::new(context)?;
        let iface = worker.open("posix", "memory")?;
        let received = Rc::new(Cell::new(0_u64));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let (by_crowd, mut crowd) = (Rc::new(Cell::new(0_u64)), Vec::new());
        for _ in 0..interfaces {
            let other = worker.open("tcp", "lo")?;
            let count = Rc::clone(&by_crowd);
            other.set_am_handler(ID, move |_| count.set(count.get() + 1));
            let address = other.address()?;
            let eps = (0..endpoints).map(|_| other.connect(&address)).collect::<Result<Vec<_>, _>>()?;
            crowd.push((other, eps));
        }
        let side = Side { ep: iface.connect(&iface.address()?)?, worker, received, by_crowd, crowd };
        // All are connected, and what carries nothing has become idle.
        for ep in side.crowd.iter().flat_map(|(_, eps)| eps) {
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
        // What had a message becomes idle again.
        for _ in 0..REPEATS {
            self.round()?;
        }
        let begun = Instant::now();
        for _ in 0..REPEATS {
            self.round()?;
        }
        Ok(each(begun))
    }

    /// The mean time of a message on an interface of the crowd after so long without one that it is idle, and of one behind it.
    fn first_and_next(&self) -> Outcome<[f64; 2]> {
        let mut times = [Duration::ZERO; 2];
        let eps = self.crowd.iter().filter_map(|(_, eps)| eps.first());
        for ep in eps.cycle().take(FIRSTS as usize) {
            for _ in 0..REPEATS {
                self.round()?;
            }
            for time in &mut times {
                let (before, begun) = (self.by_crowd.get(), Instant::now());
                self.retry(|| ep.am_short(ID, 0, b"12345678"))?;
                while self.by_crowd.get() == before {
                    self.worker.progress();
                }
                *time += begun.elapsed();
            }
        }
        Ok(times.map(|time| time.as_nanos() as f64 / f64::from(FIRSTS)))
    }

    fn idle(&self) -> f64 {
        let begun = Instant::now();
        for _ in 0..REPEATS {
            self.worker.progress();
        }
        each(begun)
    }

    /// Arms as a thread does that is about to sleep. There is nothing to do, so it may nearly each time.
    fn arm(&self) -> Outcome<f64> {
        let (begun, repeats) = (Instant::now(), REPEATS / 100);
        for _ in 0..repeats {
            while let Err(status) = self.worker.arm() {
                if status != Status::BUSY {
                    return Err(status.into());
                }
                self.worker.progress();
            }
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
