//! `cargo xtask instructions`: how many instructions an operation takes, beside its ceiling.
//! Built on callgrind and the program `instructions` of tests/measured, which runs a named operation N times, and then 2 N times; the ceilings
//! are in tests/instructions.toml. Times move with the machine, these counts do not. Verbs transports run over the device in
//! software, whose own instructions are not counted.

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::process::{capture, command, line, output};
use crate::steps::Verdict;
use crate::workspace::Workspace;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::Duration;

/// What it needs beside cargo.
pub const PACKAGES: &[Package] = &[Package { name: "valgrind", brings: "/usr/bin/valgrind" }];
const CEILINGS: &str = "tests/instructions.toml";
const PROGRAM: &str = "instructions";
/// What it calls its own loop, with nothing in it.
const LOOP: &str = "loop";
/// Its exit status for an operation that the machine does not permit.
const NOT_HERE: i32 = 77;
/// The first part of a run has this many operations, and the second one twice as many. What happens every so many operations, such
/// as a batch of 64, is in both as often as it should.
const OPERATIONS: u64 = 8192;
const LIMIT: Duration = Duration::from_secs(600);
/// What the operations over the device in software have in their transport's name.
const VERBS: &str = "_verbs.";
/// Where the device in software has what C calls, and those of its functions that an operation calls. The count is that of a transport, so what they
/// do, and what they call, is taken off.
const DEVICE: &str = "uct_ib_soft::abi::";
const DEVICE_CALLS: [&str; 5] = ["post_send", "post_recv", "post_srq_recv", "poll_cq", "req_notify_cq"];
/// Callgrind knows no AVX-512, and which of its functions the C library takes must not depend on the processor.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD,-ERMS,-FSRM";

/// What to count.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Only operations whose names contain this
    #[arg(value_name = "NAME")]
    only: Option<String>,
}

impl Options {
    fn chooses(&self, operation: &Operation) -> bool {
        self.only.as_ref().is_none_or(|only| operation.name.contains(only.as_str()))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ceilings {
    operation: Vec<Operation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    name: String,
    /// Another operation, whose count is taken off.
    above: Option<String>,
    ceiling: f64,
    ucx: Option<f64>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.above.as_ref().map_or(Ok(()), |above| write!(f, " above {above}"))
    }
}

/// Counts, prints the table, fails if an operation is above its ceiling or has none.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    apt::require(PACKAGES)?;
    let path = workspace.root().join(CEILINGS);
    let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    let ceilings: Ceilings = toml::from_str(&text).context(|| path.display().to_string())?;
    let built = workspace.build_measured_with_plugins(PROGRAM)?;
    let program = built.program(PROGRAM)?;
    let list = output(command(program).arg("--list"), LIMIT)?;
    let known: BTreeMap<&str, bool> = list.lines().map(name_and_loop).collect();
    same_names(&known.keys().copied().collect(), &ceilings.operation)?;
    let chosen: Vec<&Operation> =
        ceilings.operation.iter().filter(|operation| options.chooses(operation)).collect();
    let counts = count_all(program, &chosen)?;
    let empty_loop = counts[LOOP].clone().map_err(Failure::new)?;

    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["operation", "instructions", "ceiling", "UCX 1.23"]);
    let mut above = Vec::new();
    for operation in chosen {
        let counted = |name: &str| {
            let share = if known.get(name).is_some_and(|has_loop| *has_loop) { empty_loop } else { 0.0 };
            counts[name].clone().map(|measured| measured - share)
        };
        let base = operation.above.as_deref().map_or(Ok(0.0), counted);
        let measured = match (counted(&operation.name), base) {
            (Ok(measured), Ok(base)) => measured - base,
            (Err(reason), _) | (_, Err(reason)) => {
                println!("{}: not counted: {reason}", operation.name);
                continue;
            }
        };
        let figure =
            |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        let figures = [Some(measured), Some(operation.ceiling), operation.ucx].map(figure);
        table.add_row([operation.to_string()].into_iter().chain(figures));
        if measured > operation.ceiling {
            above.push(format!("{operation}: {measured:.1} instructions, ceiling {:.1}", operation.ceiling));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    if above.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("above the ceiling of {CEILINGS}:\n{}", above.join("\n"))))
}

/// As a step of `test`.
pub fn run_as_step(workspace: &Workspace) -> Outcome<Verdict> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(Verdict::Impossible("the ceilings are for x86-64".to_owned()));
    }
    run(workspace, &Options::default()).map(|()| Verdict::Passed)
}

