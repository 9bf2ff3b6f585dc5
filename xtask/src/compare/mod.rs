//! `cargo xtask compare`: what the machine can do, what UCX does and what ours does, in turn and in one run, since
//! times here change by the second. Medians and ratios of what was measured side by side.
//! Built on the floors beside this crate, Debian's UCX and uct_perftest; the rows are in tests/compare*.toml. `--sweep` measures whole
//! curves instead.

mod measure;
mod rounds;
mod sweep;
mod table;
mod wheel;

use crate::apt::{self, Package};
use crate::failure::Outcome;
use crate::vm;
use crate::workspace::Workspace;
use clap::Args;
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use measure::Programs;
use rounds::{FLOOR, OURS, Rounds, UCX};
use std::path::PathBuf;
use table::{Row, Table};

const PACKAGES: &[Package] = &[
    Package { name: "ucx-utils", brings: "/usr/bin/ucx_perftest" },
    Package { name: "util-linux", brings: "/usr/bin/taskset" },
];

/// What to compare.
#[derive(Args, Debug)]
pub struct Options {
    /// Only rows whose names contain this
    #[arg(value_name = "NAME")]
    only: Option<String>,

    /// How often each is measured [default: 5; for a sweep 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,

    /// The rows of tests/compare-verbs.toml, in a virtual machine with verbs devices
    #[arg(long)]
    verbs: bool,

    /// Rows from this file, with the programs of --programs: nothing is built or installed
    #[arg(long, value_name = "FILE", requires = "programs", conflicts_with = "verbs")]
    table: Option<PathBuf>,

    /// Directory with uct_perftest
    #[arg(long, value_name = "DIRECTORY", requires = "table")]
    programs: Option<PathBuf>,

    /// Instead of rows: all sizes, layouts and operations over this transport, beside the newest UCX. NAME chooses among
    /// curves such as `am_lat bcopy`
    #[arg(long, value_name = "TRANSPORT", conflicts_with_all = ["verbs", "table"])]
    sweep: Option<String>,

    #[command(flatten)]
    sweeping: sweep::Sweeping,
}

impl Options {
    fn rounds(&self, default: u8) -> u8 {
        self.rounds.unwrap_or(default)
    }
}

/// Rounds of a row.
const ROUNDS: u8 = 5;

/// Measures and prints the table. A row that cannot be measured is shown as such, and the status is 1.
pub fn run(options: &Options) -> Outcome<u8> {
    if let (Some(table), Some(directory)) = (&options.table, &options.programs) {
        let table = Table::read(table)?;
        let programs = Programs { floors: directory.clone(), ours: directory.clone(), pin: table.pin };
        return compare(options, &table, &programs);
    }
    let workspace = Workspace::load()?;
    if let Some(transport) = &options.sweep {
        return sweep::run(transport, options, &workspace);
    }
    if options.verbs {
        return in_machine(options, &workspace);
    }
    apt::require(PACKAGES)?;
    let table = Table::read(&workspace.root().join("tests/compare.toml"))?;
    let built = vm::build(&workspace, "release")?;
    let ours = built.program("uct_perftest")?.with_file_name("");
    let floors = workspace.target().join("floors");
    measure::compile_floors(&workspace.root().join("xtask/floors"), &floors)?;
    let programs = Programs { floors, ours, pin: table.pin };
    compare(options, &table, &programs)
}

/// Runs this program again in one boot, with everything that it needs.
fn in_machine(options: &Options, workspace: &Workspace) -> Outcome<u8> {
    const GUEST_TABLE: &str = "/vm/compare.toml";
    /// What a comparison runs; the other programs and plugins would only be built and packed.
    const WANTED: &[&str] = &["uct_perftest", "uct-rc-verbs", "uct-ud-verbs"];
    vm::install()?;
    let built = vm::build_packages(workspace, "release", WANTED.iter().copied())?;
    let this = std::env::current_exe().unwrap_or_default();
    let table = workspace.root().join("tests/compare-verbs.toml");
    let mut script = format!(
        "xtask compare --rounds {} --table {GUEST_TABLE} --programs /usr/bin",
        options.rounds(ROUNDS)
    );
    if let Some(only) = &options.only {
        script = format!("{script} {}", crate::process::quote(only));
    }
    let machine = vm::Options {
        timeout: 3600,
        files: vec![
            format!("{}:/usr/bin/xtask", this.display()),
            format!("{}:{GUEST_TABLE}", table.display()),
            "/usr/bin/taskset".to_owned(),
        ],
        ..vm::Options::script(script)
    };
    vm::run_with(workspace, &built, &machine).map(|ended| ended.status)
}

