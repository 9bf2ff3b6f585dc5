//! `cargo xtask compare`: what the machine can do, what UCX does and what ours does, in turn and in one run, since
//! times here change by the second. Medians and ratios of what was measured side by side.
//! Stands on the floors beside this crate, Debian's UCX and uct_perftest; the rows are in tests/compare*.toml.

mod measure;
mod table;

use crate::apt::{self, Package};
use crate::failure::Outcome;
use crate::vm;
use crate::workspace::Workspace;
use clap::Args;
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use measure::Programs;
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

    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,

    /// The rows of tests/compare-verbs.toml, in a virtual machine with verbs devices
    #[arg(long)]
    verbs: bool,

    /// Rows from this file, with the programs of --programs: nothing is built or installed
    #[arg(long, value_name = "FILE", requires = "programs", conflicts_with = "verbs")]
    table: Option<PathBuf>,

    /// Directory with uct_perftest
    #[arg(long, value_name = "DIRECTORY", requires = "table")]
    programs: Option<PathBuf>,
}

/// Measures and prints the table. A row that cannot be measured is shown as such, and the status is 1.
pub fn run(options: &Options) -> Outcome<u8> {
    if let (Some(table), Some(directory)) = (&options.table, &options.programs) {
        let table = Table::read(table)?;
        let programs = Programs { floors: directory.clone(), ours: directory.clone(), pin: table.pin };
        return compare(options, &table, &programs);
    }
    let workspace = Workspace::load()?;
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
    let mut script =
        format!("xtask compare --rounds {} --table {GUEST_TABLE} --programs /usr/bin", options.rounds);
    if let Some(only) = &options.only {
        script = format!("{script} {}", crate::process::quote(only));
    }
    let machine = vm::Options {
        timeout: 900,
        files: vec![
            format!("{}:/usr/bin/xtask", this.display()),
            format!("{}:{GUEST_TABLE}", table.display()),
            "/usr/bin/taskset".to_owned(),
        ],
        ..vm::Options::script(script)
    };
    vm::run_with(workspace, &built, &machine)
}

/// All figures of one row, one of each per round.
struct Figures {
    floor: Vec<f64>,
    ucx: Vec<f64>,
    ours: Vec<f64>,
}

fn compare(options: &Options, table: &Table, programs: &Programs) -> Outcome<u8> {
    let mut shown = comfy_table::Table::new();
    shown.load_style(UTF8_FULL_CONDENSED);
    shown.set_header(["", "unit", "floor", "UCX", "ours", "ours/floor", "ours/UCX", "goal"]);
    let mut status = 0;
    for row in &table.row {
        if options.only.as_ref().is_some_and(|only| !row.name.contains(only.as_str())) {
            continue;
        }
        let (figures, complaints) = measure_row(options.rounds, table, row, programs);
        for complaint in &complaints {
            eprintln!("{}: {complaint}", row.name);
            status = 1;
        }
        let shown_figure = |figures: &[f64]| median(figures.to_vec()).map_or_else(|| "-".to_owned(), digits);
        let ratio = |of: &[f64], to: &[f64]| {
            let ratios = of.iter().zip(to).map(|(of, to)| of / to).collect();
            median(ratios).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        // A run that is ended early has told what it found so far.
        eprintln!(
            "{}: floor {}, UCX {}, ours {} {}",
            row.name,
            shown_figure(&figures.floor),
            shown_figure(&figures.ucx),
            shown_figure(&figures.ours),
            row.metric.unit()
        );
        shown.add_row([
            row.name.clone(),
            row.metric.unit().to_owned(),
            shown_figure(&figures.floor),
            shown_figure(&figures.ucx),
            shown_figure(&figures.ours),
            ratio(&figures.ours, &figures.floor),
            ratio(&figures.ours, &figures.ucx),
            row.goal.clone().unwrap_or_default(),
        ]);
    }
    for column in shown.column_iter_mut().skip(2).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{shown}");
    println!(
        "Medians of {} rounds, each of floor, UCX, ours in turn; ratios are medians of the rounds' ratios.",
        options.rounds
    );
    Ok(status)
}

/// Floor, UCX, ours; then UCX, ours, floor; and so on, so that each of them comes behind each other one. The first failure of
/// each ends its measurements.
fn measure_row(rounds: u8, table: &Table, row: &Row, programs: &Programs) -> (Figures, Vec<String>) {
    let measures: [&dyn Fn() -> Option<Outcome<f64>>; 3] = [
        &|| row.floor.as_ref().map(|floor| programs.floor(floor, row.metric)),
        &|| row.ucx.as_ref().map(|ucx| programs.ucx(row, ucx)),
        &|| row.ours.as_ref().map(|ours| programs.ours(table, row, ours)),
    ];
    let mut figures: [Vec<f64>; 3] = Default::default();
    let mut complaints = Vec::new();
    for round in 0..usize::from(rounds) {
        for whose in (0..3).map(|turn| (round + turn) % 3) {
            // Those that failed in an earlier round have fewer figures than rounds went by.
            if figures[whose].len() < round {
                continue;
            }
            match measures[whose]() {
                Some(Ok(figure)) => figures[whose].push(figure),
                Some(Err(failure)) => complaints.push(failure.to_string()),
                None => {}
            }
        }
    }
    let [floor, ucx, ours] = figures;
    (Figures { floor, ucx, ours }, complaints)
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let upper = *figures.get(middle)?;
    if figures.len() % 2 == 1 { Some(upper) } else { Some((figures[middle - 1] + upper) / 2.0) }
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
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([4.567, 45.67, 456.7].map(digits), ["4.57", "45.7", "457"]);
    }
}
