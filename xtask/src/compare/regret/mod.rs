//! `cargo xtask compare --regret`: what a choice of selection costs. Every transport that can do an operation is measured, selection is asked by
//! its models and by a fresh calibration, and the time of what it chooses is divided by the times of the others in the same round. Within one
//! process, between two network namespaces, or in a virtual machine with verbs devices.
//! Built on uct_perftest, which measures, and uct_info, which calibrates and chooses; used by `compare`.

mod rows;

use super::cable::{self, Cable};
use super::measure::{Pin, Side};
use crate::failure::{Context, Failure, Outcome};
use crate::net::{free_port, is_listening_beside};
use crate::process::{capture, command, kill_tree, output, spawn, wait_until};
use crate::vm;
use crate::workspace::{Built, Workspace};
use rows::Row;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
/// With fewer rounds, ways that run the same code differ by more than the goals permit.
const ROUNDS: u8 = 21;
const MACHINE_ROUNDS: u8 = 1;
/// Seconds that a measurement takes, by the model, and the fewest and most iterations.
const SPAN: f64 = 20e-3;
const ITERATIONS: [f64; 2] = [100.0, 20_000.0];
/// The same of each of the parts of a measurement in a virtual machine.
const MACHINE_SPAN: f64 = 1e-3;
const MACHINE_ITERATIONS: [f64; 2] = [10.0, 400.0];
/// Of so many parts the fastest counts. The host does not always execute the processors of both sides at once; while it does not, a round trip
/// takes its time slices.
const MACHINE_PARTS: usize = 5;
/// The header of the messages that uct_perftest sends.
const HEADER: &str = "8";
/// Kinds and layouts, as uct_perftest and uct_info name them.
const KINDS: [&str; 3] = ["am", "put", "get"];
const LAYOUTS: [&str; 3] = ["short", "bcopy", "zcopy"];

/// An operation on an interface at a size.
#[derive(Serialize, Deserialize)]
struct Way {
    /// Such as `am_short`.
    operation: String,
    /// Such as `tcp/lo`.
    iface: String,
    size: u64,
    /// By each chooser: the models, calibrated.
    costs: [Cost; 2],
    /// Nanoseconds, one a round, up to the first round in which it could not be measured.
    times: Vec<f64>,
}

/// What a chooser has of a way.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Cost {
    seconds: f64,
    /// Whether selection chooses it among the interfaces.
    is_chosen: bool,
}

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
    verdict: String,
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

/// The two sides between which the transports are measured.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// Instead of the usual number.
    pub rounds: Option<u8>,
    /// In a virtual machine everything takes longer. Soft-RoCE works in the kernel threads of whatever processor a program posts from, so
    /// a program that may not leave it keeps them out.
    pub is_in_machine: bool,
}

/// The programs for all sides, and the plugins that are not part of them.
pub fn build(workspace: &Workspace) -> Outcome<Built> {
    let plugins = workspace.plugin_packages().map(|package| package.name.as_str());
    let wanted = plugins.filter(|name| name.contains("verbs")).chain(["uct_perftest", "uct_info"]);
    vm::build_packages(workspace, "release", wanted)
}

/// Measures, writes the times of all rounds to a file if one is named, and prints the table.
pub fn run(
    regret: &Regret<'_>,
    sides: &[Between],
    json: Option<&Path>,
    built: Option<(&Workspace, &Built)>,
) -> Outcome<u8> {
    let mut measured = Vec::new();
    for &between in sides {
        let ways = match (between, built) {
            (Between::Machine, Some((workspace, built))) => {
                in_machine(regret.rounds.unwrap_or(MACHINE_ROUNDS), workspace, built)?
            }
            (Between::Machine, None) => {
                return Err(Failure::new("--between machine builds what runs in it: not with --programs"));
            }
            _ => regret.measure_all(between)?,
        };
        measured.push((between, ways));
    }
    if let Some(file) = json {
        let place = || format!("--json {}", file.display());
        let by_side: BTreeMap<String, &Vec<Way>> =
            measured.iter().map(|(between, ways)| (between.to_string(), ways)).collect();
        fs::write(file, serde_json::to_string_pretty(&by_side).context(place)?).context(place)?;
    }
    let rows =
        measured.iter().flat_map(|(between, ways)| Row::all(ways).into_iter().map(|row| (*between, row)));
    rows::print(&rows.collect::<Vec<_>>());
    Ok(0)
}

