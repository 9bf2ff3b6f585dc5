//! The rows of a comparison, as tests/compare.toml and tests/compare-verbs.toml have them.
//! Used by `compare`.

use crate::failure::{Context, Failure, Outcome};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The program of tests/stacks: the same traffic over sockets and over transports.
pub const TRAFFIC: &str = "traffic";

/// A table of comparisons.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Whether client and server are kept on a processor each.
    pub pin: bool,
    /// A round does not count, and another is taken, in which one of the three takes more than so many times its lower quartile;
    /// 1 or more. Without it all rounds count.
    pub disturbed: Option<f64>,
    /// Where `uct_perftest --json` says each metric.
    pub ours: BTreeMap<Metric, Figure>,
    /// The comparisons.
    pub row: Vec<Row>,
}

/// A place in a JSON document, and what the number there is to be multiplied with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// A JSON pointer.
    pub pointer: String,
    /// Into ns, million messages a second, or MB/s.
    pub factor: f64,
}

/// What is compared.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// In ns; where nothing else is said half a round trip, the median.
    Latency,
    /// In ns: half a round trip, the mean.
    Mean,
    /// Million messages a second.
    Rate,
    /// Millions of bytes a second.
    Bandwidth,
    /// Requests a second.
    Requests,
    /// Processor time of both sides in ns, of a request or of 1000 bytes.
    Cpu,
}

impl Metric {
    /// The unit of its figures.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Latency | Metric::Mean | Metric::Cpu => "ns",
            Metric::Rate => "M/s",
            Metric::Bandwidth => "MB/s",
            Metric::Requests => "/s",
        }
    }
}

/// One comparison. Each of the three is a command line; what is absent is not measured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Row {
    /// What it is, for humans.
    pub name: String,
    /// What is compared.
    pub metric: Metric,
    /// A program of xtask/floors, of tests/peers or `traffic` of tests/stacks, one of the perftest package (ib_send_lat and its kind), or `rstream`
    /// of rdmacm-utils, with arguments.
    pub floor: Option<String>,
    /// Arguments of ucx_perftest.
    pub ucx: Option<String>,
    /// What UCX's figure is multiplied with, where it means something else than ours.
    #[serde(default = "one")]
    pub ucx_factor: f64,
    /// Arguments of uct_perftest, or `traffic` with arguments.
    pub ours: Option<String>,
    /// The goals, as ratios, as text.
    pub goal: Option<String>,
}

impl Row {
    /// Whether what is ours is measured by [`TRAFFIC`].
    pub fn ours_is_traffic(&self) -> bool {
        self.ours.as_deref().is_some_and(|ours| program_and_arguments(ours).0 == TRAFFIC)
    }

    /// Whether a program of this name measures the floor or ours.
    pub fn uses(&self, program: &str) -> bool {
        let commands = [&self.floor, &self.ours].into_iter().flatten();
        commands.map(|command| program_and_arguments(command).0).any(|used| used == program)
    }
}

/// The first word of a command, and the others.
pub fn program_and_arguments(command: &str) -> (&str, &str) {
    command.split_once(' ').unwrap_or((command, ""))
}

fn one() -> f64 {
    1.0
}

impl Table {
    /// Reads a table. Each row with a command of ours needs to know where its figure is.
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
        Table::parse(&text).context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Outcome<Self> {
        let table: Table = toml::from_str(text).context(|| "not a table of comparisons".to_owned())?;
        if table.disturbed.is_some_and(|disturbed| disturbed.is_nan() || disturbed < 1.0) {
            return Err(Failure::new(
                "`disturbed` is how many times its lower quartile a figure may take, 1 or more",
            ));
        }
        let by_perftest = |row: &&Row| row.ours.is_some() && !row.ours_is_traffic();
        match table.row.iter().filter(by_perftest).find(|row| !table.ours.contains_key(&row.metric)) {
            Some(row) => {
                Err(Failure::new(format!("`{}`: [ours] does not say where {:?} is", row.name, row.metric)))
            }
            None => Ok(table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_tables_are_valid() {
        assert!(!Table::parse(include_str!("../../../tests/compare.toml")).unwrap().row.is_empty());
        assert!(!Table::parse(include_str!("../../../tests/compare-verbs.toml")).unwrap().row.is_empty());
        assert!(!Table::parse(include_str!("../../../tests/compare-net.toml")).unwrap().row.is_empty());
    }

    #[test]
    fn a_metric_without_a_place_is_refused() {
        let text = "pin = true\nours = {}\n[[row]]\nname = 'x'\nmetric = 'rate'\nours = '-t am_bw'\n";
        assert!(Table::parse(text).err().unwrap().to_string().contains("Rate"));
        // It prints the figure alone.
        let row = Table::parse(&text.replace("-t am_bw", "traffic flow tcp")).unwrap().row.remove(0);
        assert!(row.uses(TRAFFIC) && !row.uses("tcp"));
    }
}
