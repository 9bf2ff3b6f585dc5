//! `cargo xtask compare`: what the machine can do, what UCX does and what ours does, also in an older build, in turn and in one run,
//! since times here change by the second. Medians and ratios of what was measured side by side.
//! Built on the floors beside this crate, Debian's UCX and uct_perftest; the rows are in tests/compare*.toml. `--net` compares uct-net with what
//! does the same; `--sweep` measures whole curves.
#![forbid(unsafe_code)]

mod measure;
mod placement;
mod rounds;
mod sweep;
mod table;
mod wheel;

use apt::Package;
use clap::Parser;
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use failure::{Context, Failure, Outcome};
use measure::{PEERS, Programs};
use rounds::{BEFORE, FLOOR, MEASURED, OURS, Rounds, UCX};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use table::{Row, TRAFFIC, Table};
use workspace::{Workspace, cargo_run};
use xtask_common::{apt, failure, net, process, workspace};

/// The sources of the floors, from the top of the workspace.
const FLOORS: &str = "xtask/compare/floors";
/// What is measured of ours.
const PROGRAM: &str = "uct_perftest";

const PACKAGES: &[Package] = &[
    Package { name: "ucx-utils", brings: "/usr/bin/ucx_perftest" },
    Package { name: "util-linux", brings: "/usr/bin/taskset" },
];

/// Run floor, UCX and ours in turn, and show medians and ratios
#[derive(Parser, Debug)]
#[command(name = "cargo xtask compare", bin_name = "cargo xtask compare")]
pub struct Options {
    /// Only rows whose names contain this
    #[arg(value_name = "NAME")]
    only: Option<String>,

    /// How often each is measured [default: 5; for a sweep 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,

    /// The rows of tests/compare-verbs.toml, in a virtual machine with verbs devices
    #[arg(long)]
    verbs: bool,

    /// The rows of tests/compare-net.toml: uct-net beside sockets of tokio and libraries of others
    #[arg(long, conflicts_with_all = ["verbs", "table", "sweep"])]
    net: bool,

    /// Rows from this file, with the programs of --programs: nothing is built or installed
    #[arg(long, value_name = "FILE", requires = "programs", conflicts_with = "verbs")]
    table: Option<PathBuf>,

    /// Directory with uct_perftest: nothing is built
    #[arg(long, value_name = "DIRECTORY", requires = "table")]
    programs: Option<PathBuf>,

    /// An older build as well: the directory with its uct_perftest and plugins, such as target/release of another checkout
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "sweep")]
    before: Option<PathBuf>,

    /// Instead of rows: all sizes, layouts and operations over this transport, beside the newest UCX. NAME chooses among
    /// curves such as `am_lat bcopy`
    #[arg(long, value_name = "TRANSPORT", conflicts_with_all = ["verbs", "table"])]
    sweep: Option<String>,

    /// Of --sweep: write the figures to a file
    #[arg(long, value_name = "FILE", requires = "sweep")]
    json: Option<PathBuf>,

    #[command(flatten)]
    sweeping: sweep::Sweeping,
}

impl Options {
    /// The rows that are asked for.
    fn rows<'a>(&self, table: &'a Table) -> impl Iterator<Item = &'a Row> {
        table.row.iter().filter(|row| self.only.as_ref().is_none_or(|only| row.name.contains(only)))
    }

    fn rounds(&self, default: u8) -> u8 {
        self.rounds.unwrap_or(default)
    }
}

/// Rounds of a row.
const ROUNDS: u8 = 5;

fn main() -> ExitCode {
    failure::exit(run(&Options::parse()))
}