/// In the virtual machine: writes what was measured to this file, which the host reads.
pub fn report(regret: &Regret<'_>, file: &Path) -> Outcome<u8> {
    let ways = regret.measure_all(Between::Machine)?;
    let place = || format!("cannot write to {}", file.display());
    let mut file = File::options().append(true).open(file).context(place)?;
    for way in ways {
        let text = serde_json::to_string(&way).context(place)?;
        writeln!(file, "NOTE {text}").context(place)?;
    }
    Ok(0)
}

/// Runs this program again in one boot, with everything that it needs.
fn in_machine(rounds: u8, workspace: &Workspace, built: &Built) -> Outcome<Vec<Way>> {
    vm::install()?;
    let this = std::env::current_exe().unwrap_or_default();
    let script = format!(
        "xtask compare --regret --rounds {rounds} --programs /usr/bin --report /dev/ttyS2 && sleep 1"
    );
    let files = vec![format!("{}:/usr/bin/xtask", this.display()), "/usr/bin/taskset".to_owned()];
    let machine = vm::Options { timeout: MACHINE_LIMIT, files, ..vm::Options::script(script) };
    let ended = vm::run_with(workspace, built, &machine)?;
    if ended.status != 0 {
        return Err(Failure::new(format!("in the virtual machine it ended with status {}", ended.status)));
    }
    let ways = ended.notes.iter().map(|note| serde_json::from_str(note));
    ways.collect::<Result<_, _>>().context(|| "the times of the virtual machine cannot be parsed".to_owned())
}

