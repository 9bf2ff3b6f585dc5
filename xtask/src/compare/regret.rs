//! `cargo xtask compare --regret`: what a choice of selection costs. Every transport that can do an operation is measured, selection is asked by
//! its models and by a fresh calibration, and the time of what it chooses is divided by the best. Within one process, or between two network
//! namespaces.
//! Built on uct_perftest, which measures, and uct_info, which calibrates and chooses; used by `compare`.

use super::cable::{self, Cable};
use super::measure::{Pin, Side};
use super::rounds::median;
use crate::failure::{Context, Failure, Outcome};
use crate::process::{capture, command, output};
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SIZES: [u64; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];
/// Above this size fewer iterations are measured.
const SMALL: u64 = 8 << 10;
/// The header of the messages that uct_perftest sends.
const HEADER: &str = "8";
/// The most that a choice may take, of the best: by the models, and calibrated.
const GOALS: [f64; 2] = [2.0, 1.2];

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
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum Between {
    /// Two threads of one process
    Threads,
    /// Two network namespaces of this machine with a cable between them, which the command makes as root
    Namespaces,
}

/// Measures and prints the table.
pub fn run(programs: &Path, rounds: u8, between: Between) -> Outcome<u8> {
    let cable = match between {
        Between::Threads => None,
        Between::Namespaces => Some(Cable::new()?),
    };
    let [near, far] = [cable.as_ref().map(Cable::near), cable.as_ref().map(Cable::far)];
    let directory = tempfile::tempdir().context(|| "cannot make a directory".to_owned())?;
    let calibration = directory.path().join("calibration.toml");
    let peer = directory.path().join("peer");
    let info_in = |namespace: Option<u32>, arguments: &[&str], calibration: &str| {
        let program = programs.join("uct_info");
        let mut info = match namespace {
            Some(process) => cable::inside(process, program),
            None => command(program),
        };
        info.args(arguments).env("UCT_CALIBRATION", calibration).env("UCT_FALLBACK", "allow");
        info
    };
    let info = |arguments: &[&str], calibration: &str| info_in(near, arguments, calibration);
    let address = output(&mut info_in(far, &["--address"], "off"), LIMIT)?;
    fs::write(&peer, address).context(|| "cannot write the peer's addresses".to_owned())?;
    let peer = format!("@{}", peer.display());
    let calibration = calibration.display().to_string();
    eprint!("{}", capture(&mut info(&["--calibrate"], &calibration), LIMIT)?.2);

    let costs = |calibration: &str| -> Outcome<Costs> {
        let mut costs = Costs::new();
        for size in SIZES {
            for operation in operations() {
                let text = size.to_string();
                let arguments =
                    ["--explain", "--json", "--op", &operation, "--size", &text, "--header", HEADER];
                let arguments = [&arguments[..], &["--peer-address", &peer]].concat();
                // It fails if there is no transport for the request; what it prints is the same.
                let (_, printed, errors) = capture(&mut info(&arguments, calibration), LIMIT)?;
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
    };
    let choosers = [costs("off")?, costs(&calibration)?];
    let ways: BTreeSet<&Way> = choosers[0].values().flatten().map(|(way, _)| way).collect();
    let mut times = Times::new();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}: {} operations on interfaces", ways.len());
        for way in &ways {
            for (size, time) in measure(programs, way, cable.as_ref())? {
                times.entry(((*way).clone(), size)).or_default().push(time);
            }
        }
    }
    print(&choosers, &times);
    Ok(0)
}

/// The names of all operations: `am_short` and so on.
fn operations() -> impl Iterator<Item = String> {
    KINDS.into_iter().flat_map(|kind| LAYOUTS.map(|layout| format!("{kind}_{layout}")))
}