/// A line of the program's list: the name, and whether the program's loop is in the count.
fn name_and_loop(line: &str) -> (&str, bool) {
    line.strip_suffix(LOOP).map_or((line, false), |name| (name.trim_end(), true))
}

/// An operation without a ceiling is not watched; a ceiling without an operation watches nothing.
fn same_names(program: &BTreeSet<&str>, ceilings: &[Operation]) -> Outcome {
    let table: BTreeSet<&str> = ceilings.iter().map(|operation| operation.name.as_str()).collect();
    let missing = program.difference(&table).map(|name| format!("{CEILINGS} has no ceiling for `{name}`"));
    let bases = ceilings.iter().filter_map(|operation| operation.above.as_deref());
    let unknown = table.iter().copied().chain(bases).filter(|name| !program.contains(name));
    let unknown = unknown.map(|name| format!("{CEILINGS} names `{name}`, {PROGRAM} does not"));
    let differences: Vec<String> = missing.chain(unknown).collect();
    if program.is_empty() {
        return Err(Failure::new(format!("`{PROGRAM} --list` names no operation")));
    }
    if differences.is_empty() { Ok(()) } else { Err(Failure::new(differences.join("\n"))) }
}

/// Instructions per operation, or why the machine does not permit it.
type Count = Result<f64, String>;

/// The counts of the operations, of what some of them are above, and of the empty loop; one for each processor at a time.
fn count_all(program: &Path, chosen: &[&Operation]) -> Outcome<BTreeMap<String, Count>> {
    let bases = chosen.iter().filter_map(|operation| operation.above.as_deref());
    let names: BTreeSet<&str> =
        chosen.iter().map(|operation| operation.name.as_str()).chain(bases).chain([LOOP]).collect();
    let waiting = Mutex::new(names.into_iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let count_some = || {
        let mut counts = Vec::new();
        while let Some(name) = next() {
            counts.push((name.to_owned(), per_operation(program, name)?));
        }
        Outcome::Ok(counts)
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..available_parallelism().map_or(1, NonZero::get)).map(|_| scope.spawn(count_some)).collect();
        let mut counts = BTreeMap::new();
        for thread in threads {
            counts.extend(thread.join().map_err(|_| Failure::new("a thread that counts failed"))??);
        }
        Ok(counts)
    })
}

/// The difference of the two parts of a run, of what happens inside the program's function `measured`: what is rare or happens once
/// is in both and cancels.
fn per_operation(program: &Path, name: &str) -> Outcome<Count> {
    let [short, long] = match instructions(program, name)? {
        Ok(parts) => parts,
        Err(reason) => return Ok(Err(reason)),
    };
    let difference = long.checked_sub(short).ok_or_else(|| {
        Failure::new(format!(
            "`{name}`: {OPERATIONS} operations took {short} instructions, twice as many {long}"
        ))
    })?;
    Ok(Ok(difference as f64 / OPERATIONS as f64))
}

/// What the two parts of a run took.
fn instructions(program: &Path, name: &str) -> Outcome<Result<[u64; 2], String>> {
    let place = tempfile::tempdir().context(|| "cannot make a directory for callgrind".to_owned())?;
    // Callgrind writes the first part beside the file that it is given, under its name and a number.
    let last = place.path().join("profile");
    let first = place.path().join("profile.1");
    let is_verbs = name.contains(VERBS);
    let mut callgrind = command("valgrind");
    callgrind.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    callgrind.arg(format!("--callgrind-out-file={}", last.display()));
    callgrind.args(["--toggle-collect=measured", "--dump-before=second_part"]).arg(program);
    callgrind.args([name, &OPERATIONS.to_string()]).env("GLIBC_TUNABLES", TUNABLES);
    if is_verbs {
        // All that the device does happens in calls of the program.
        callgrind.env("SOFTVERBS_NAME", "mlx5_0").env("SOFTVERBS_THREAD", "no");
    }
    let (status, _, log) = capture(&mut callgrind, LIMIT)?;
    if status.code() == Some(NOT_HERE) {
        return Ok(Err(reason(&log).to_owned()));
    }
    if !status.success() {
        return Err(Failure::new(format!("`{}` failed: {status}\n{log}", line(&callgrind))));
    }
    let part = |path: &Path| {
        let profile = fs::read_to_string(path).context(|| format!("`{}`: no profile", line(&callgrind)))?;
        let count = collected(&profile)
            .ok_or_else(|| Failure::new(format!("`{}`: a profile without a count", line(&callgrind))))?;
        if !is_verbs {
            return Ok(count);
        }
        match count.checked_sub(in_device(&profile)) {
            Some(own) if own < count => Ok(own),
            _ => Err(Failure::new(format!("`{name}`: the device's calls are not in callgrind's file"))),
        }
    };
    Ok(Ok([part(&first)?, part(&last)?]))
}

