//! The rounds of one row, which of them count, and what they say.
//! Built on the metric; used by `compare`.

use super::table::Metric;

/// Places in a round.
pub const FLOOR: usize = 0;
pub const UCX: usize = 1;
pub const OURS: usize = 2;
/// An older build of ours.
pub const BEFORE: usize = 3;
/// So many are measured in a round.
pub const MEASURED: usize = 4;
/// In a sweep, instead of the floor: ours, with every transport open at the server.
pub const OPEN: usize = FLOOR;

/// Rounds that are taken for each that is wanted, at most.
const PATIENCE: usize = 4;

/// One figure each; `None` where there is nothing to measure, or it failed.
pub type Round = [Option<f64>; MEASURED];

/// What was measured of one row.
pub struct Rounds {
    metric: Metric,
    /// How many times its lower quartile a figure of a disturbed round takes; `None` if all rounds count.
    disturbed: Option<f64>,
    taken: Vec<Round>,
}

impl Rounds {
    pub fn new(metric: Metric, disturbed: Option<f64>) -> Rounds {
        Rounds { metric, disturbed, taken: Vec::new() }
    }

    pub fn add(&mut self, round: Round) {
        self.taken.push(round);
    }

    pub fn taken(&self) -> usize {
        self.taken.len()
    }

    /// Whether fewer count than are wanted, and not too many have been taken for it.
    pub fn wants_more(&self, wanted: usize) -> bool {
        self.counting().count() < wanted && self.taken() < wanted * PATIENCE
    }

    /// How many count, of how many.
    pub fn count(&self) -> String {
        format!("{} of {}", self.counting().count(), self.taken())
    }

    /// The median of one of them.
    pub fn median(&self, whose: usize) -> Option<f64> {
        median(self.counting().filter_map(|round| round[whose]).collect())
    }

    /// The median of the ratios within a round.
    pub fn ratio(&self, of: usize, to: usize) -> Option<f64> {
        median(self.counting().filter_map(|round| Some(round[of]? / round[to]?)).collect())
    }

    /// Those that count: a machine that others use as well is slower at times, whatever runs on it. What one of them takes
    /// while it is not shows in its lower quartile, if a quarter of the rounds were calm; a lucky one does not decide.
    fn counting(&self) -> impl Iterator<Item = &Round> {
        let calm = [FLOOR, UCX, OURS, BEFORE].map(|whose| {
            let figures = self.taken.iter().filter_map(|round| Some(self.slowness(round[whose]?)));
            lower_quartile(figures.collect())
        });
        self.taken.iter().filter(move |round| {
            let Some(disturbed) = self.disturbed else { return true };
            let is_disturbed = |(figure, calm): (&Option<f64>, Option<f64>)| {
                let slowness = figure.map(|figure| self.slowness(figure));
                slowness.zip(calm).is_some_and(|(slowness, calm)| slowness > calm * disturbed)
            };
            !round.iter().zip(calm).any(is_disturbed)
        })
    }

    fn slowness(&self, figure: f64) -> f64 {
        match self.metric {
            Metric::Latency | Metric::Mean | Metric::Cpu => figure,
            Metric::Rate | Metric::Bandwidth | Metric::Requests => figure.recip(),
        }
    }
}

pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let upper = *figures.get(middle)?;
    if figures.len() % 2 == 1 { Some(upper) } else { Some((figures[middle - 1] + upper) / 2.0) }
}

fn lower_quartile(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 4).copied()
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

    fn rounds(metric: Metric, disturbed: Option<f64>, taken: &[Round]) -> Rounds {
        Rounds { metric, disturbed, taken: taken.to_vec() }
    }

    #[test]
    fn a_disturbed_round_counts_for_none_of_them() {
        let taken = [
            [Some(10.0), Some(20.0), Some(15.0), Some(30.0)],
            [Some(10.5), Some(41.0), Some(15.0), Some(30.0)],
            [Some(11.0), Some(21.0), Some(16.0), Some(32.0)],
            [Some(10.0), Some(20.0), Some(15.0), Some(60.0)],
        ];
        let calm = rounds(Metric::Latency, Some(1.25), &taken);
        assert_eq!((calm.count().as_str(), calm.median(UCX)), ("2 of 4", Some(20.5)));
        assert_eq!(calm.ratio(OURS, FLOOR), median(vec![1.5, 16.0 / 11.0]));
        assert_eq!(calm.ratio(OURS, BEFORE), Some(0.5));
        assert!(calm.wants_more(3) && !calm.wants_more(2));
        let all = rounds(Metric::Latency, None, &taken);
        assert_eq!((all.count().as_str(), all.median(UCX)), ("4 of 4", Some(20.5)));
    }

    #[test]
    fn a_lucky_round_does_not_make_the_others_disturbed() {
        let ours = [50.0, 81.0, 80.0, 160.0, 82.0, 83.0, 84.0, 85.0];
        let taken = ours.map(|figure| [Some(10.0), None, Some(figure), None]);
        let rounds = rounds(Metric::Latency, Some(1.25), &taken);
        assert_eq!((rounds.count().as_str(), rounds.median(OURS)), ("7 of 8", Some(82.0)));
    }

    #[test]
    fn of_a_rate_the_least_is_the_slowest() {
        let taken = [[Some(1.0), None, Some(4.0), None], [Some(1.0), None, Some(2.0), None]];
        let rounds = rounds(Metric::Rate, Some(1.5), &taken);
        assert_eq!((rounds.median(OURS), rounds.median(UCX)), (Some(4.0), None));
        assert_eq!(rounds.ratio(OURS, UCX), None);
    }

    #[test]
    fn patience_ends() {
        let mut rounds = Rounds::new(Metric::Latency, Some(1.25));
        // The floor becomes slower, ours faster: they are never calm together.
        let mut figure = 1.0;
        while rounds.wants_more(3) {
            rounds.add([Some(figure), None, Some(1.0 / figure), None]);
            figure *= 1.5;
        }
        assert_eq!((rounds.count().as_str(), rounds.median(OURS)), ("0 of 12", None));
    }
}
