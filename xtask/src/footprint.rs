//! `cargo xtask footprint`: what memory a small program takes, beside its ceiling.
//! Built on the program `small` of tests/measured, a release build with the transports that are linked into it.

use crate::failure::{Failure, Outcome};
use crate::process::{command, line, output};
use crate::workspace::Workspace;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use std::time::Duration;

const PROGRAM: &str = "small";
const BUILT_IN: &str = "self,shm,tcp";
const CASES: &[[&str; 2]] = &[["self", "memory"], ["posix", "memory"], ["tcp", "lo"]];
/// Kilobytes that are the program's own. They are the same on each machine but for a page or two.
const CEILING: u64 = 640;
/// Kilobytes that are resident, those of the C library and the loader among them. How many pages of a file the kernel maps around one that
/// is used differs from kernel to kernel and from run to run, and the figure with it, by half a megabyte and more. This ceiling finds only what
/// is far off.
const RESIDENT_CEILING: u64 = 6144;
/// Runs of which the smallest figures count.
const RUNS: usize = 5;
const LIMIT: Duration = Duration::from_secs(300);

/// Measures, prints the table, fails if a figure is above the ceiling.
pub fn run(workspace: &Workspace) -> Outcome {
    let built = workspace.build_measured(PROGRAM)?;
    let program = built.program(PROGRAM)?;
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["transport", "kB of its own", "ceiling", "kB resident", "ceiling"]);
    let mut above = Vec::new();
    for case in CASES {
        let mut least = [u64::MAX; 2];
        for _ in 0..RUNS {
            let mut small = command(program);
            let printed = output(small.args(case).env("UCT_MODULES", BUILT_IN), LIMIT)?;
            let figures = figures(&printed).ok_or_else(|| {
                Failure::new(format!("`{}` printed {printed:?}, not two figures", line(&small)))
            })?;
            least = [least[0].min(figures[0]), least[1].min(figures[1])];
        }
        let [resident, own] = least;
        let cells = [own, CEILING, resident, RESIDENT_CEILING].map(|figure| figure.to_string());
        table.add_row([&[case[0].to_owned()], &cells[..]].concat());
        if own > CEILING {
            above.push(format!("{}: {own} kB of its own, at most {CEILING}", case[0]));
        }
        if resident > RESIDENT_CEILING {
            above.push(format!("{}: {resident} kB resident, at most {RESIDENT_CEILING}", case[0]));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    if above.is_empty() { Ok(()) } else { Err(Failure::new(above.join("\n"))) }
}

fn figures(printed: &str) -> Option<[u64; 2]> {
    let figures: Option<Vec<u64>> = printed.split_whitespace().map(|word| word.parse().ok()).collect();
    figures?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_figures_are_read_and_nothing_else() {
        assert_eq!(figures("3800 420\n"), Some([3800, 420]));
        assert_eq!(figures("3800 ?\n"), None);
        assert_eq!(figures("3800\n"), None);
    }
}
