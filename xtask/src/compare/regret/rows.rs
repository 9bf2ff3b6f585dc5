//! The rows of `cargo xtask compare --regret`: what was chosen, what was faster, and the table of them.
//! Used by `regret`.

use super::super::rounds::median;
use super::{Between, SIZES, Way, operations};
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};

/// The most that a choice may take, of the best: by the models, and calibrated.
const GOALS: [f64; 2] = [2.0, 1.2];

/// What each chooser chooses among some ways.
pub struct Row {
    /// An operation, or operations to choose among.
    name: String,
    size: u64,
    /// By the models, calibrated.
    choices: [Choice; 2],
}

struct Choice {
    way: String,
    /// Nanoseconds: the median of the rounds.
    time: f64,
    /// How many times as long as another way it takes, for the way for which that is most: the median of the rounds' ratios. At
    /// least 1, its ratio to itself.
    ratio: f64,
    /// That way.
    beside: String,
}

impl Row {
    /// All rows.
    pub fn all(ways: &[Way]) -> Vec<Row> {
        let of_kinds = |kinds: &[&str]| -> Vec<String> {
            operations().filter(|operation| kinds.iter().any(|kind| operation.starts_with(kind))).collect()
        };
        let single = operations().map(|operation| (operation.clone(), vec![operation]));
        let joint = [("any message", of_kinds(&["am"])), ("message or put", of_kinds(&["am", "put"]))];
        let groups = single.chain(joint.map(|(name, operations)| (name.to_owned(), operations)));
        let rows = groups.flat_map(|(name, operations)| {
            SIZES.map(|size| Row::of(ways, size, &name, &operations)).into_iter().flatten()
        });
        rows.collect()
    }

    /// Among the operations of these names. `None` if there are no two ways to choose between.
    fn of(ways: &[Way], size: u64, name: &str, operations: &[String]) -> Option<Row> {
        let is_meant =
            |way: &&Way| way.size == size && operations.contains(&way.operation) && !way.times.is_empty();
        let ways: Vec<&Way> = ways.iter().filter(is_meant).collect();
        if ways.len() < 2 {
            return None;
        }
        let choices = [Choice::of(&ways, 0, operations)?, Choice::of(&ways, 1, operations)?];
        Some(Row { name: name.to_owned(), size, choices })
    }

    fn ratios(&self) -> [f64; 2] {
        [0, 1].map(|chooser| self.choices[chooser].ratio)
    }
}

impl Choice {
    /// As `Selector::choose` chooses for each operation, and `Selector::cheapest` among operations.
    fn of(ways: &[&Way], chooser: usize, operations: &[String]) -> Option<Choice> {
        let cost = |way: &Way| way.costs[chooser];
        let of_operation = |operation: &String| {
            let ways = ways.iter().filter(|way| way.operation == *operation);
            ways.min_by(|left, right| {
                let [left, right] = [cost(left), cost(right)];
                right.is_chosen.cmp(&left.is_chosen).then(left.seconds.total_cmp(&right.seconds))
            })
        };
        let chosen = operations.iter().filter_map(of_operation).min_by(|left, right| {
            let by_cost = cost(left).seconds.total_cmp(&cost(right).seconds);
            by_cost.then(is_message(left).cmp(&is_message(right)))
        })?;
        let ratios = ways.iter().filter_map(|way| Some((ratio(chosen, way)?, *way)));
        let (ratio, beside) = ratios.max_by(|left, right| left.0.total_cmp(&right.0))?;
        let named = |way: &Way| match operations {
            [_] => way.iface.clone(),
            _ => format!("{} {}", way.operation, way.iface),
        };
        Some(Choice { way: named(chosen), time: median(chosen.times.clone())?, ratio, beside: named(beside) })
    }
}

/// The median of the rounds' ratios: in one round both met the same machine, as far as it does not change within a second.
fn ratio(of: &Way, to: &Way) -> Option<f64> {
    median(of.times.iter().zip(&to.times).map(|(of, to)| of / to).collect())
}

fn is_message(way: &Way) -> bool {
    way.operation.starts_with("am")
}