impl Regret<'_> {
    /// All ways between two sides. In each round those of one row come one after the other, in another order than in the round before.
    fn measure_all(&self, between: Between) -> Outcome<Vec<Way>> {
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

        let mut ways = self.ways(cable.map(Cable::near), &peer, &calibration)?;
        let operations: Vec<String> = operations().collect();
        let rounds = self.rounds.unwrap_or(ROUNDS);
        for round in 0..usize::from(rounds) {
            eprintln!("{between}, round {} of {rounds}: {} measurements", round + 1, ways.len());
            for size in SIZES {
                for operation in rotated(&operations, round) {
                    let is_meant = |way: &&mut Way| way.size == size && way.operation == *operation;
                    let mut of_row: Vec<&mut Way> = ways.iter_mut().filter(is_meant).collect();
                    let count = of_row.len();
                    of_row.rotate_left(round % count.max(1));
                    for way in of_row {
                        self.measure(way, round, cable);
                    }
                }
            }
        }
        Ok(ways)
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

    /// All ways to the peer, with what selection has of them.
    fn ways(&self, near: Option<u32>, peer: &Path, calibration: &str) -> Outcome<Vec<Way>> {
        let mut ways = Vec::new();
        for size in SIZES {
            for operation in operations() {
                let by_model = self.costs(near, peer, "off", (&operation, size))?;
                let calibrated = self.costs(near, peer, calibration, (&operation, size))?;
                for (iface, by_model) in by_model {
                    // Both have the same limits.
                    let Some(&calibrated) = calibrated.get(&iface) else { continue };
                    let costs = [by_model, calibrated];
                    ways.push(Way { operation: operation.clone(), iface, size, costs, times: Vec::new() });
                }
            }
        }
        Ok(ways)
    }

    /// What selection has of an operation on each interface that leads to the peer.
    fn costs(
        &self,
        near: Option<u32>,
        peer: &Path,
        calibration: &str,
        (operation, size): (&str, u64),
    ) -> Outcome<BTreeMap<String, Cost>> {
        let (peer, size) = (format!("@{}", peer.display()), size.to_string());
        let arguments = ["--explain", "--json", "--op", operation, "--size", &size, "--header", HEADER];
        let arguments = [&arguments[..], &["--peer-address", &peer]].concat();
        // It fails if there is no transport for the request; what it prints is the same.
        let (_, printed, errors) = capture(&mut self.info(near, &arguments, calibration), LIMIT)?;
        let explained: Explained = serde_json::from_str(&printed)
            .map_err(|error| Failure::new(format!("uct_info --explain: {error}\n{errors}")))?;
        let usable = explained.explain.candidates.into_iter().filter_map(|candidate| {
            let name = format!("{}/{}", candidate.transport, candidate.device?);
            Some((name, Cost { seconds: candidate.total?, is_chosen: candidate.verdict == "CHOSEN" }))
        });
        Ok(usable.collect())
    }

    /// Adds the median of one run, each side on a processor of its own. A way that has failed in a round is not measured again.
    fn measure(&self, way: &mut Way, round: usize, cable: Option<&Cable>) {
        if way.times.len() < round {
            return;
        }
        match self.median(way, cable) {
            Ok(median) => {
                way.times.push(median);
                // A machine that has to be stopped has told what it found so far.
                if self.is_in_machine {
                    eprintln!("{} of {} bytes on {}: {median:.0} ns", way.operation, way.size, way.iface);
                }
            }
            Err(failure) => {
                eprintln!(
                    "not measured: {} of {} bytes on {}: {failure}",
                    way.operation, way.size, way.iface
                );
            }
        }
    }

    fn median(&self, way: &Way, cable: Option<&Cable>) -> Outcome<f64> {
        let (kind, layout) = way.operation.split_once('_').unwrap_or((&way.operation, ""));
        let (transport, device) = way.iface.split_once('/').unwrap_or((&way.iface, ""));
        let (span, [fewest, most], parts) = match self.is_in_machine {
            true => (MACHINE_SPAN, MACHINE_ITERATIONS, MACHINE_PARTS),
            false => (SPAN, ITERATIONS, 1),
        };
        // There and back.
        let iterations = (span / (2.0 * way.costs[0].seconds)).clamp(fewest, most) as u64;
        let sizes = vec![way.size.to_string(); parts].join(",");
        let test = format!("-x {transport} -d {device} -n {iterations} -t {kind}_lat -D {layout} -s {sizes}");
        let program = self.programs.join("uct_perftest");
        let pinned = if self.is_in_machine { "" } else { "-c 0,1" };
        let printed = match cable {
            Some(cable) => {
                Side::new(program, &test, Pin::Option).server("").between(cable).measure(&["--json"])?
            }
            None => Side::new(program, &format!("-l {pinned} {test}"), Pin::Not).measure(&["--json"])?,
        };
        fastest(&printed, way.size)
    }
}

/// The least median of what uct_perftest measured of this size.
fn fastest(printed: &str, size: u64) -> Outcome<f64> {
    let measured: Measured = serde_json::from_str(printed).context(|| "uct_perftest --json".to_owned())?;
    let medians = measured.results.iter().filter(|entry| entry.size == size).map(|it| it.latency.p50_ns);
    let fastest = medians.filter(|median| *median > 0.0).min_by(f64::total_cmp);
    fastest.ok_or_else(|| Failure::new("uct_perftest printed no time"))
}

/// The names of all operations: `am_short` and so on.
fn operations() -> impl Iterator<Item = String> {
    KINDS.into_iter().flat_map(|kind| LAYOUTS.map(|layout| format!("{kind}_{layout}")))
}

/// All of them, beginning with another one each time.
fn rotated<T>(all: &[T], by: usize) -> impl Iterator<Item = &T> {
    let (first, last) = all.split_at(by % all.len().max(1));
    last.iter().chain(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_parts_of_a_measurement_the_fastest_counts() {
        let entry =
            |size: u64, median: f64| format!(r#"{{"size": {size}, "latency": {{"p50_ns": {median}}}}}"#);
        let printed = |entries: &[String]| format!(r#"{{"results": [{}]}}"#, entries.join(","));
        let parts = [entry(8, 0.0), entry(8, 70.5), entry(8, 60.5), entry(16, 1.0), entry(8, 2e6)];
        assert_eq!(fastest(&printed(&parts), 8).expect("a time"), 60.5);
        assert!(fastest(&printed(&parts[..1]), 8).is_err(), "no time");
        assert!(fastest("", 8).is_err());
    }
}
