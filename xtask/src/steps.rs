//! Steps that all run, whatever the others did, and the table of how they ended.
//! Built on /proc; used by `check` and `test`.

use crate::failure::{Failure, Outcome};
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use rustix::param::clock_ticks_per_second;
use std::time::{Duration, Instant};

/// How a step ended.
pub enum Verdict {
    /// It ran and holds.
    Passed,
    /// It ran and does not hold.
    Failed(String),
    /// It could have run, and was left out. In CI that is a failure.
    LeftOut(String),
    /// This machine cannot run it.
    Impossible(String),
}

struct Row {
    name: String,
    verdict: Verdict,
    time: Duration,
    /// Of the processors, for what the step started.
    processor: Duration,
}

/// The steps so far.
#[derive(Default)]
pub struct Steps {
    only: Vec<String>,
    rows: Vec<Row>,
}

impl Steps {
    /// Only the steps whose names contain one of `words` will run; all of them if there are none.
    pub fn only(words: &[String]) -> Self {
        Steps { only: words.to_vec(), rows: Vec::new() }
    }

    /// Runs a step.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        self.run_or_skip(name, || step().map(|()| Verdict::Passed));
    }

    /// Runs a step that may find that it cannot be run.
    pub fn run_or_skip(&mut self, name: &str, step: impl FnOnce() -> Outcome<Verdict>) {
        if !self.is_chosen(name) {
            return;
        }
        eprintln!("\n== {name}");
        let (start, spent) = (Instant::now(), processor_time());
        let verdict = step().unwrap_or_else(|failure| Verdict::Failed(failure.to_string()));
        match &verdict {
            Verdict::Passed => {}
            Verdict::Failed(reason) => eprintln!("== {name} FAILED: {reason}"),
            Verdict::LeftOut(reason) | Verdict::Impossible(reason) => {
                eprintln!("== {name} skipped: {reason}")
            }
        }
        let processor = processor_time().saturating_sub(spent);
        self.rows.push(Row { name: name.to_owned(), verdict, time: start.elapsed(), processor });
    }

    /// Runs several steps at once, if any. Returned are how each one ended and how long it took. The processor time is shared out in
    /// the same proportion.
    pub fn run_together(&mut self, names: Vec<String>, run: impl FnOnce() -> Vec<(Verdict, Duration)>) {
        let spent = processor_time();
        let ended = run();
        let spent = processor_time().saturating_sub(spent);
        let total = ended.iter().map(|(_, time)| time.as_secs_f64()).sum::<f64>().max(f64::MIN_POSITIVE);
        for (name, (verdict, time)) in names.into_iter().zip(ended) {
            if let Verdict::Failed(reason) = &verdict {
                eprintln!("== {name} FAILED: {reason}");
            }
            let processor = spent.mul_f64(time.as_secs_f64() / total);
            self.rows.push(Row { name, verdict, time, processor });
        }
    }

    /// Whether a step of this name is to run.
    pub fn is_chosen(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word.as_str()))
    }

    /// Prints the table, the whole reason of each failure, and how many passed, failed and were skipped. Fails if one failed, or if one was left
    /// out in CI (`CI=true`).
    pub fn finish(self) -> Outcome {
        if self.rows.is_empty() {
            return Err(Failure::new(format!("no step is named like {}", self.only.join(", "))));
        }
        let strict = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        let (text, outcome) = self.summary(strict);
        println!("\n{text}");
        outcome
    }

    fn summary(self, strict: bool) -> (String, Outcome) {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["step", "result", "s", "processor s", "reason"]);
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        let mut failures = String::new();
        for row in self.rows {
            if let Verdict::Failed(reason) = &row.verdict {
                failures += &format!("\n{} FAILED: {reason}", row.name);
            }
            let (result, reason) = match row.verdict {
                Verdict::Passed => ("passed", String::new()),
                Verdict::Failed(reason) => ("FAILED", first_lines(&reason)),
                Verdict::LeftOut(reason) if strict => ("FAILED", format!("left out in CI: {reason}")),
                Verdict::LeftOut(reason) | Verdict::Impossible(reason) => ("skipped", reason),
            };
            match result {
                "passed" => passed += 1,
                "FAILED" => failed += 1,
                _ => skipped += 1,
            }
            let [time, processor] =
                [row.time, row.processor].map(|time| format!("{:.1}", time.as_secs_f64()));
            table.add_row([row.name, result.to_owned(), time, processor, reason]);
        }
        let text = format!("{table}{failures}\n{passed} passed, {failed} failed, {skipped} skipped");
        let outcome = match failed {
            0 => Ok(()),
            _ => Err(Failure::new(format!("{failed} steps failed"))),
        };
        (text, outcome)
    }
}