/// Measures and prints the table. A row that cannot be measured is shown as such, and the status is 1.
fn run(options: &Options) -> Outcome<u8> {
    if let Some(before) = &options.before {
        older_build(before)?;
    }
    let programs = |floors: PathBuf, ours: PathBuf, table: &Table| Programs {
        floors,
        ours,
        before: options.before.clone(),
        pin: table.pin,
    };
    if let (Some(table), Some(directory)) = (&options.table, &options.programs) {
        let table = Table::read(table)?;
        return compare(options, &table, &programs(directory.clone(), directory.clone(), &table));
    }
    let workspace = Workspace::load()?;
    if let Some(transport) = &options.sweep {
        return sweep::run(transport, options, &workspace);
    }
    if options.verbs {
        return in_machine(options, &workspace);
    }
    if options.net {
        return beside_peers(options, &workspace);
    }
    apt::require(PACKAGES)?;
    let table = Table::read(&workspace.root().join("tests/compare.toml"))?;
    // As the older build was made, too.
    let built = workspace.build(&["build", "--release"])?;
    let ours = built.program(PROGRAM)?.with_file_name("");
    let floors = workspace.target().join("floors");
    measure::compile_floors(&workspace.root().join(FLOORS), &floors)?;
    compare(options, &table, &programs(floors, ours, &table))
}

/// The rows of tests/compare-net.toml.
fn beside_peers(options: &Options, workspace: &Workspace) -> Outcome<u8> {
    let table = Table::read(&workspace.root().join("tests/compare-net.toml"))?;
    let built = workspace.build(&["build", "--release", "--package", "uct-stacks", "--bin", TRAFFIC])?;
    let floors = workspace.target().join("floors");
    if options.rows(&table).any(|row| PEERS.iter().any(|peer| row.uses(peer))) {
        measure::build_peers(workspace, &floors)?;
    }
    let ours = built.program(TRAFFIC)?.with_file_name("");
    compare(options, &table, &Programs { floors, ours, before: options.before.clone(), pin: table.pin })
}

/// The files of an older build that are measured. It has to be a directory that contains the program.
fn older_build(directory: &Path) -> Outcome<Vec<PathBuf>> {
    if !directory.join(PROGRAM).is_file() {
        return Err(Failure::new(format!(
            "--before {}: expected a directory that contains {PROGRAM}: `cargo build --release` makes target/release",
            directory.display()
        )));
    }
    let entries = fs::read_dir(directory).context(|| format!("cannot read {}", directory.display()))?;
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name == PROGRAM || (name.starts_with("libuct_") && name.ends_with(".so"))
    };
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_wanted).collect())
}

/// Runs this program again in one boot, with everything that it needs.
fn in_machine(options: &Options, workspace: &Workspace) -> Outcome<u8> {
    const GUEST_TABLE: &str = "/vm/compare.toml";
    const GUEST_BEFORE: &str = "/usr/lib/before";
    let this = std::env::current_exe().unwrap_or_default();
    let table = workspace.root().join("tests/compare-verbs.toml");
    let mut script = format!(
        "xtask-compare --rounds {} --table {GUEST_TABLE} --programs /usr/bin",
        options.rounds(ROUNDS)
    );
    let mut files = vec![
        format!("{}:/usr/bin/xtask-compare", this.display()),
        format!("{}:{GUEST_TABLE}", table.display()),
        "/usr/bin/taskset".to_owned(),
    ];
    if let Some(before) = &options.before {
        script += &format!(" --before {GUEST_BEFORE}");
        let guest =
            |file: &PathBuf| format!("{GUEST_BEFORE}/{}", file.file_name().unwrap_or_default().display());
        files.extend(older_build(before)?.iter().map(|file| format!("{}:{}", file.display(), guest(file))));
    }
    if let Some(only) = &options.only {
        script = format!("{script} {}", process::quote(only));
    }
    let mut machine = cargo_run("xtask");
    machine.args(["vm", "--release", "--timeout", "3600"]);
    machine.args(files.iter().flat_map(|file| ["--file", file]));
    // What a comparison runs; the other programs and plugins would only be built and packed.
    let plugins = workspace.plugin_packages().map(|package| package.name.as_str());
    let wanted = plugins.filter(|name| name.contains("verbs")).chain([PROGRAM]);
    machine.args(wanted.flat_map(|package| ["--package", package]));
    let error = machine.arg("--").arg(script).exec();
    Err(error).context(|| "cannot start the virtual machine".to_owned())
}

