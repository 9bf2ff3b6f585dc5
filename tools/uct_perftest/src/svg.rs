//! `--plot FILE.svg`: the figure that a test is for over the size of the message, both on logarithmic axes.

use std::path::Path;

use uct_tools_common::Failure;

use crate::chart::{Chart, Series, draw};
use crate::result::{Headline, Record};
use crate::sizes::shown;

/// Writes the plot of a run.
pub(crate) fn write(path: &Path, record: &Record) -> Result<(), Failure> {
    std::fs::write(path, plot(record)).map_err(|error| format!("--plot {}: {error}", path.display()).into())
}

fn plot(record: &Record) -> String {
    let headline = record.results.first().map(|outcome| outcome.headline(record.test));
    let chart = Chart {
        title: format!(
            "{} over {}/{}, waiting by {}, {}",
            record.test.name(),
            record.transport,
            record.device,
            record.wait.name(),
            record.host.processor
        ),
        vertical: headline.map_or("", Headline::title).to_owned(),
        horizontal: "bytes of a message".to_owned(),
        series: series(record),
    };
    draw(&chart, shown)
}

fn series(record: &Record) -> Vec<Series> {
    let points = |value: &dyn Fn(&crate::result::Outcome) -> f64| {
        // Zero has no logarithm; the first byte is where it is put.
        record.results.iter().map(|outcome| (outcome.size.max(1) as f64, value(outcome))).collect()
    };
    let main = points(&|outcome| outcome.headline(record.test).scaled());
    match record.results.first().map(|outcome| outcome.headline(record.test)) {
        Some(Headline::Latency(_)) => vec![
            Series { name: "median".to_owned(), colour: "#1f77b4", points: main },
            Series {
                name: "99 %".to_owned(),
                colour: "#ff7f0e",
                points: points(&|outcome| outcome.latency.p99_ns / 1e3),
            },
        ],
        _ => vec![Series { name: "overall".to_owned(), colour: "#1f77b4", points: main }],
    }
}
