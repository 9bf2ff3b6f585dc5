//! `cargo xtask compare --regret`: what a choice of selection costs. Every transport that can do an operation is measured, selection is asked by
//! its models and by a fresh calibration, and the time of what it chooses is divided by the best. Within one process, between two network
//! namespaces, or in a virtual machine with verbs devices.
//! Built on uct_perftest, which measures, and uct_info, which calibrates and chooses; used by `compare`.

mod rows;

use super::cable::{self, Cable};
use super::measure::{Pin, Side};
use crate::failure::{Context, Failure, Outcome};
use crate::net::{free_port, is_listening_beside};
use crate::process::{capture, command, kill_tree, output, spawn, wait_until};
use crate::vm;
use crate::workspace::Workspace;
use rows::Row;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(300);
/// Seconds for all of it in a virtual machine.
const MACHINE_LIMIT: u32 = 3 * 3600;
const SIZES: [u64; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];
/// Above this size fewer iterations are measured.
const SMALL: u64 = 8 << 10;
/// The header of the messages that uct_perftest sends.
const HEADER: &str = "8";
/// Kinds and layouts, as uct_perftest and uct_info name them.
const KINDS: [&str; 3] = ["am", "put", "get"];
const LAYOUTS: [&str; 3] = ["short", "bcopy", "zcopy"];

/// An operation on an interface, such as `am_short` on `tcp/lo`.
type Way = (String, String);
/// Nanoseconds of each way at each size, one a round.
type Times = BTreeMap<(Way, u64), Vec<f64>>;

/// What `uct_info --explain --json` prints.
#[derive(Deserialize)]
struct Explained {
    explain: Explanation,
}

#[derive(Deserialize)]
struct Explanation {
    candidates: Vec<Candidate>,
}

#[derive(Deserialize)]
struct Candidate {
    transport: String,
    device: Option<String>,
    /// Seconds; only of candidates that can be chosen.
    total: Option<f64>,
}

/// What `uct_perftest --json` prints.
#[derive(Deserialize)]
struct Measured {
    results: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    size: u64,
    latency: Latency,
}

#[derive(Deserialize)]
struct Latency {
    p50_ns: f64,
}

/// Costs of all ways at each size, as selection has them; the first of equal ones is chosen.
type Costs = BTreeMap<u64, Vec<(Way, f64)>>;

/// The two sides between which the transports are measured.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
pub enum Between {
    /// Two threads of one process
    Threads,
    /// Two network namespaces of this machine with a cable between them, which the command makes as root
    Namespaces,
    /// Two threads of one process in a virtual machine with verbs devices
    Machine,
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Between::Threads => "threads",
            Between::Namespaces => "namespaces",
            Between::Machine => "machine",
        })
    }
}

/// What is measured, with which programs.
pub struct Regret<'a> {
    pub programs: &'a Path,
    pub rounds: u8,
    /// In a virtual machine everything takes longer. Soft-RoCE works in the kernel threads of whatever processor a program posts from, so
    /// a program that may not leave it keeps them out.
    pub is_in_machine: bool,
}

/// Measures and prints the table.
pub fn run(regret: &Regret<'_>, sides: &[Between], workspace: Option<&Workspace>) -> Outcome<u8> {
    let mut rows = Vec::new();
    for &between in sides {
        let measured = match (between, workspace) {
            (Between::Machine, Some(workspace)) => in_machine(regret.rounds, workspace)?,
            (Between::Machine, None) => {
                return Err(Failure::new("--between machine builds what runs in it: not with --programs"));
            }
            _ => regret.measure_all(between)?,
        };
        rows.extend(measured.into_iter().map(|row| (between, row)));
    }
    rows::print(&rows);
    Ok(0)
}

/// In the virtual machine: writes the rows to this file, which the host reads.
pub fn report(regret: &Regret<'_>, file: &Path) -> Outcome<u8> {
    let rows = regret.measure_all(Between::Threads)?;
    let place = || format!("cannot write to {}", file.display());
    let mut file = File::options().append(true).open(file).context(place)?;
    for row in rows {
        let text = serde_json::to_string(&row).context(place)?;
        writeln!(file, "NOTE {text}").context(place)?;
    }
    Ok(0)
}