/// What the calls of the device cost, with all that they call: the sum of these lines of callgrind's file, each behind the line `calls=` of
/// the function that `cfn=` names.
fn in_device(profile: &str) -> u64 {
    let mut is_device = false;
    let mut lines = profile.lines();
    let mut sum = 0;
    while let Some(line) = lines.next() {
        if let Some(callee) = line.strip_prefix("cfn=") {
            let call = callee.rsplit("::").next().unwrap_or_default();
            is_device = callee.contains(DEVICE) && DEVICE_CALLS.contains(&call);
        } else if line.starts_with("calls=") {
            let cost = lines.next().and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
            sum += cost.filter(|_| is_device).unwrap_or(0);
        }
    }
    sum
}

/// What the program says in its line `instructions: OPERATION: REASON`.
fn reason(log: &str) -> &str {
    let said = log.lines().find_map(|line| line.strip_prefix("instructions: ")?.split_once(": "));
    said.map_or("it does not say why", |(_, reason)| reason)
}

/// The count in the line `summary: COUNT` of callgrind's file.
fn collected(profile: &str) -> Option<u64> {
    profile.lines().find_map(|line| line.strip_prefix("summary: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_ceilings_are_valid() {
        toml::from_str::<Ceilings>(include_str!("../../tests/instructions.toml")).unwrap();
    }

    #[test]
    fn the_reason_is_read_from_the_programs_line() {
        let log = "==7== Events    : Ir\ninstructions: cma.put_zcopy: it is Sunday\n";
        assert_eq!(reason(log), "it is Sunday");
        assert_eq!(reason("==7== "), "it does not say why");
    }

    #[test]
    fn a_line_of_the_list_says_whether_the_loop_is_in_the_count() {
        assert_eq!(name_and_loop("self.am_short loop"), ("self.am_short", true));
        assert_eq!(name_and_loop("posix.progress_burst"), ("posix.progress_burst", false));
    }

    #[test]
    fn the_count_is_read_from_callgrinds_file() {
        assert_eq!(collected("part: 1\nevents: Ir\nsummary: 176023\n\nfn=main\n"), Some(176_023));
        assert_eq!(collected("part: 1\nevents: Ir\n"), None);
    }

    #[test]
    fn calls_of_the_device_are_taken_off_with_what_they_call() {
        let profile = "fn=uct_rc_verbs::post\n10 5\ncfn=uct_ib_soft::abi::work::post_send\ncalls=2 30\n11 700\n\
                       cfn=memcpy\ncalls=2 0\n12 9\n\nfn=uct_ib_soft::abi::work::post_send\n30 100\n\
                       cfn=uct_ib_soft::engine::Device::post_send\ncalls=2 40\n31 600\n";
        assert_eq!(in_device(profile), 700);
        assert_eq!(in_device("fn=measured\n1 2\ncfn=memcpy\ncalls=1 0\n3 4\n"), 0);
    }

    #[test]
    fn an_operation_without_a_ceiling_is_named() {
        let row = |name: &str| Operation { name: name.to_owned(), above: None, ceiling: 1.0, ucx: None };
        assert!(same_names(&BTreeSet::from(["a"]), &[row("a")]).is_ok());
        assert!(
            same_names(&BTreeSet::from(["a", "b"]), &[row("a")]).unwrap_err().to_string().contains("`b`")
        );
        assert!(
            same_names(&BTreeSet::from(["a"]), &[row("a"), row("c")])
                .unwrap_err()
                .to_string()
                .contains("`c`")
        );
        let above = [Operation { above: Some("b".to_owned()), ..row("a") }];
        assert!(same_names(&BTreeSet::from(["a"]), &above).unwrap_err().to_string().contains("`b`"));
        assert!(same_names(&BTreeSet::new(), &[]).is_err());
    }
}