/// What the children of this process, and theirs, took of the processors. Zero where /proc does not say.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_secs_f64(ticks_of_children(&stat) as f64 / clock_ticks_per_second().max(1) as f64)
}

/// User and system time of children that were waited for. The name, in parentheses, may hold anything; the state is
/// field 3, the two are fields 16 and 17.
fn ticks_of_children(stat: &str) -> u64 {
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// A reason as the table has room for it.
fn first_lines(reason: &str) -> String {
    const LINES: usize = 3;
    const WIDTH: usize = 100;
    let shorten = |line: &str| match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    };
    reason.lines().take(LINES).map(shorten).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(verdicts: [Verdict; 3]) -> Steps {
        let mut steps = Steps::default();
        for verdict in verdicts {
            steps.run_or_skip("step", || Ok(verdict));
        }
        steps
    }

    #[test]
    fn the_last_line_counts_the_steps() {
        let steps =
            steps([Verdict::Passed, Verdict::Failed("broken".into()), Verdict::Impossible("arm".into())]);
        let (text, outcome) = steps.summary(false);
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
        assert!(text.contains("\nstep FAILED: broken\n"));
        assert!(outcome.is_err());
    }

    #[test]
    fn steps_can_be_chosen_by_a_part_of_their_names() {
        let mut steps = Steps::only(&["clip".to_owned()]);
        steps.run("format", || Err(Failure::new("must not run")));
        steps.run("clippy", || Ok(()));
        assert_eq!(steps.summary(false).0.lines().last(), Some("1 passed, 0 failed, 0 skipped"));
        assert!(Steps::only(&["nothing".to_owned()]).finish().is_err());
    }

    #[test]
    fn steps_that_run_together_have_a_row_each() {
        let mut steps = Steps::default();
        let ended = || {
            vec![(Verdict::Passed, Duration::from_secs(3)), (Verdict::Failed("no".into()), Duration::ZERO)]
        };
        steps.run_together(vec!["first".into(), "second".into()], ended);
        let (text, _) = steps.summary(false);
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 0 skipped"));
        assert!(text.contains("first") && text.contains("second") && text.contains("3.0"), "{text}");
    }

    #[test]
    fn the_time_of_children_is_read_from_fields_16_and_17() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 130 140 15";
        assert_eq!(ticks_of_children(stat), 270);
        assert_eq!(ticks_of_children(""), 0);
        let spent = processor_time();
        let mut busy = std::process::Command::new("sh");
        busy.args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]).status().unwrap();
        assert!(processor_time() > spent);
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        assert_eq!(first_lines("a\nb\nc\nd"), "a\nb\nc");
        assert_eq!(first_lines(&"é".repeat(200)), format!("{}…", "é".repeat(100)));
    }

    #[test]
    fn what_was_left_out_fails_only_in_ci() {
        let verdicts =
            || [Verdict::Passed, Verdict::LeftOut("--no-vm".into()), Verdict::Impossible("arm".into())];
        assert!(steps(verdicts()).summary(false).1.is_ok());
        let (text, outcome) = steps(verdicts()).summary(true);
        assert!(outcome.is_err());
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
    }
}