fn compare(options: &Options, table: &Table, programs: &Programs) -> Outcome<u8> {
    let mut shown = comfy_table::Table::new();
    shown.load_style(UTF8_FULL_CONDENSED);
    shown.set_header(["", "unit", "floor", "UCX", "ours", "ours/floor", "ours/UCX", "goal", "rounds"]);
    let mut status = 0;
    for row in &table.row {
        if options.only.as_ref().is_some_and(|only| !row.name.contains(only.as_str())) {
            continue;
        }
        let (rounds, complaints) = measure_row(options.rounds(ROUNDS), table, row, programs);
        for complaint in &complaints {
            eprintln!("{}: {complaint}", row.name);
            status = 1;
        }
        let [floor, ucx, ours] = [FLOOR, UCX, OURS].map(|whose| rounds.median(whose));
        let figure = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), digits);
        let ratio = |to| rounds.ratio(OURS, to).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // A run that is ended early has told what it found so far.
        eprintln!(
            "{}: floor {}, UCX {}, ours {} {}",
            row.name,
            figure(floor),
            figure(ucx),
            figure(ours),
            row.metric.unit()
        );
        shown.add_row([
            row.name.clone(),
            row.metric.unit().to_owned(),
            figure(floor),
            figure(ucx),
            figure(ours),
            ratio(FLOOR),
            ratio(UCX),
            row.goal.clone().unwrap_or_default(),
            rounds.count(),
        ]);
    }
    for column in shown.column_iter_mut().skip(2).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{shown}");
    println!(
        "Medians of the rounds, each of floor, UCX, ours in turn; ratios are medians of the rounds' ratios."
    );
    if let Some(disturbed) = table.disturbed {
        println!(
            "Rounds: those that count, of those taken. In the others one of the three took more than {disturbed} times its \
             lower quartile."
        );
    }
    Ok(status)
}

/// Floor, UCX, ours; then UCX, ours, floor; and so on, so that each of them comes behind each other one. The first failure of
/// each ends its measurements. Where the table says what a disturbed round is, others are taken in their place.
fn measure_row(wanted: u8, table: &Table, row: &Row, programs: &Programs) -> (Rounds, Vec<String>) {
    let measures: [&dyn Fn() -> Option<Outcome<f64>>; 3] = [
        &|| row.floor.as_ref().map(|floor| programs.floor(floor, row.metric)),
        &|| row.ucx.as_ref().map(|ucx| programs.ucx(row, ucx)),
        &|| row.ours.as_ref().map(|ours| programs.ours(table, row, ours)),
    ];
    let mut goes_on = [true; 3];
    let mut rounds = Rounds::new(row.metric, table.disturbed);
    let mut complaints = Vec::new();
    while rounds.wants_more(usize::from(wanted)) {
        let mut round = [None; 3];
        for whose in (0..3).map(|turn| (rounds.taken() + turn) % 3) {
            if !goes_on[whose] {
                continue;
            }
            match measures[whose]() {
                Some(Ok(figure)) => round[whose] = Some(figure),
                Some(Err(failure)) => {
                    complaints.push(failure.to_string());
                    goes_on[whose] = false;
                }
                None => {}
            }
        }
        rounds.add(round);
    }
    (rounds, complaints)
}

/// Three digits are as many as such figures have.
fn digits(figure: f64) -> String {
    let places = if figure >= 100.0 {
        0
    } else if figure >= 10.0 {
        1
    } else {
        2
    };
    format!("{figure:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([4.567, 45.67, 456.7].map(digits), ["4.57", "45.7", "457"]);
    }
}
