//! The rows of `cargo xtask compare --regret`: what was chosen, what would have been best, and the table of them.
//! Used by `regret`.

use super::super::rounds::median;
use super::{Between, Costs, SIZES, Times, Way, operations};
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use serde::{Deserialize, Serialize};

/// The most that a choice may take, of the best: by the models, and calibrated.
const GOALS: [f64; 2] = [2.0, 1.2];

/// A way, and its time in nanoseconds.
type Timed = (Way, f64);

/// The time of the way with the least cost, beside that of the fastest.
#[derive(Serialize, Deserialize)]
pub struct Row {
    /// An operation, or operations to choose among.
    name: String,
    size: u64,
    best: Timed,
    /// By each chooser: the models, calibrated.
    chosen: [Timed; 2],
}

impl Row {
    /// All rows.
    pub fn all(choosers: &[Costs; 2], times: &Times) -> Vec<Row> {
        let of_kinds = |kinds: &[&str]| -> Vec<String> {
            operations().filter(|operation| kinds.iter().any(|kind| operation.starts_with(kind))).collect()
        };
        let single = operations().map(|operation| (operation.clone(), vec![operation]));
        let joint = [("any message", of_kinds(&["am"])), ("message or put", of_kinds(&["am", "put"]))];
        let groups = single.chain(joint.map(|(name, operations)| (name.to_owned(), operations)));
        let rows = groups.flat_map(|(name, operations)| {
            SIZES.map(|size| Row::of(choosers, times, size, (&name, &operations))).into_iter().flatten()
        });
        rows.collect()
    }

    /// Among the operations of these names. `None` if there are no two ways to choose between.
    fn of(
        choosers: &[Costs; 2],
        times: &Times,
        size: u64,
        (name, operations): (&str, &[String]),
    ) -> Option<Row> {
        let time = |way: &Way| least(times.get(&(way.clone(), size))?);
        let is_meant = |(way, _): &&(Way, f64)| operations.contains(&way.0) && time(way).is_some();
        let ways: Vec<&(Way, f64)> = choosers[0].get(&size)?.iter().filter(is_meant).collect();
        if ways.len() < 2 {
            return None;
        }
        let timed = |way: &Way| Some((way.clone(), time(way)?));
        let best =
            ways.iter().filter_map(|(way, _)| timed(way)).min_by(|left, right| left.1.total_cmp(&right.1))?;
        // As `Selector::cheapest` does among requests.
        let is_before = |(left, right): (&(Way, f64), &(Way, f64))| {
            left.1.total_cmp(&right.1).then(is_message(&left.0).cmp(&is_message(&right.0)))
        };
        let chosen = |costs: &Costs| {
            let usable = costs.get(&size)?.iter().filter(is_meant);
            timed(&usable.min_by(|left, right| is_before((left, right)))?.0)
        };
        let chosen = [chosen(&choosers[0])?, chosen(&choosers[1])?];
        Some(Row { name: name.to_owned(), size, best, chosen })
    }

    fn ratios(&self) -> [f64; 2] {
        [0, 1].map(|chooser| self.chosen[chooser].1 / self.best.1)
    }
}

/// The time without what other programs took: ways that run the same code differ by that alone.
fn least(times: &[f64]) -> Option<f64> {
    times.iter().copied().min_by(f64::total_cmp)
}

fn is_message((operation, _): &Way) -> bool {
    operation.starts_with("am")
}

/// Prints the table, and how far from the goals it is.
pub fn print(rows: &[(Between, Row)]) {
    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["between", "", "bytes", "best", "ns", "by the models", "ratio", "calibrated", "ratio"]);
    for (between, row) in rows {
        let ratios = row.ratios();
        let named = |(operation, iface): &Way| match *operation == row.name {
            true => iface.clone(),
            false => format!("{operation} {iface}"),
        };
        let [by_model, calibrated] = &row.chosen;
        table.add_row([
            between.to_string(),
            row.name.clone(),
            row.size.to_string(),
            named(&row.best.0),
            format!("{:.0}", row.best.1),
            named(&by_model.0),
            format!("{:.2}", ratios[0]),
            named(&calibrated.0),
            format!("{:.2}", ratios[1]),
        ]);
    }
    for column in [2, 4, 6, 8] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    println!(
        "Time of the choice, divided by the best. The least of the rounds' medians; half of a round trip, or of a get."
    );
    let mut sides: Vec<Between> = rows.iter().map(|(between, _)| *between).collect();
    sides.dedup();
    for side in sides {
        for (chooser, name) in ["by the models", "calibrated"].into_iter().enumerate() {
            let of_side = rows.iter().filter(|(between, _)| *between == side);
            println!(
                "{}",
                summary(side, name, of_side.map(|(_, row)| row.ratios()[chooser]).collect(), GOALS[chooser])
            );
        }
    }
}

fn summary(side: Between, name: &str, ratios: Vec<f64>, goal: f64) -> String {
    let worst = ratios.iter().copied().fold(1.0, f64::max);
    let above = ratios.iter().filter(|&&ratio| ratio > goal).count();
    let rows = ratios.len();
    let middle = median(ratios).unwrap_or(1.0);
    format!(
        "{side}, {name}: median {middle:.2}, worst {worst:.2}; {above} of {rows} rows above the goal of {goal}"
    )
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
            ((way("am_short", "tcp/lo"), 8), vec![4000.0, 400.0, 360.0]),
        ]);
        let operations = ["am_short".to_owned()];
        let row = Row::of(&[costs(2.0, 1.0), costs(1.0, 2.0)], &times, 8, ("am_short", &operations));
        assert_eq!(row.map(|row| row.ratios()), Some([4.0, 1.0]));
        let others = ["put_short".to_owned()];
        assert!(Row::of(&[costs(2.0, 1.0), costs(1.0, 2.0)], &times, 8, ("put_short", &others)).is_none());
    }

    #[test]
    fn of_equal_costs_a_put_is_chosen_ahead_of_a_message() {
        let costs =
            || Costs::from([(8, vec![(way("am_short", "a/m"), 1.0), (way("put_short", "a/m"), 1.0)])]);
        let times = Times::from([
            ((way("am_short", "a/m"), 8), vec![100.0]),
            ((way("put_short", "a/m"), 8), vec![300.0]),
        ]);
        let operations = ["am_short", "put_short"].map(str::to_owned);
        let row = Row::of(&[costs(), costs()], &times, 8, ("either", &operations)).expect("two ways");
        assert_eq!(row.ratios(), [3.0, 3.0]);
    }

    #[test]
    fn a_row_of_a_machine_is_read_as_it_was_written() {
        let timed = |time| (way("am_short", "a/m"), time);
        let row =
            Row { name: "am_short".to_owned(), size: 8, best: timed(0.1), chosen: [timed(2.0), timed(3.5)] };
        let text = serde_json::to_string(&row).expect("text");
        let read: Row = serde_json::from_str(&text).expect("a row");
        assert_eq!((read.name.as_str(), read.size, read.ratios()), ("am_short", 8, row.ratios()));
    }
}
