//! What a program pays before its first message: time until an interface is usable, memory, and memory for each endpoint.
//!
//! Memory is counted by process, so each figure is one of a process of its own: this program starts itself. Times depend on
//! the machine and are printed; what is asserted of them only finds what is far off. How much progress costs with a
//! thousand idle endpoints is counted by `cargo xtask instructions`.

use std::cell::Cell;
use std::process::{Command, ExitCode};
use std::rc::Rc;

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::time::{ClockId, clock_gettime};
use uct_conformance::{Config, Linkage, Target, watchdog::Watchdog};
use uct_core::{AmId, Ep, Error, Iface, Worker};

/// Names the task to a process that was started for one.
const VARIABLE: &str = "UCT_TEST_FOOTPRINT";

const ID: AmId = AmId::new(1).unwrap();
/// Starts of which the fastest counts: what else the machine does makes the others slower.
const STARTS: usize = 10;
/// Microseconds of processor time to a usable interface, of a debug build: several times what it needs.
const MOST_START: u64 = 60_000;
/// Kilobytes that are the process's own, at that time.
const MOST_MEMORY: u64 = 1536;
/// Endpoints at which memory is counted.
const COUNTS: [usize; 3] = [1, 100, 1000];
/// Bytes for each further endpoint to a peer that there is a connection to, the entry of its counter of accesses included. posix needs about
/// 600; memory is counted in pages.
const MOST_ENDPOINT: u64 = 640;

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(VARIABLE) {
        let _watchdog = Watchdog::new(format!("footprint of {task}"), std::time::Duration::from_secs(60));
        return match run(&task) {
            Ok(figures) => {
                println!("{}", figures.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("{task}: {problem}");
                ExitCode::FAILURE
            }
        };
    }
    let transports = [("self", "memory"), ("posix", "memory"), ("tcp", "lo")];
    let mut trials = Vec::new();
    for (transport, device) in transports {
        trials.push(Trial::test(
            format!("{transport}::an interface is soon usable with all plugins present"),
            move || start(transport, device),
        ));
        trials.push(Trial::test(
            format!("{transport}::memory grows with the number of endpoints alone"),
            move || endpoints(transport, device),
        ));
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn start(transport: &str, device: &str) -> Result<(), Failed> {
    let mut best = [u64::MAX; 4];
    for _ in 0..STARTS {
        let started = now();
        let [plugins, ready, processor, resident, own] = child(&format!("start {transport} {device}"))?[..]
        else {
            return Err("five figures were expected".into());
        };
        if plugins < 3 {
            return Err(format!("only {plugins} plugins lie beside this program").into());
        }
        for (best, figure) in best.iter_mut().zip([ready.saturating_sub(started), processor, resident, own]) {
            *best = figure.min(*best);
        }
    }
    let [ready, processor, resident, own] = best;
    println!(
        "{transport}: usable {} us after the start, {processor} us of it on the processor; {resident} kB resident, {own} kB \
         of them its own",
        ready / 1000
    );
    if processor > MOST_START {
        return Err(format!(
            "{processor} us of processor time until an interface is usable, at most {MOST_START}"
        )
        .into());
    }
    if own > MOST_MEMORY {
        return Err(format!("{own} kB of memory for one interface, at most {MOST_MEMORY}").into());
    }
    Ok(())
}

fn endpoints(transport: &str, device: &str) -> Result<(), Failed> {
    let figures = child(&format!("endpoints {transport} {device}"))?;
    let [one, hundred, thousand] = figures[..] else { return Err("three figures were expected".into()) };
    let each = thousand.saturating_sub(hundred) * 1024 / (COUNTS[2] - COUNTS[1]) as u64;
    println!(
        "{transport}: {one} kB with 1 endpoint, {hundred} kB with 100, {thousand} kB with 1000: {each} bytes for one more"
    );
    if each > MOST_ENDPOINT {
        return Err(format!("{each} bytes for each endpoint, at most {MOST_ENDPOINT}").into());
    }
    Ok(())
}

/// Starts a process for a task; the figures that it prints.
fn child(task: &str) -> Result<Vec<u64>, Failed> {
    let output = Command::new(std::env::current_exe()?).env(VARIABLE, task).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

fn run(task: &str) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let parts: Vec<&str> = task.split(' ').collect();
    let [what, transport, device] = parts[..] else {
        return Err(format!("{VARIABLE}: this program sets it for itself").into());
    };
    let context = Target::context(Linkage::Plugin, &Config::from_environment()?, &[])?;
    let worker = Worker::new(&context)?;
    let iface = worker.open(transport, device)?;
    if what == "start" {
        let ready = now();
        let plugins = context.plugins().len() as u64;
        return Ok(vec![plugins, ready, processor(), kilobytes("VmRSS:"), kilobytes("RssAnon:")]);
    }
    let other = if transport == "self" { iface.clone() } else { worker.open(transport, device)? };
    crowd(&worker, &iface, &other)
}

/// Memory with so many endpoints that have sent a message each.
fn crowd(worker: &Worker, iface: &Iface, other: &Iface) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    other.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let address = other.address()?;
    let mut eps: Vec<Ep> = Vec::with_capacity(COUNTS[2]);
    let mut figures = Vec::new();
    for count in COUNTS {
        while eps.len() < count {
            let ep = iface.connect(&address)?;
            while let Err(error) = ep.am_short(ID, 0, &[1; 8]) {
                if error != Error::NO_RESOURCE {
                    return Err(error.into());
                }
                worker.progress();
            }
            eps.push(ep);
        }
        while received.get() < count {
            worker.progress();
        }
        figures.push(kilobytes("RssAnon:") + kilobytes("RssShmem:"));
    }
    Ok(figures)
}

/// Nanoseconds on a clock that this process shares with the one that started it.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Microseconds of processor time so far.
fn processor() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// A line of this process's status.
fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of this name");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number of kilobytes")
}
