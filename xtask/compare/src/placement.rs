//! How near the two processors of a measurement are to each other: by the time of a cache line between them. The host moves a virtual
//! processor: for some seconds both are neighbours, then on different parts of the chip, and a message over shared memory takes
//! three times as long. Figures of one placement can be compared, medians over all of them mix several.
//! Used by `sweep`.

use crate::failure::{Failure, Outcome};
use crate::process::{command, kill_tree, spawn};
use std::process::{Child, Stdio};

/// Times of a cache line that differ no more than this are one placement's.
const SPREAD: f64 = 1.4;
/// Times ahead of and behind a measurement that differ more say that a processor has moved.
const MOVED: f64 = 1.25;
/// A placement with a smaller part of all measurements is not shown.
const LEAST_PART: f64 = 0.15;

/// Keeps both processors busy while nothing else runs on them: the host moves one that wakes up more often than one that is awake.
/// It runs at the priority that everything else in this session displaces at once.
pub struct Awake([Child; 2]);

impl Awake {
    /// Without two processors there is nothing to measure between.
    pub fn start() -> Outcome<Awake> {
        if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
            return Err(Failure::new("there is one processor, and a sweep needs two"));
        }
        let idler = |processor: &str| {
            let mut idler = command("setpriv");
            idler.args(["--pdeathsig", "KILL", "chrt", "-i", "0", "taskset", "-c", processor]);
            spawn(idler.args(["sh", "-c", "while :; do :; done"]).stdin(Stdio::null()).stdout(Stdio::null()))
        };
        Ok(Awake([idler("0")?, idler("1")?]))
    }

    /// What is wrong if one has ended.
    pub fn complaint(&mut self) -> Option<String> {
        let ended = self.0.iter_mut().find_map(|idler| idler.try_wait().ok().flatten())?;
        Some(format!("a program that was to keep a processor awake ended: {ended}"))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(kill_tree);
    }
}

/// The times of a cache line from one processor to the other that are one placement, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    least: f64,
    greatest: f64,
    /// Measurements meanwhile.
    pub count: usize,
}

impl Placement {
    pub fn contains(&self, cache_line: f64) -> bool {
        (self.least..=self.greatest).contains(&cache_line)
    }

    pub fn name(&self) -> String {
        format!("a cache line takes {:.0} to {:.0} ns", self.least, self.greatest)
    }
}

/// The time during a measurement, of those before and behind it. `None` if a processor has moved meanwhile, or one is not known.
pub fn during(before: Option<f64>, behind: Option<f64>) -> Option<f64> {
    let (before, behind) = before.zip(behind)?;
    (before.max(behind) <= before.min(behind) * MOVED).then_some(f64::midpoint(before, behind))
}

/// The placements that occur at these times, the most frequent first.
pub fn placements(mut cache_lines: Vec<f64>) -> Vec<Placement> {
    cache_lines.sort_by(f64::total_cmp);
    let few = (cache_lines.len() as f64 * LEAST_PART).ceil() as usize;
    let mut found = Vec::new();
    loop {
        let starting = |start: usize| {
            let rest = &cache_lines[start..];
            &rest[..rest.partition_point(|&time| time <= rest[0] * SPREAD)]
        };
        let Some(most) = (0..cache_lines.len()).map(starting).max_by_key(|times| times.len()) else { break };
        if most.len() < few {
            break;
        }
        let placement = Placement { least: most[0], greatest: most[most.len() - 1], count: most.len() };
        cache_lines.retain(|&time| !placement.contains(time));
        found.push(placement);
    }
    found
}

/// The nearest and the most distant one, and what pictures of them are called besides.
pub fn ends(placements: &[Placement]) -> Vec<(&'static str, &Placement)> {
    let by_time = |one: &&Placement, other: &&Placement| one.least.total_cmp(&other.least);
    let (near, distant) = (placements.iter().min_by(by_time), placements.iter().max_by(by_time));
    match near.zip(distant) {
        Some((near, distant)) if near != distant => vec![("-near", near), ("-distant", distant)],
        Some((only, _)) => vec![("", only)],
        None => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_where_the_times_gather() {
        let around = |time: f64, count: usize| (0..count).map(move |n| time * (1.0 + n as f64 / 1000.0));
        let times: Vec<f64> =
            around(130.0, 30).chain(around(43.0, 60)).chain(around(20.0, 25)).chain([80.0]).collect();
        let found = placements(times);
        assert_eq!(found.iter().map(|placement| placement.count).collect::<Vec<_>>(), [60, 30, 25]);
        assert_eq!(ends(&found), [("-near", &found[2]), ("-distant", &found[1])]);
        assert_eq!(ends(&found[..1]), [("", &found[0])]);
        assert!(found[0].contains(44.0) && !found[0].contains(80.0) && found[1].contains(130.0), "{found:?}");
        assert!(placements(vec![]).is_empty());
    }

    #[test]
    fn while_a_processor_moves_there_is_no_placement() {
        let during = |before, behind| during(Some(before), behind);
        assert_eq!(during(40.0, Some(44.0)), Some(42.0));
        assert_eq!([Some(130.0), Some(30.0), None].map(|behind| during(43.0, behind)), [None; 3]);
    }
}