/// The median of each size that the way takes, each side on a processor of its own.
fn measure(programs: &Path, (operation, name): &Way, cable: Option<&Cable>) -> Outcome<Vec<(u64, f64)>> {
    let (kind, layout) = operation.split_once('_').unwrap_or((operation, ""));
    let (transport, device) = name.split_once('/').unwrap_or((name, ""));
    let (mut times, mut failed) = (Vec::new(), None);
    for (iterations, small) in [("20000", true), ("1000", false)] {
        let sizes: Vec<String> =
            SIZES.iter().filter(|&&size| (size <= SMALL) == small).map(ToString::to_string).collect();
        let sizes = sizes.join(",");
        let test = format!("-x {transport} -d {device} -n {iterations} -t {kind}_lat -D {layout} -s {sizes}");
        let program = programs.join("uct_perftest");
        let printed = match cable {
            Some(cable) => {
                Side::new(program, &test, Pin::Option).server("").between(cable).measure(&["--json"])
            }
            None => Side::new(program, &format!("-l -c 0,1 {test}"), Pin::Not).measure(&["--json"]),
        };
        let printed = match printed {
            Ok(printed) => printed,
            // It takes none of the sizes; of all together it takes some.
            Err(failure) => {
                failed = Some(failure);
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

/// The time of the way with the least cost, divided by the time of the fastest.
struct Regret {
    best: (Way, f64),
    /// By each chooser.
    chosen: [(Way, f64); 2],
}

impl Regret {
    /// Among the operations of these names. `None` if there are no two ways to choose between.
    fn of(choosers: &[Costs; 2], times: &Times, size: u64, operations: &[String]) -> Option<Regret> {
        let time = |way: &Way| median(times.get(&(way.clone(), size))?.clone());
        let is_meant = |(way, _): &&(Way, f64)| operations.contains(&way.0) && time(way).is_some();
        let ways: Vec<&(Way, f64)> = choosers[0].get(&size)?.iter().filter(is_meant).collect();
        if ways.len() < 2 {
            return None;
        }
        let timed = |way: &Way| Some((way.clone(), time(way)?));
        let least = |(_, left): &(Way, f64), (_, right): &(Way, f64)| left.total_cmp(right);
        let best = ways.iter().filter_map(|(way, _)| timed(way)).min_by(least)?;
        let chosen =
            |costs: &Costs| timed(&costs.get(&size)?.iter().filter(is_meant).min_by(|a, b| least(a, b))?.0);
        Some(Regret { best, chosen: [chosen(&choosers[0])?, chosen(&choosers[1])?] })
    }

    fn ratios(&self) -> [f64; 2] {
        [0, 1].map(|chooser| self.chosen[chooser].1 / self.best.1)
    }
}

fn print(choosers: &[Costs; 2], times: &Times) {
    let of_kinds = |kinds: &[&str]| -> Vec<String> {
        operations().filter(|operation| kinds.iter().any(|kind| operation.starts_with(kind))).collect()
    };
    let single = operations().map(|operation| (operation.clone(), vec![operation]));
    let joint = [("any message", of_kinds(&["am"])), ("message or put", of_kinds(&["am", "put"]))];
    let rows: Vec<(String, Vec<String>)> =
        single.chain(joint.map(|(name, operations)| (name.to_owned(), operations))).collect();

    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["", "bytes", "best", "ns", "by the models", "ratio", "calibrated", "ratio"]);
    let mut all: [Vec<f64>; 2] = Default::default();
    for (name, operations) in &rows {
        for size in SIZES {
            let Some(regret) = Regret::of(choosers, times, size, operations) else { continue };
            let ratios = regret.ratios();
            all.iter_mut().zip(ratios).for_each(|(all, ratio)| all.push(ratio));
            let named = |(operation, iface): &Way| match operations.len() {
                1 => iface.clone(),
                _ => format!("{operation} {iface}"),
            };
            let [by_model, calibrated] = &regret.chosen;
            table.add_row([
                name.clone(),
                size.to_string(),
                named(&regret.best.0),
                format!("{:.0}", regret.best.1),
                named(&by_model.0),
                format!("{:.2}", ratios[0]),
                named(&calibrated.0),
                format!("{:.2}", ratios[1]),
            ]);
        }
    }
    for column in [1, 3, 5, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    println!(
        "Time of the choice, divided by the best. Medians of the rounds; half of a round trip, or of a get."
    );
    for (chooser, (ratios, goal)) in
        ["by the models", "calibrated"].into_iter().zip(all.into_iter().zip(GOALS))
    {
        let worst = ratios.iter().copied().fold(1.0, f64::max);
        let above = ratios.iter().filter(|&&ratio| ratio > goal).count();
        let rows = ratios.len();
        let middle = median(ratios).unwrap_or(1.0);
        println!(
            "{chooser}: median {middle:.2}, worst {worst:.2}; {above} of {rows} rows above the goal of {goal}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(operation: &str, iface: &str) -> Way {
        (operation.to_owned(), iface.to_owned())
    }

    #[test]
    fn the_regret_is_that_of_the_least_cost_among_what_was_measured() {
        let costs = |near: f64, far: f64| {
            let unmeasured = (way("am_short", "sysv/memory"), 0.5);
            let all =
                vec![unmeasured, (way("am_short", "posix/memory"), near), (way("am_short", "tcp/lo"), far)];
            Costs::from([(8, all)])
        };
        let times = Times::from([
            ((way("am_short", "posix/memory"), 8), vec![100.0, 90.0, 5000.0]),
            ((way("am_short", "tcp/lo"), 8), vec![4000.0, 400.0, 300.0]),
        ]);
        let operations = ["am_short".to_owned()];
        let regret = Regret::of(&[costs(2.0, 1.0), costs(1.0, 2.0)], &times, 8, &operations);
        assert_eq!(regret.map(|regret| regret.ratios()), Some([4.0, 1.0]));
        let others = ["put_short".to_owned()];
        assert!(Regret::of(&[costs(2.0, 1.0), costs(1.0, 2.0)], &times, 8, &others).is_none());
    }
}
