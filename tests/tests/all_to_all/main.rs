//! Many processes, each of which talks to each other one: order and contents of every message, memory for each peer, and
//! one process that is killed while all talk.
//!
//! Continuous integration runs a short form. By hand, with sixty-four processes for a minute:
//!
//!     UCT_TEST_PROCESSES=64 UCT_TEST_SECONDS=60 cargo test -p uct-conformance --test all_to_all
//!
//! | variable | what |
//! |---|---|
//! | `UCT_TEST_PROCESSES` | how many processes; 16 unless set, at least 3 |
//! | `UCT_TEST_SECONDS` | how long all of them talk before one is killed; 5 unless set |
//! | `UCT_TEST_TRANSPORTS` | as for the suite |
//!
//! This program starts itself once for each process (`process.rs`), and tells them what to do over sockets. A process
//! that has nothing to do sleeps on its worker's descriptor.

mod group;
mod mesh;
mod process;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use uct_conformance::watchdog::Watchdog;

use group::Group;

/// Transports that connect any number of processes, and the device of each.
const TRANSPORTS: &[(&str, &str)] =
    &[("posix", "memory"), ("sysv", "memory"), ("cma", "memory"), ("tcp", "lo")];

/// Sizes of the groups whose memory is compared.
const SIZES: [usize; 3] = [4, 8, 16];

/// Time for everything besides the talk itself.
const OVERHEAD: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if let Some(task) = process::task() {
        return process::run(&task);
    }
    match trials() {
        Ok(trials) => {
            let mut arguments = Arguments::from_args();
            // Processes of two groups would take each other's time.
            arguments.test_threads = Some(1);
            libtest_mimic::run(&arguments, trials).exit_code()
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn trials() -> Result<Vec<Trial>, String> {
    let config = uct_conformance::Config::from_environment()?;
    let count = number("UCT_TEST_PROCESSES", 16, 3..=1024)? as usize;
    let talk = Duration::from_secs(number("UCT_TEST_SECONDS", 5, 1..=86_400)?);
    let mut trials = Vec::new();
    for &(transport, device) in TRANSPORTS {
        if !config.transports.contains(transport) {
            continue;
        }
        trials.push(Trial::test(
            format!("{transport}::all talk to all, and when one is killed the others go on"),
            move || guarded(transport, talk * 2, || talk_and_kill(transport, device, count, talk)),
        ));
        trials.push(Trial::test(
            format!("{transport}::memory grows with the number of peers alone"),
            move || guarded(transport, OVERHEAD, || memory_is_linear(transport, device)),
        ));
    }
    Ok(trials)
}

fn guarded(transport: &str, talk: Duration, test: impl FnOnce() -> Result<(), String>) -> Result<(), Failed> {
    let _watchdog = Watchdog::new(format!("all to all over {transport}"), talk + OVERHEAD);
    test().map_err(Failed::from)
}

fn talk_and_kill(transport: &str, device: &str, count: usize, talk: Duration) -> Result<(), String> {
    let mut group = Group::start(transport, device, count)?;
    group.talk(talk)?;
    let all = group.reports()?;
    group.check_all_talked(&all)?;
    print(transport, count, talk, &all);

    let victim = count / 2;
    let noticed = group.kill(victim)?;
    println!(
        "{transport}: process {victim} killed; the last of the others noticed after {} ms",
        noticed.as_millis()
    );
    let before = group.reports()?;
    group.talk((talk / 4).max(Duration::from_secs(1)))?;
    let after = group.reports()?;
    group.check_all_went_on(&before, &after)?;
    group.end()
}

fn print(transport: &str, count: usize, talk: Duration, all: &[report::Report]) {
    let median = |what: fn(&report::Report) -> u64| report::median(all.iter().map(what));
    let sum: u64 = all.iter().map(|report| report.answered).sum();
    println!(
        "{transport}: {count} processes, {} s: {sum} questions answered, {} a pair at the least, {} at the median; {} kB a \
         process, {} kB for each peer; {} descriptors; {} sleeps",
        talk.as_secs(),
        all.iter().map(|report| report.least_answered).min().unwrap_or(0),
        median(|report| report.median_answered),
        median(|report| report.memory),
        median(|report| report.memory.saturating_sub(report.memory_alone)) / (count as u64 - 1),
        median(|report| report.descriptors),
        median(|report| report.sleeps),
    );
}

/// What a peer costs in a larger group is no more than what it costs in a smaller one.
fn memory_is_linear(transport: &str, device: &str) -> Result<(), String> {
    let mut points = Vec::new();
    for count in SIZES {
        let mut group = Group::start(transport, device, count)?;
        group.talk_until_each_pair_had(500)?;
        let all = group.reports()?;
        let peers = count as u64 - 1;
        let memory =
            report::median(all.iter().map(|report| report.memory.saturating_sub(report.memory_alone)));
        println!("{transport}: {peers} peers need {memory} kB, {} kB each", memory / peers);
        points.push((peers, memory));
        group.end()?;
    }
    let slopes: Vec<u64> =
        points.windows(2).map(|pair| pair[1].1.saturating_sub(pair[0].1) / (pair[1].0 - pair[0].0)).collect();
    match slopes[..] {
        [small, large] if large > small + small / 2 + 16 => Err(format!(
            "a peer more costs {small} kB in a group of up to {}, and {large} kB in one of up to {}",
            SIZES[1], SIZES[2]
        )),
        _ => Ok(()),
    }
}

/// A variable's number within a range, or its default.
fn number(variable: &str, default: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let Ok(value) = std::env::var(variable) else { return Ok(default) };
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{variable}={value}: expected a number from {} to {}", range.start(), range.end())
    })
}