fn compare(options: &Options, table: &Table, programs: &Programs) -> Outcome<u8> {
    let mut shown = comfy_table::Table::new();
    shown.load_style(UTF8_FULL_CONDENSED);
    // The columns of the older build, where there is one.
    let before = |column: &str| options.before.is_some().then(|| column.to_owned());
    let titles = |columns: &[&str]| columns.iter().map(|&column| column.to_owned()).collect::<Vec<_>>();
    let mut header = titles(&["", "unit", "floor", "UCX"]);
    header.extend(before("before"));
    header.extend(titles(&["ours", "ours/floor", "ours/UCX"]));
    header.extend(before("ours/before"));
    header.extend(titles(&["goal", "rounds"]));
    shown.set_header(header);
    let mut status = 0;
    for row in options.rows(table) {
        let (rounds, complaints) = measure_row(options.rounds(ROUNDS), table, row, programs);
        for complaint in &complaints {
            eprintln!("{}: {complaint}", row.name);
            status = 1;
        }
        let figure = |whose| rounds.median(whose).map_or_else(|| "-".to_owned(), digits);
        let ratio = |to| rounds.ratio(OURS, to).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // A run that is ended early has told what it found so far.
        let older = before(&figure(BEFORE)).map(|figure| format!(", before {figure}")).unwrap_or_default();
        let [floor, ucx, ours] = [FLOOR, UCX, OURS].map(figure);
        eprintln!("{}: floor {floor}, UCX {ucx}{older}, ours {ours} {}", row.name, row.metric.unit());
        let mut cells = vec![row.name.clone(), row.metric.unit().to_owned(), floor, ucx];
        cells.extend(before(&figure(BEFORE)));
        cells.extend([ours, ratio(FLOOR), ratio(UCX)]);
        cells.extend(before(&ratio(BEFORE)));
        cells.extend([row.goal.clone().unwrap_or_default(), rounds.count()]);
        shown.add_row(cells);
    }
    for column in shown.column_iter_mut().skip(2).take(if options.before.is_some() { 7 } else { 5 }) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{shown}");
    println!("Medians of the rounds, each of all of them in turn; ratios are medians of the rounds' ratios.");
    if let Some(disturbed) = table.disturbed {
        println!(
            "Rounds: those that count, of those taken. In the others one of them took more than {disturbed} times its \
             lower quartile."
        );
    }
    Ok(status)
}

/// Floor, UCX, ours, before; then UCX, ours, before, floor; and so on: none of them always comes first. The first failure of
/// each ends its measurements. Where the table says what a disturbed round is, others are taken in their place.
fn measure_row(wanted: u8, table: &Table, row: &Row, programs: &Programs) -> (Rounds, Vec<String>) {
    let ours = |directory| row.ours.as_ref().map(|ours| programs.ours(directory, table, row, ours));
    let measures: [&dyn Fn() -> Option<Outcome<f64>>; MEASURED] = [
        &|| row.floor.as_ref().map(|floor| programs.floor(floor, row.metric)),
        &|| row.ucx.as_ref().map(|ucx| programs.ucx(row, ucx)),
        &|| ours(&programs.ours),
        &|| programs.before_of(row).and_then(&ours),
    ];
    let mut goes_on = [true; MEASURED];
    let mut rounds = Rounds::new(row.metric, table.disturbed);
    let mut complaints = Vec::new();
    while rounds.wants_more(usize::from(wanted)) {
        let mut round = [None; MEASURED];
        for whose in (0..MEASURED).map(|turn| (rounds.taken() + turn) % MEASURED) {
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
    fn an_older_build_is_its_program_and_its_plugins() {
        let directory = tempfile::tempdir().unwrap();
        let refused = older_build(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("--before") && refused.contains(PROGRAM), "{refused}");
        for file in [PROGRAM, "libuct_tcp.so", "libuct_tcp.d", "uct_info"] {
            fs::write(directory.path().join(file), "").unwrap();
        }
        let mut files = older_build(directory.path()).unwrap();
        files.sort();
        assert_eq!(files, ["libuct_tcp.so", PROGRAM].map(|file| directory.path().join(file)));
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([4.567, 45.67, 456.7].map(digits), ["4.57", "45.7", "457"]);
    }
}
