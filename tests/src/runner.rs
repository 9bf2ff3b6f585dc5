//! Runs the cases against what is found, as the tests of one test program.
//!
//! For a `main` of two lines. Built on libtest-mimic, so that cargo's options and counts work, and on all else here.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;

use crate::case::{Able, Case};
use crate::config::Config;
use crate::random::Random;
use crate::remote::{self, Peer};
use crate::setup::{Setup, Skipped};
use crate::target::{self, Found, Linkage, Target};
use crate::watchdog::Watchdog;
use crate::{cases, log};

/// How many of the cases that took longest are named.
const SLOWEST: usize = 5;

/// Runs the suite as the environment and the command line ask; the exit code of the program.
pub fn run(config: Result<Config, String>) -> ExitCode {
    prepare();
    let config = match config {
        Ok(config) => config,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    match remote::as_peer() {
        Some((task, mut peer)) => run_peer(&task, config, &mut peer),
        None => run_all(config),
    }
}

/// Sets up the log and the messages of panics.
pub(crate) fn prepare() {
    let print = std::env::var("UCT_TEST_LOG").ok().and_then(|level| level.parse().ok());
    log::install(print.unwrap_or(LevelFilter::OFF));
    panic::set_hook(Box::new(note_panic));
}

fn run_all(config: Config) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if let Err(reason) = raise_descriptor_limit() {
        println!("skipped all: {reason}");
        return ExitCode::from(if config.require.is_empty() { 0 } else { 2 });
    }
    // Cases measure time and memory, and a crash is to have the name of its case in front.
    arguments.test_threads.get_or_insert(1);
    let found = match target::enumerate(&config) {
        Ok(found) => found,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let missed = log::take();
    let notes = Arc::new(Mutex::new(Notes::default()));
    let mut trials = Vec::new();
    for (target, able) in &found.targets {
        for case in cases::all() {
            trials.push(trial(case, target, able, &config, &notes));
        }
    }
    trials = config.part.take(trials);
    trials.extend(config.require.iter().map(|name| required(name, &found)));
    Random::new(config.seed).shuffle(&mut trials);

    if !arguments.list {
        println!("UCT_TEST_SEED={:#x}", config.seed);
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        report(&found, &mut notes.lock().unwrap_or_else(PoisonError::into_inner), &missed);
    }
    conclusion.exit_code()
}

/// With fewer descriptors most cases would fail for that reason alone.
const LEAST_DESCRIPTORS: u64 = 1000;

/// A thousand endpoints may need two thousand descriptors.
pub(crate) fn raise_descriptor_limit() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    match limit.maximum {
        Some(most) if most < LEAST_DESCRIPTORS => Err(format!(
            "a process may have {most} descriptors here (ulimit -Hn), expected {LEAST_DESCRIPTORS}"
        )),
        _ => Ok(()),
    }
}

/// The summary after all cases.
#[derive(Default)]
struct Notes {
    /// Names of cases that did not run, and why.
    skipped: Vec<(String, String)>,
    /// How long each took.
    times: Vec<(Duration, String)>,
}

/// What did not run, and why, and what took longest.
fn report(found: &Found, notes: &mut Notes, missed: &[log::Line]) {
    let Notes { skipped, times } = notes;
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in &*skipped {
        match by_reason.iter_mut().find(|(other, _)| other == reason) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((reason, vec![name])),
        }
    }
    for (reason, mut names) in by_reason {
        names.sort_unstable();
        println!("skipped {}: {reason}", names.len());
        for name in names {
            println!("    {name}");
        }
    }
    let mut left_out = found.left_out.clone();
    left_out.sort();
    left_out.dedup();
    for (name, reason) in left_out {
        println!("not tested: {name}: {reason}");
    }
    for line in missed {
        println!("logged while looking: {line}");
    }
    times.sort_by(|left, right| right.cmp(left));
    for (time, name) in times.iter().take(SLOWEST) {
        println!("slow: {:.2} s {name}", time.as_secs_f64());
    }
}

/// A transport that must be there.
fn required(name: &str, found: &Found) -> Trial {
    let has = |linkage| found.names.iter().any(|(its, other)| *its == linkage && other == name);
    let (linked, loaded) = (has(Linkage::Static), has(Linkage::Plugin));
    let reason: Vec<&str> = found
        .left_out
        .iter()
        .filter(|(other, _)| other == name || other.starts_with(&format!("{name}/")))
        .map(|(_, reason)| reason.as_str())
        .collect();
    let name = name.to_owned();
    let reason = if reason.is_empty() { "nobody knows it".to_owned() } else { reason.join("; ") };
    Trial::test(format!("{name} is required, and there"), move || match (linked, loaded) {
        (_, true) => Ok(()),
        (true, false) => Err(Failed::from(format!(
            "UCT_TEST_REQUIRE names {name}, which is linked statically, but there is no plugin libuct_{name}.so: \
             build it with `cargo build --workspace`, or name its directory in UCT_MODULE_DIR ({reason})"
        ))),
        (false, false) => Err(Failed::from(format!("UCT_TEST_REQUIRE names {name}: {reason}"))),
    })
}

