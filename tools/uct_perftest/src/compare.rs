//! `--compare A.json B.json`: what two runs have in common, side by side.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use uct_tools_common::{Failure, output};

use crate::kind::Layout;
use crate::result::{JSON_VERSION, Record};
use crate::sizes::shown;

/// A comparison.
#[derive(Serialize)]
struct Comparison {
    schema: u32,
    a: String,
    b: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    size: usize,
    layout: Layout,
    figure: &'static str,
    a: f64,
    b: f64,
    /// b : a
    ratio: f64,
    /// Whether B is better; `null` if they are equal.
    b_is_better: Option<bool>,
}

/// Prints the comparison.
pub(crate) fn run(a: &Path, b: &Path, json: bool) -> Result<(), Failure> {
    let comparison = Comparison::of((a, &read(a)?), (b, &read(b)?))?;
    if json {
        return output(&format!("{}\n", serde_json::to_string_pretty(&comparison)?));
    }
    output(&comparison.text())
}

fn read(path: &Path) -> Result<Record, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let record: Record = serde_json::from_str(&text)
        .map_err(|error| format!("{}: not a result of uct_perftest --json: {error}", path.display()))?;
    if record.schema != JSON_VERSION {
        let (path, found) = (path.display(), record.schema);
        return Err(
            format!("{path}: version {found} of the format, expected {JSON_VERSION}; measure again").into()
        );
    }
    Ok(record)
}

impl Comparison {
    fn of((a_path, a): (&Path, &Record), (b_path, b): (&Path, &Record)) -> Result<Comparison, Failure> {
        if a.test != b.test {
            let (first, second) = (a.test.name(), b.test.name());
            return Err(format!(
                "different tests: {} has {first}, {} has {second}",
                a_path.display(),
                b_path.display()
            )
            .into());
        }
        let rows: Vec<Row> = a
            .results
            .iter()
            .flat_map(|left| {
                let same = |right: &&crate::result::Outcome| right.size == left.size;
                b.results.iter().find(same).into_iter().flat_map(move |right| {
                    let (first, second) = (left.headline(a.test), right.headline(a.test));
                    let tail = |outcome: &crate::result::Outcome| outcome.latency.p99_ns / 1e3;
                    let cpu = |outcome: &crate::result::Outcome| outcome.cpu.client_ns / 1e3;
                    let row = |figure, a: f64, b: f64, less_is_better: bool| Row {
                        size: left.size,
                        layout: right.layout,
                        figure,
                        a,
                        b,
                        ratio: b / a.max(f64::MIN_POSITIVE),
                        b_is_better: (a != b).then_some((b < a) == less_is_better),
                    };
                    [
                        row(first.title(), first.scaled(), second.scaled(), first.less_is_better()),
                        row("99% (us)", tail(left), tail(right), true),
                        row("processor of the client (us)", cpu(left), cpu(right), true),
                    ]
                })
            })
            .collect();
        if rows.is_empty() {
            return Err(
                format!("{} and {} have no size in common", a_path.display(), b_path.display()).into()
            );
        }
        let name = |path: &Path, record: &Record| {
            format!("{} ({}/{}, {})", path.display(), record.transport, record.device, record.wait.name())
        };
        Ok(Comparison { schema: JSON_VERSION, a: name(a_path, a), b: name(b_path, b), rows })
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["size", "figure", "A", "B", "B : A", ""]);
        for row in &self.rows {
            let verdict = match row.b_is_better {
                Some(true) => "B better",
                Some(false) => "A better",
                None => "equal",
            };
            table.add_row([
                shown(row.size),
                row.figure.to_owned(),
                format!("{:.3}", row.a),
                format!("{:.3}", row.b),
                format!("{:.3}", row.ratio),
                verdict.to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(2).take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("A: {}\nB: {}\n{table}\n", self.a, self.b)
    }
}
