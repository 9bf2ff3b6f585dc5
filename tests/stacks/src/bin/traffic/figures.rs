//! What was measured, as figures.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::sides::Server;
use crate::{Options, Outcome};

/// A figure with its name and unit.
pub struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub unit: &'static str,
}

pub fn figure(name: &'static str, value: f64, unit: &'static str) -> Figure {
    Figure { name, value, unit }
}

/// The measured part of a run: it begins after the warm-up, and ends when its time is over.
#[derive(Clone, Copy)]
pub struct Phase {
    begins: Instant,
    ends: Instant,
}

impl Phase {
    /// The warm-up begins now.
    pub fn new(options: &Options) -> Phase {
        let begins = Instant::now() + options.warm_up();
        Phase { begins, ends: begins + options.measured() }
    }

    pub fn has_begun(&self, now: Instant) -> bool {
        now >= self.begins
    }

    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.ends
    }
}

/// Time and processor time since some moment.
pub struct Expense {
    since: Instant,
    cpu: Duration,
}

impl Expense {
    pub fn begin(server: &Server) -> Outcome<Expense> {
        let cpu = server.cpu_of_both()?;
        Ok(Expense { since: Instant::now(), cpu })
    }

    /// Seconds, and nanoseconds of processor time of both sides.
    pub fn end(&self, server: &Server) -> Outcome<(f64, f64)> {
        let seconds = self.since.elapsed().as_secs_f64();
        Ok((seconds, (server.cpu_of_both()? - self.cpu).as_nanos() as f64))
    }
}

/// Times of round trips, one after the other or several at once.
#[derive(Default)]
pub struct Times {
    nanoseconds: Vec<u64>,
}

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.nanoseconds.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A quantile in nanoseconds.
    pub fn quantile(&mut self, quantile: f64) -> Outcome<f64> {
        self.nanoseconds.sort_unstable();
        let place = (self.nanoseconds.len() as f64 * quantile) as usize;
        let time = self.nanoseconds.get(place).ok_or("nothing was measured: allow more --milliseconds")?;
        Ok(*time as f64)
    }
}

/// Half a round trip, where two sides take turns.
pub fn half_round_trips(mut times: Times) -> Outcome<Vec<Figure>> {
    Ok(vec![
        figure("p50", times.quantile(0.5)? / 2.0, "ns"),
        figure("p99", times.quantile(0.99)? / 2.0, "ns"),
    ])
}

/// Requests of several clients, and their responses.
pub async fn requests(
    phase: Phase,
    server: &Server,
    clients: Vec<JoinHandle<Outcome<Times>>>,
) -> Outcome<Vec<Figure>> {
    tokio::time::sleep_until(phase.begins.into()).await;
    let (expense, mut times) = (Expense::begin(server)?, Times::default());
    for client in clients {
        times.nanoseconds.append(&mut client.await??.nanoseconds);
    }
    let (seconds, cpu) = expense.end(server)?;
    let count = times.nanoseconds.len() as f64;
    Ok(vec![
        figure("rate", count / seconds, "requests/s"),
        figure("p50", times.quantile(0.5)?, "ns"),
        figure("p99", times.quantile(0.99)?, "ns"),
        figure("cpu", cpu / count, "ns of both sides a request"),
    ])
}
