//! By what candidates are compared: the cost, and among equal costs the priority of the interface.
//!
//! Measured times differ from one measurement to the next, and transports that run the same code differ by that alone. Those that are near
//! the fastest therefore count as equal, and the models decide among them.

use super::cost::Cost;

/// How many times the least measured time a measured time may be that counts as equal to it.
pub(super) const EQUAL: f64 = 1.1;

/// A candidate that would do.
#[derive(Clone, Copy)]
pub(super) struct Rank {
    pub cost: Cost,
    /// As the transport has it.
    pub priority: u32,
}

/// The number of the best of these candidates.
pub(super) fn best(ranks: &[(usize, Rank)]) -> Option<usize> {
    let (number, cheapest) = least(ranks.iter(), |cost| cost.total)?;
    if !cheapest.cost.is_measured {
        return Some(*number);
    }
    // What was not measured costs more by its model, and is not compared with a margin.
    let limit = cheapest.cost.total * EQUAL;
    let equal = ranks.iter().filter(|(_, rank)| rank.cost.is_measured && rank.cost.total <= limit);
    least(equal, |cost| cost.model).map(|(number, _)| *number)
}

/// The one with the least of these seconds; of equal ones the one with the higher priority, and then the first.
fn least<'r>(
    ranks: impl Iterator<Item = &'r (usize, Rank)>,
    seconds: impl Fn(&Cost) -> f64,
) -> Option<&'r (usize, Rank)> {
    ranks.min_by(|(_, left), (_, right)| {
        seconds(&left.cost).total_cmp(&seconds(&right.cost)).then(right.priority.cmp(&left.priority))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::{Operation, Request};

    /// Seconds of the model and as measured, and the priority.
    fn rank(model: f64, measured: Option<f64>, priority: u32) -> Rank {
        let request = Request::new(Operation::AmShort, 0);
        let cost = Cost::estimate(&crate::attr::blank_iface(), &request, 1, measured, 0.0);
        Rank { cost: Cost { model, total: measured.unwrap_or(model), ..cost }, priority }
    }

    /// The best one, in whatever order they are.
    #[track_caller]
    fn best_of<const N: usize>(ranks: [Rank; N]) -> usize {
        let mut numbered: Vec<(usize, Rank)> = ranks.into_iter().enumerate().collect();
        let number = best(&numbered).expect("there is one");
        for _ in 0..N {
            numbered.rotate_left(1);
            assert_eq!(best(&numbered), Some(number), "in another order");
        }
        number
    }

    #[test]
    fn the_cheaper_is_better_and_of_two_that_cost_the_same_the_one_with_the_higher_priority() {
        assert_eq!(best_of([rank(1.01, None, 9), rank(1.0, None, 0)]), 1, "models are exact");
        assert_eq!(best_of([rank(1.0, None, 1), rank(1.0, None, 2)]), 1);
        let same = rank(1.0, None, 1);
        assert_eq!(best(&[(7, same), (3, same)]), Some(7), "the first one stays");
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn measured_times_near_the_fastest_count_as_equal_and_the_models_decide_among_them() {
        let times = |first, second| best_of([rank(2.0, Some(first), 0), rank(1.0, Some(second), 0)]);
        assert_eq!([times(1.0, 1.0), times(1.0, 1.09), times(1.09, 1.0)], [1; 3]);
        assert_eq!([times(1.0, 1.11), times(1.0, 3.0)], [0; 2], "it is clearly faster");
        let among = |second| best_of([rank(1.0, Some(1.0), 1), rank(1.0, Some(second), 2)]);
        assert_eq!([among(1.05), among(0.95), among(1.2)], [1, 1, 0], "the models are equal: the priority");
    }

    #[test]
    fn the_margin_begins_at_the_fastest_and_not_at_the_chosen_one() {
        let ranks = [rank(3.0, Some(1.0), 0), rank(2.0, Some(1.08), 0), rank(1.0, Some(1.16), 0)];
        assert_eq!(best_of(ranks), 1);
    }

    #[test]
    fn a_measured_time_and_a_model_are_compared_without_a_margin() {
        assert_eq!(best_of([rank(9.0, Some(1.0), 0), rank(1.01, None, 9)]), 0);
        assert_eq!(best_of([rank(0.5, Some(1.01), 9), rank(1.0, None, 0)]), 1);
        let mixed = [rank(3.0, Some(1.0), 0), rank(1.05, None, 9), rank(2.0, Some(1.05), 0)];
        assert_eq!(best_of(mixed), 2, "those that were measured are compared with each other");
    }
}
