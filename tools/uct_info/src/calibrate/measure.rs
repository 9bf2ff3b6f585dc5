//! The side that measures: each operation in some sizes, and streams of messages and puts. The other side is another thread of this process.

use std::thread;
use std::time::{Duration, Instant};

use uct_core::select::{Operation, Point, Times};
use uct_core::{Context, Iface, Resource, clock, system};
use uct_tools_common::Failure;

use super::line::{Command, Line, Message, unexpected};
use super::side::{LARGEST, Side, limit, takes};

/// Bytes of the operations that are measured. The largest that an interface takes is measured as well.
pub(super) const SIZES: [usize; 9] =
    [8, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, LARGEST];
/// How often each interface is measured, in turn with the others; the fastest counts. Where the processors of a machine are near each other at one
/// time and far at another, each interface meets the same.
pub(super) const PASSES: u32 = 5;
/// Time for one operation of one size in a pass.
const SPAN: Duration = Duration::from_micros(600);
/// Part of it that is not measured.
const WARM_UP: Duration = Duration::from_micros(100);
const WARM_UPS: u32 = 4;
/// Shortest time that is taken with the clock.
const SAMPLE_NANOSECONDS: f64 = 5000.0;
/// Samples that are taken even if they take longer, and how many of them behind the longest time: a connection may stop for 200 ms.
const SAMPLES: u32 = 7;
const LEAST_SAMPLES: u32 = 2;
const LONGEST_SPAN: Duration = Duration::from_millis(20);
/// Time for a stream in a pass.
const STREAM_SPAN: Duration = Duration::from_millis(2);
/// Zero-copy operations that a stream has in flight.
const STREAM_IN_FLIGHT: u32 = 16;

/// The figures of an interface.
pub(super) struct Measured {
    /// Nanoseconds of one operation: half of a round trip for messages and puts, up to the data's arrival for gets.
    pub times: Times,
    pub streams: Vec<Stream>,
}

/// One operation again and again, without waiting for each.
pub(super) struct Stream {
    pub operation: Operation,
    pub size: usize,
    /// Nanoseconds from one operation to the next.
    pub nanoseconds: f64,
}

impl Measured {
    /// Takes over what was faster in another pass. An operation or size that is in one of them only stays as it is.
    pub(super) fn merge(&mut self, other: Measured) {
        for (operation, points) in &mut self.times {
            for (size, time) in points {
                let same = other.times.get(operation).into_iter().flatten().find(|point| point.0 == *size);
                *time = same.map_or(*time, |point| point.1.min(*time));
            }
        }
        for stream in &mut self.streams {
            let is_same = |it: &&Stream| (it.operation, it.size) == (stream.operation, stream.size);
            let same = other.streams.iter().find(is_same);
            stream.nanoseconds = same.map_or(stream.nanoseconds, |it| it.nanoseconds.min(stream.nanoseconds));
        }
    }
}

/// Measures an interface with itself, in one pass: two threads, each with the interface open, send to each other.
pub(super) fn measure(context: &Context, resource: &Resource) -> Result<Measured, Failure> {
    let cpus = system::cpu::affinity()?;
    let (first, second) =
        if let [first, second, ..] = cpus[..] { (vec![first], vec![second]) } else { (cpus.clone(), cpus) };
    let (line, to_measurer) = Line::pair();
    let measured = thread::scope(|scope| {
        let replier = thread::Builder::new().spawn_scoped(scope, move || {
            let line = to_measurer;
            let replied = Side::open(context, resource, &second, &line).and_then(|side| side.reply(&line));
            replied.map_err(|failure| {
                line.give_up(&failure);
                failure.to_string()
            })
        });
        let replier = replier.map_err(|error| format!("no thread to reply: {error}"))?;
        let measurer = thread::Builder::new().spawn_scoped(scope, move || {
            let side = Side::open(context, resource, &first, &line);
            side.and_then(|side| side.measure_all(&line)).map_err(|failure| {
                line.give_up(&failure);
                failure.to_string()
            })
        });
        // The replier ends without the line's other end.
        let measurer = measurer.map_err(|error| format!("no thread to measure: {error}"))?;
        let measured = measurer.join().unwrap_or_else(|_| Err("the measuring thread panicked".to_owned()));
        let replied = replier.join().unwrap_or_else(|_| Err("the replying thread panicked".to_owned()));
        measured.and_then(|measured| replied.map(|()| measured))
    });
    Ok(measured?)
}

impl Side {
    /// Measures all, and ends the other side's part.
    pub(super) fn measure_all(&self, line: &Line) -> Result<Measured, Failure> {
        let iface = self.ep.iface();
        let (mut times, mut streams) = (Times::new(), Vec::new());
        for operation in Operation::ALL {
            let sizes = sizes(&iface, operation);
            times.insert(operation, self.points(line, operation, &sizes)?);
            if operation.is_get() {
                continue;
            }
            // The first shows the overhead, the last the bandwidth.
            let ends = [sizes.first(), sizes.last().filter(|_| sizes.len() > 1)];
            for &size in ends.into_iter().flatten() {
                let nanoseconds = self.stream(line, operation, size)?;
                streams.push(Stream { operation, size, nanoseconds });
            }
        }
        // The other side misses this one's connection no more. It waits for nothing and closes its own, which is not to be noticed.
        line.send(Message::Command(Command::End))?;
        done(line.receive()?)?;
        Ok(Measured { times, streams })
    }