fn trial(
    case: &'static Case,
    target: &Target,
    able: &Able,
    config: &Config,
    notes: &Arc<Mutex<Notes>>,
) -> Trial {
    let name = format!("{target}::{}", case.name);
    let missing = case.needs.missing(able);
    let (target, config, notes, own_name) = (target.clone(), config.clone(), Arc::clone(notes), name.clone());
    Trial::ignorable_test(name, move || {
        let start = Instant::now();
        let outcome = match missing {
            Some(reason) => Ok(Some(reason)),
            None => run_case(case, target, config),
        };
        let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.times.push((start.elapsed(), own_name.clone()));
        match outcome {
            Ok(None) => Ok(Completion::Completed),
            Ok(Some(reason)) => {
                notes.skipped.push((own_name, reason.clone()));
                Ok(Completion::ignored_with(reason))
            }
            Err(problem) => Err(Failed::from(problem)),
        }
    })
}

/// Runs a case; a reason if it turned out not to concern the target.
fn run_case(case: &'static Case, target: Target, config: Config) -> Result<Option<String>, String> {
    let _watchdog = Watchdog::new(format!("{target}::{}", case.name), config.case_limit);
    let run_seed = config.seed;
    let outcome = caught(|| {
        let setup = Setup::new(target, case, config);
        log::take();
        (case.run)(&setup);
    });
    let logged = log::take();
    let seed = format!("UCT_TEST_SEED={run_seed:#x}");
    match outcome {
        Ok(()) => {}
        Err(Problem::Skipped(reason)) => return Ok(Some(reason)),
        Err(Problem::Panic(words)) => {
            let lines: Vec<String> = logged.iter().map(|line| format!("\n    logged: {line}")).collect();
            return Err(format!("{words}{}\n    again with {seed}", lines.concat()));
        }
    }
    match case.logs {
        Some(expected) if expected != logged.len() => {
            let lines: Vec<String> = logged.iter().map(|line| format!("\n    {line}")).collect();
            Err(format!(
                "{} lines of warning or error were logged, expected {expected}:{}\n    again with {seed}",
                logged.len(),
                lines.concat()
            ))
        }
        _ => Ok(None),
    }
}

/// Does the part of the other process.
fn run_peer(task: &str, mut config: Config, peer: &mut Peer) -> ExitCode {
    let parts: Vec<&str> = task.splitn(3, '\n').collect();
    let [target, seed, name] = parts[..] else {
        eprintln!("{}={task:?} is set by this program for itself", remote::VARIABLE);
        return ExitCode::from(2);
    };
    let outcome = caught(|| {
        config.seed = seed.parse().expect("a seed");
        let target: Target = target.parse().expect("a target");
        let case = cases::all().find(|case| case.name == name).expect("a case of this name");
        let run = case.peer.expect("a case with two processes");
        let _watchdog = Watchdog::new(format!("the other process of {target}::{name}"), config.case_limit);
        run(&Setup::new(target, case, config), peer);
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem::Panic(words) | Problem::Skipped(words)) => {
            eprintln!("the other process of {name}: {words}");
            ExitCode::FAILURE
        }
    }
}

/// Why a case did not end well.
pub(crate) enum Problem {
    Skipped(String),
    Panic(String),
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps where a panic began: it is printed with its case, not in the middle of others.
fn note_panic(info: &panic::PanicHookInfo<'_>) {
    let place = info.location().map_or_else(String::new, ToString::to_string);
    let words = format!("{} ({place})", words(info.payload()));
    LAST_PANIC.with_borrow_mut(|last| *last = words);
}

fn words(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

pub(crate) fn caught(run: impl FnOnce()) -> Result<(), Problem> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| match payload.downcast::<Skipped>() {
        Ok(skipped) => Problem::Skipped(skipped.0),
        Err(payload) => {
            let last = LAST_PANIC.with_borrow(Clone::clone);
            Problem::Panic(if last.contains(words(&*payload)) { last } else { words(&*payload).to_owned() })
        }
    })
}