/// Prints the table, and how far from the goals it is.
pub fn print(rows: &[(Between, Row)]) {
    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let of_chooser = ["ns", "ratio", "to"];
    table.set_header(
        [&["between", "", "bytes", "by the models"], &of_chooser[..], &["calibrated"], &of_chooser].concat(),
    );
    for (between, row) in rows {
        let mut cells = vec![between.to_string(), row.name.clone(), row.size.to_string()];
        for Choice { way, time, ratio, beside } in &row.choices {
            let beside = if way == beside { "-" } else { beside };
            cells.extend([way.clone(), format!("{time:.0}"), format!("{ratio:.2}"), beside.to_owned()]);
        }
        table.add_row(cells);
    }
    for column in [2, 4, 5, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
    println!(
        "Time of the choice: the median of the rounds, half of a round trip, or a get. Ratio: the choice's time divided by that of another way in the \
         same round, the median of the rounds; of the other ways the one for which it is most. - if none was faster."
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
    use super::super::Cost;
    use super::*;

    /// An operation on an interface, its costs by both choosers, of which the first is chosen if it is negative, and its times.
    fn way(operation: &str, iface: &str, seconds: [f64; 2], times: &[f64]) -> Way {
        let cost = |seconds: f64| Cost { seconds: seconds.abs(), is_chosen: seconds < 0.0 };
        Way {
            operation: operation.to_owned(),
            iface: iface.to_owned(),
            size: 8,
            costs: seconds.map(cost),
            times: times.to_vec(),
        }
    }

    fn row(ways: &[Way], operations: &[&str]) -> Option<Row> {
        let operations: Vec<String> = operations.iter().map(|&it| it.to_owned()).collect();
        Row::of(ways, 8, "a row", &operations)
    }

    #[test]
    fn the_regret_is_the_median_of_the_ratios_within_rounds() {
        let ways = [
            way("am_short", "sysv/memory", [0.5, 0.5], &[]),
            way("am_short", "posix/memory", [2.0, -2.0], &[100.0, 5000.0, 90.0]),
            way("am_short", "tcp/lo", [-3.0, 1.0], &[400.0, 10_000.0, 450.0]),
        ];
        let of_both = row(&ways, &["am_short"]).expect("two ways");
        assert_eq!(of_both.ratios(), [4.0, 1.0], "the choice of selection, if its cost is not the least");
        assert_eq!([&of_both.choices[0].beside, &of_both.choices[1].beside], ["posix/memory"; 2]);
        assert_eq!(of_both.choices[0].time, 450.0);
        assert!(row(&ways[..2], &["am_short"]).is_none(), "one of them was not measured");
        assert!(row(&ways, &["put_short"]).is_none());
    }

    #[test]
    fn ways_that_are_slow_in_other_rounds_take_the_same_time() {
        let ways = [
            way("am_short", "a/m", [-1.0, -1.0], &[60.0, 61.0, 200.0, 60.0]),
            way("am_short", "b/m", [1.0, 1.0], &[61.0, 60.0, 60.0, 200.0]),
        ];
        assert!(row(&ways, &["am_short"]).expect("two ways").ratios().iter().all(|&ratio| ratio < 1.02));
    }

    #[test]
    fn a_way_counts_up_to_the_round_in_which_it_failed() {
        let ways = [
            way("am_short", "a/m", [-1.0, -1.0], &[60.0, 600.0, 600.0]),
            way("am_short", "b/m", [1.0, 1.0], &[30.0]),
        ];
        assert_eq!(row(&ways, &["am_short"]).expect("two ways").ratios(), [2.0; 2]);
    }

    #[test]
    fn among_operations_the_least_cost_of_their_choices_counts_and_of_equal_ones_a_put() {
        let ways = [
            way("am_short", "a/m", [-1.0, 1.0], &[100.0]),
            way("am_short", "b/m", [1.0, -1.05], &[100.0]),
            way("put_short", "a/m", [-1.0, -1.03], &[300.0]),
        ];
        let row = row(&ways, &["am_short", "put_short"]).expect("three ways");
        assert_eq!(row.choices.each_ref().map(|it| it.way.as_str()), ["put_short a/m"; 2]);
        assert_eq!(row.ratios(), [3.0; 2]);
    }

    #[test]
    fn a_way_of_a_machine_is_read_as_it_was_written() {
        let written = way("am_short", "a/m", [-0.1, 2.0], &[0.1, 3.5]);
        let text = serde_json::to_string(&written).expect("text");
        let read: Way = serde_json::from_str(&text).expect("a way");
        assert_eq!((read.operation, read.iface, read.size), (written.operation, written.iface, 8));
        assert_eq!((read.costs[0].is_chosen, read.costs[1].seconds, read.times), (true, 2.0, vec![0.1, 3.5]));
    }
}
