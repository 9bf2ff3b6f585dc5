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
//! | `UCT_TEST_SECONDS` | how long all of them talk before one is killed, 1 unless set; they make rounds for a third of it |
//! | `UCT_TEST_TRANSPORTS` | as for the suite |
//!
//! This program starts itself once for each process (`process.rs`), and tells them what to do over sockets. A process
//! that has nothing to do sleeps on its worker's descriptor.

mod group;
mod mesh;
mod process;
mod report;
mod rounds;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use uct_conformance::watchdog::Watchdog;

use group::Group;

/// Transports that connect any number of processes, and the device of each.
const TRANSPORTS: &[(&str, &str)] =
    &[("posix", "memory"), ("sysv", "memory"), ("cma", "memory"), ("tcp", "lo")];

/// Rounds that show how many there may be.
const FEW_ROUNDS: u64 = 20;

/// So often at most the memory of a peer is measured.
const MEASUREMENTS: u32 = 3;

/// Sizes of the groups whose memory is compared.
const SIZES: [usize; 3] = [4, 8, 16];

/// The same for peers that talk a little.
const BRIEF_SIZES: [usize; 2] = [8, 32];
/// Transports whose memory for a peer is limited.
const SHARED_MEMORY: [&str; 3] = ["posix", "sysv", "cma"];
/// Most kilobytes for a peer that talks a little: resident memory with all that is shared, and the process's share.
const PEER_MEMORY: u64 = 24;
const PEER_SHARE: u64 = 12;
/// Most kilobytes of a process besides, as its share.
const PROCESS_SHARE: u64 = 2048;
/// Most kilobytes for a peer after much traffic: some stays in the process's own pools.
const GIVEN_BACK: u64 = 80;
/// How long it may take until memory is given back; the transports' default is 1 s without messages.
const GIVE_BACK: Duration = Duration::from_secs(20);

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
    let talk = Duration::from_secs(number("UCT_TEST_SECONDS", 1, 1..=86_400)?);
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
            move || guarded(transport, 3 * OVERHEAD, || memory_is_linear(transport, device)),
        ));
        trials.push(Trial::test(format!("{transport}::rounds of short messages"), move || {
            guarded(transport, talk, || rounds_of_messages(transport, device, count, talk / 3))
        }));
        if SHARED_MEMORY.contains(&transport) {
            let sizes = BRIEF_SIZES.into_iter().chain((count > BRIEF_SIZES[1]).then_some(count));
            trials.push(Trial::test(
                format!("{transport}::a peer that talks a little takes little memory"),
                move || guarded(transport, OVERHEAD, || memory_of_brief_talk(transport, device, sizes)),
            ));
            trials.push(Trial::test(
                format!("{transport}::memory for much traffic is given back"),
                move || guarded(transport, OVERHEAD, || memory_is_given_back(transport, device)),
            ));
        }
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
    print(transport, (count, group.connect_time), talk, &all);

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

/// Every round is complete. Rates compare with `MPI_Isend` and `MPI_Irecv` of the same bytes.
fn rounds_of_messages(transport: &str, device: &str, count: usize, talk: Duration) -> Result<(), String> {
    let mut group = Group::start(transport, device, count)?;
    let few = group.make_rounds(FEW_ROUNDS)?;
    let rounds = (FEW_ROUNDS as f64 * talk.as_secs_f64() / few.as_secs_f64()).ceil().max(1.0) as u64;
    let time = group.make_rounds(rounds)?;
    let all = group.reports()?;
    let messages = rounds as f64 * (count * (count - 1)) as f64;
    println!(
        "{transport}: {count} processes, connected in {} ms; {rounds} rounds of {} B to each other one: {:.2} M messages/s; a share of \
         {} kB a process, {} descriptors",
        group.connect_time.as_millis(),
        rounds::SIZE,
        messages / time.as_secs_f64() / 1e6,
        report::median(all.iter().map(|report| report.share)),
        report::median(all.iter().map(|report| report.descriptors)),
    );
    group.end()
}