/// Runs this program again in one boot, with everything that it needs.
fn in_machine(rounds: u8, workspace: &Workspace) -> Outcome<Vec<Row>> {
    vm::install()?;
    let plugins = workspace.plugin_packages().map(|package| package.name.as_str());
    let wanted = plugins.filter(|name| name.contains("verbs")).chain(["uct_perftest", "uct_info"]);
    let built = vm::build_packages(workspace, "release", wanted)?;
    let this = std::env::current_exe().unwrap_or_default();
    let script = format!(
        "xtask compare --regret --rounds {rounds} --programs /usr/bin --report /dev/ttyS2 && sleep 1"
    );
    let files = vec![format!("{}:/usr/bin/xtask", this.display()), "/usr/bin/taskset".to_owned()];
    let machine = vm::Options { timeout: MACHINE_LIMIT, files, ..vm::Options::script(script) };
    let ended = vm::run_with(workspace, &built, &machine)?;
    if ended.status != 0 {
        return Err(Failure::new(format!("in the virtual machine it ended with status {}", ended.status)));
    }
    let rows = ended.notes.iter().map(|note| serde_json::from_str(note));
    rows.collect::<Result<_, _>>().context(|| "the rows of the virtual machine cannot be parsed".to_owned())
}

impl Regret<'_> {
    /// All rows between two sides.
    fn measure_all(&self, between: Between) -> Outcome<Vec<Row>> {
        let cable = match between {
            Between::Namespaces => Some(Cable::new()?),
            _ => None,
        };
        let cable = cable.as_ref();
        let directory = tempfile::tempdir().context(|| "cannot make a directory".to_owned())?;
        let calibration = directory.path().join("calibration.toml").display().to_string();
        let peer = directory.path().join("peer");
        let address = output(&mut self.info(cable.map(Cable::far), &["--address"], "off"), LIMIT)?;
        fs::write(&peer, address).context(|| "cannot write the peer's addresses".to_owned())?;
        self.calibrate(cable, &calibration)?;

        let near = cable.map(Cable::near);
        let choosers = [self.costs(near, &peer, "off")?, self.costs(near, &peer, &calibration)?];
        let ways: BTreeSet<&Way> = choosers[0].values().flatten().map(|(way, _)| way).collect();
        let mut times = Times::new();
        for round in 1..=self.rounds {
            eprintln!("{between}, round {round} of {}: {} operations on interfaces", self.rounds, ways.len());
            for way in &ways {
                for (size, time) in self.measure(way, cable)? {
                    times.entry(((*way).clone(), size)).or_default().push(time);
                }
            }
        }
        Ok(Row::all(&choosers, &times))
    }

    /// uct_info, in the network namespace of a process if one is named.
    fn info(&self, namespace: Option<u32>, arguments: &[&str], calibration: &str) -> std::process::Command {
        let program = self.programs.join("uct_info");
        let mut info = match namespace {
            Some(process) => cable::inside(process, program),
            None => command(program),
        };
        info.args(arguments).env("UCT_CALIBRATION", calibration).env("UCT_FALLBACK", "allow");
        info
    }

    /// Measures the near side's interfaces, with the far side if there is a cable to it.
    fn calibrate(&self, cable: Option<&Cable>, calibration: &str) -> Outcome {
        let Some(cable) = cable else {
            eprint!("{}", capture(&mut self.info(None, &["--calibrate"], calibration), LIMIT)?.2);
            return Ok(());
        };
        let port = free_port();
        let listens = ["--calibrate", "--listen", &port.to_string(), "--callers", "1"];
        let mut far = self.info(Some(cable.far()), &listens, "off");
        let mut far = spawn(far.stdin(Stdio::null()).stdout(Stdio::null()))?;
        let deadline = Instant::now() + LIMIT;
        while !is_listening_beside(&cable.far().to_string(), port) && Instant::now() < deadline {
            if let Some(status) = wait_until(&mut far, Instant::now() + Duration::from_millis(20))? {
                return Err(Failure::new(format!("uct_info --calibrate --listen ended: {status}")));
            }
        }
        let peer = format!("{}:{port}", cable::FAR_ADDRESS);
        let called = capture(
            &mut self.info(Some(cable.near()), &["--calibrate", "--peer", &peer], calibration),
            LIMIT,
        );
        if wait_until(&mut far, Instant::now() + Duration::from_secs(2))?.is_none() {
            kill_tree(&mut far);
        }
        eprint!("{}", called?.2);
        Ok(())
    }

    /// What selection has of all ways to the peer.
    fn costs(&self, near: Option<u32>, peer: &Path, calibration: &str) -> Outcome<Costs> {
        let peer = format!("@{}", peer.display());
        let mut costs = Costs::new();
        for size in SIZES {
            for operation in operations() {
                let text = size.to_string();
                let arguments =
                    ["--explain", "--json", "--op", &operation, "--size", &text, "--header", HEADER];
                let arguments = [&arguments[..], &["--peer-address", &peer]].concat();
                // It fails if there is no transport for the request; what it prints is the same.
                let (_, printed, errors) = capture(&mut self.info(near, &arguments, calibration), LIMIT)?;
                let explained: Explained = serde_json::from_str(&printed)
                    .map_err(|error| Failure::new(format!("uct_info --explain: {error}\n{errors}")))?;
                let usable = explained.explain.candidates.into_iter().filter_map(|candidate| {
                    let name = format!("{}/{}", candidate.transport, candidate.device?);
                    Some(((operation.clone(), name), candidate.total?))
                });
                costs.entry(size).or_default().extend(usable);
            }
        }
        Ok(costs)
    }

    /// The median of each size that the way takes, each side on a processor of its own.
    fn measure(&self, (operation, name): &Way, cable: Option<&Cable>) -> Outcome<Vec<(u64, f64)>> {
        let (kind, layout) = operation.split_once('_').unwrap_or((operation, ""));
        let (transport, device) = name.split_once('/').unwrap_or((name, ""));
        let [many, few] = if self.is_in_machine { [2000, 200] } else { [20_000, 1000] };
        let (mut times, mut failed) = (Vec::new(), None);
        for (iterations, small) in [(many, true), (few, false)] {
            let sizes: Vec<String> =
                SIZES.iter().filter(|&&size| (size <= SMALL) == small).map(ToString::to_string).collect();
            let sizes = sizes.join(",");
            let test =
                format!("-x {transport} -d {device} -n {iterations} -t {kind}_lat -D {layout} -s {sizes}");
            let program = self.programs.join("uct_perftest");
            let pinned = if self.is_in_machine { "" } else { "-c 0,1" };
            let printed = match cable {
                Some(cable) => {
                    Side::new(program, &test, Pin::Option).server("").between(cable).measure(&["--json"])
                }
                None => Side::new(program, &format!("-l {pinned} {test}"), Pin::Not).measure(&["--json"]),
            };
            let printed = match printed {
                Ok(printed) => printed,
                // It may take none of these sizes, and others.
                Err(failure) => {
                    failed.get_or_insert(failure);
                    continue;
                }
            };
            let measured: Measured =
                serde_json::from_str(&printed).context(|| "uct_perftest --json".to_owned())?;
            times.extend(measured.results.into_iter().map(|entry| (entry.size, entry.latency.p50_ns)));
        }
        if let (true, Some(failure)) = (times.is_empty(), failed) {
            eprintln!("not measured: {operation} on {name}: {failure}");
        }
        Ok(times)
    }
}

/// The names of all operations: `am_short` and so on.
fn operations() -> impl Iterator<Item = String> {
    KINDS.into_iter().flat_map(|kind| LAYOUTS.map(|layout| format!("{kind}_{layout}")))
}