    /// Has the other side do something; returns once it has begun, or has reported. Makes progress meanwhile: the other side first waits until this
    /// one has acknowledged its messages.
    fn command(&self, line: &Line, command: Command) -> Result<(), Failure> {
        line.send(Message::Command(command))?;
        let mut reply = Ok(None);
        self.wait(|| {
            reply = line.poll();
            !matches!(reply, Ok(None))
        })?;
        reply?.map_or_else(|| Err("the other side does not reply".into()), done)
    }

    fn points(&self, line: &Line, operation: Operation, sizes: &[usize]) -> Result<Vec<Point>, Failure> {
        let time = |&size: &usize| {
            let time = match operation.is_get() {
                true => self.get(line, operation, size),
                false => self.ping(line, operation, size),
            };
            Ok((size as u64, time?))
        };
        sizes.iter().map(time).collect()
    }

    /// Half of a round trip.
    fn ping(&self, line: &Line, operation: Operation, size: usize) -> Result<f64, Failure> {
        self.begin();
        self.command(line, Command::Reply(operation, size))?;
        let mut number = 0;
        let round_trip = self.undisturbed(|| {
            number += 1;
            self.post(operation, size, number)?;
            self.wait(|| self.has_arrived(operation, size, number))
        })?;
        self.settle()?;
        Ok(round_trip / 2.0)
    }

    /// From the call to the data.
    fn get(&self, line: &Line, operation: Operation, size: usize) -> Result<f64, Failure> {
        self.begin();
        self.command(line, Command::Serve)?;
        self.undisturbed(|| {
            self.post(operation, size, 0)?;
            self.wait(|| self.completion.is_done())
        })
    }

    /// From one operation to the next, up to the arrival of the last.
    fn stream(&self, line: &Line, operation: Operation, size: usize) -> Result<f64, Failure> {
        self.begin();
        self.command(line, Command::Serve)?;
        self.in_flight.set(STREAM_IN_FLIGHT);
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < STREAM_SPAN {
            for _ in 0..16 {
                count += 1;
                self.post(operation, size, count)?;
            }
        }
        self.settle()?;
        self.in_flight.set(1);
        if operation.is_message() {
            self.command(line, Command::Await(count))?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
    }

    /// Nanoseconds of a turn while nothing disturbs it: the fastest of samples of at least [`SAMPLE_NANOSECONDS`]. With other programs on
    /// the processors the median would be their time slices.
    fn undisturbed(&self, mut turn: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
        let mut sample = |turns: u32| -> Result<f64, Failure> {
            let before = clock::ticks();
            for _ in 0..turns {
                turn()?;
            }
            Ok(clock::ticks_to_nanoseconds(clock::ticks() - before) as f64 / f64::from(turns))
        };
        let (start, mut fastest, mut warm) = (Instant::now(), f64::INFINITY, 0);
        while warm < WARM_UPS || start.elapsed() < WARM_UP {
            fastest = fastest.min(sample(1)?);
            warm += 1;
        }
        let turns = (SAMPLE_NANOSECONDS / fastest).ceil().clamp(1.0, 10_000.0) as u32;
        let (mut fastest, mut taken, mut wanted) = (f64::INFINITY, 0, SAMPLES);
        while start.elapsed() < SPAN || taken < wanted {
            fastest = fastest.min(sample(turns)?);
            taken += 1;
            if start.elapsed() > LONGEST_SPAN {
                wanted = LEAST_SAMPLES;
            }
        }
        Ok(fastest)
    }
}

fn done(message: Message) -> Result<(), Failure> {
    match message {
        Message::Done => Ok(()),
        message => Err(unexpected(&message)),
    }
}

/// The sizes at which an operation of an interface is measured: multiples of 8 bytes.
fn sizes(iface: &Iface, operation: Operation) -> Vec<usize> {
    // Within one process it does without the peer.
    if operation == Operation::GetShort && iface.emulated().contains(operation.capability()) {
        return Vec::new();
    }
    let most = limit(iface, operation);
    let mut sizes: Vec<usize> = SIZES.into_iter().filter(|&size| size < most).chain([most]).collect();
    sizes.retain(|&size| takes(iface, operation, size));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_passes_the_fastest_counts_for_each_size() {
        let measured = |short: f64, long: f64, stream: f64| {
            let times = |points: &[Point]| Times::from([(Operation::PutShort, points.to_vec())]);
            Measured {
                times: times(&[(8, short), (256, long)]),
                streams: vec![Stream { operation: Operation::AmShort, size: 8, nanoseconds: stream }],
            }
        };
        let mut first = measured(3.0, 9.0, 2.0);
        first.merge(measured(4.0, 8.0, 1.0));
        assert_eq!(first.times[&Operation::PutShort], [(8, 3.0), (256, 8.0)]);
        assert_eq!(first.streams.iter().map(|it| it.nanoseconds).collect::<Vec<_>>(), [1.0]);
        first.merge(Measured { times: Times::new(), streams: Vec::new() });
        assert_eq!(first.times[&Operation::PutShort], [(8, 3.0), (256, 8.0)]);
    }
}