fn print(transport: &str, (count, connect_time): (usize, Duration), talk: Duration, all: &[report::Report]) {
    let median = |what: fn(&report::Report) -> u64| report::median(all.iter().map(what));
    let sum: u64 = all.iter().map(|report| report.answered).sum();
    println!(
        "{transport}: {count} processes, connected in {} ms; {} s: {sum} questions answered, {} a pair at the least, {} at the median; {} kB a \
         process, {} kB for each peer; {} descriptors; {} sleeps",
        connect_time.as_millis(),
        talk.as_secs(),
        all.iter().map(|report| report.least_answered).min().unwrap_or(0),
        median(|report| report.median_answered),
        median(|report| report.memory),
        median(|report| report.memory.saturating_sub(report.memory_alone)) / (count as u64 - 1),
        median(|report| report.descriptors),
        median(|report| report.sleeps),
    );
}

/// What a peer costs in a larger group is no more than what it costs in a smaller one. Queues hold what a process that is not running
/// has not received. So on a busy machine one measurement may show more than a peer costs, and the best of some counts.
fn memory_is_linear(transport: &str, device: &str) -> Result<(), String> {
    (1..MEASUREMENTS)
        .find_map(|_| slopes_of_memory(transport, device).ok())
        .map_or_else(|| slopes_of_memory(transport, device), Ok)
}

/// Compares what a peer costs in a larger group with what it costs in a smaller one.
fn slopes_of_memory(transport: &str, device: &str) -> Result<(), String> {
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

/// The memory of processes whose peers send short messages now and then.
fn memory_of_brief_talk(
    transport: &str,
    device: &str,
    sizes: impl Iterator<Item = usize>,
) -> Result<(), String> {
    for count in sizes {
        let mut group = Group::start(transport, device, count)?;
        group.talk_briefly()?;
        let all = group.reports()?;
        group.end()?;
        let peers = count as u64 - 1;
        let memory =
            report::median(all.iter().map(|one| one.memory.saturating_sub(one.memory_alone))) / peers;
        let share = report::median(all.iter().map(|one| one.share));
        let peer_share =
            report::median(all.iter().map(|one| one.share.saturating_sub(one.memory_alone))) / peers;
        let descriptors = report::median(all.iter().map(|one| one.descriptors));
        println!(
            "{transport}: {count} processes: {share} kB a process; for each peer {memory} kB, a share of {peer_share} kB; \
             {descriptors} descriptors"
        );
        if memory > PEER_MEMORY || peer_share > PEER_SHARE {
            return Err(format!(
                "{count} processes: a peer that talks a little takes {memory} kB, a share of {peer_share} kB; \
                 {PEER_MEMORY} and {PEER_SHARE} are allowed"
            ));
        }
        if share > PROCESS_SHARE + peers * PEER_SHARE {
            return Err(format!("{count} processes: one takes {share} kB"));
        }
    }
    Ok(())
}

/// Much traffic takes memory, which is given back when there is none for some time.
fn memory_is_given_back(transport: &str, device: &str) -> Result<(), String> {
    let mut group = Group::start(transport, device, 4)?;
    group.talk_until_each_pair_had(5000)?;
    let per_peer = |all: &[report::Report]| {
        report::median(all.iter().map(|one| one.memory.saturating_sub(one.memory_alone))) / 3
    };
    let most = per_peer(&group.reports()?);
    let start = Instant::now();
    let mut least = most;
    while least > GIVEN_BACK && start.elapsed() < GIVE_BACK {
        std::thread::sleep(Duration::from_millis(200));
        least = per_peer(&group.reports()?);
    }
    println!("{transport}: {most} kB for each peer, and {least} kB after {} ms", start.elapsed().as_millis());
    if most <= 2 * GIVEN_BACK || least > GIVEN_BACK {
        return Err(format!("a peer took {most} kB with much traffic, and {least} kB without"));
    }
    // It works afterwards.
    group.talk_until_each_pair_had(6000)?;
    group.end()
}

/// A variable's number within a range, or its default.
fn number(variable: &str, default: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let Ok(value) = std::env::var(variable) else { return Ok(default) };
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        format!("{variable}={value}: expected a number from {} to {}", range.start(), range.end())
    })
}
