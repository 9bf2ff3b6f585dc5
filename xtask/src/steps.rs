//! Steps that all run, whatever the others did, and the table of how they ended.
//! Built on the processor time of children; used by `check` and `test`.

use crate::failure::{Failure, Outcome};
use crate::processor::processor_time;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
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
    output: Output,
}

/// Where text of steps goes: to standard output, or here while others are shown.
#[derive(Clone, Default)]
pub struct Output(Arc<Mutex<Option<Vec<u8>>>>);

impl Output {
    fn keeping() -> Self {
        Output(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    /// Shows in `other` what was kept, and what comes from now on at once.
    fn show(&self, other: &mut Output) {
        let mut kept = self.kept();
        if let Some(text) = kept.take() {
            // What cannot be shown is no failure of a step.
            let _ = other.write_all(&text);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Output {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &mut *self.kept() {
            Some(kept) => kept.write(text),
            None => io::stdout().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.kept().is_some() { Ok(()) } else { io::stdout().flush() }
    }
}

impl Steps {
    /// Only the steps whose names contain one of `words` will run; all of them if there are none.
    pub fn only(words: &[String]) -> Self {
        Steps { only: words.to_vec(), ..Steps::default() }
    }

    /// Runs a step.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        self.run_or_skip(name, || step().map(|()| Verdict::Passed));
    }

    /// Runs a step that may find that it cannot be run.
    pub fn run_or_skip(&mut self, name: &str, step: impl FnOnce() -> Outcome<Verdict>) {
        if self.is_chosen(name) {
            self.run_needed(name, step);
        }
    }

    /// As [`Steps::run_or_skip`], of a step that others need, which are chosen.
    pub fn run_needed(&mut self, name: &str, step: impl FnOnce() -> Outcome<Verdict>) {
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

    /// Where steps write that are added when they have ended.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Adds steps that ran together: how each one ended and how long it took. Their processor time is shared out in the same proportion.
    pub fn add(&mut self, names: Vec<String>, ended: Vec<(Verdict, Duration)>, processor: Duration) {
        let total = ended.iter().map(|(_, time)| time.as_secs_f64()).sum::<f64>().max(f64::MIN_POSITIVE);
        for (name, (verdict, time)) in names.into_iter().zip(ended) {
            if let Verdict::Failed(reason) = &verdict {
                let _ = writeln!(self.output, "== {name} FAILED: {reason}");
            }
            let processor = processor.mul_f64(time.as_secs_f64() / total);
            self.rows.push(Row { name, verdict, time, processor });
        }
    }

    /// Runs steps in a thread beside those in the foreground. Their output is shown when the latter have ended, and their rows follow. What they
    /// start is waited for by [`wait_apart`](crate::processor::wait_apart), so that the processor time of the others is without theirs.
    pub fn run_beside(
        &mut self,
        beside: impl FnOnce(&mut Steps) + Send,
        foreground: impl FnOnce(&mut Steps),
    ) {
        let output = Output::keeping();
        let mut apart = Steps { only: self.only.clone(), rows: Vec::new(), output: output.clone() };
        thread::scope(|scope| {
            scope.spawn(|| beside(&mut apart));
            foreground(self);
            output.show(&mut self.output);
        });
        self.rows.append(&mut apart.rows);
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
    use std::sync::mpsc::channel;

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

    fn keeping() -> Steps {
        Steps { output: Output::keeping(), ..Steps::only(&["step".to_owned()]) }
    }

    fn shown(steps: &Steps) -> String {
        String::from_utf8(steps.output.kept().clone().unwrap()).unwrap()
    }

    #[test]
    fn steps_that_ran_together_have_a_row_each() {
        let mut steps = keeping();
        let ended =
            vec![(Verdict::Passed, Duration::from_secs(3)), (Verdict::Failed("no".into()), Duration::ZERO)];
        steps.add(vec!["first".into(), "second".into()], ended, Duration::from_secs(7));
        assert_eq!(shown(&steps), "== second FAILED: no\n");
        let (text, _) = steps.summary(false);
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 0 skipped"));
        for cell in ["first", "second", "3.0", "7.0"] {
            assert!(text.contains(cell), "{text}");
        }
    }

    #[test]
    fn steps_beside_others_are_shown_and_counted_after_them() {
        let mut steps = keeping();
        let (to_beside, from_foreground) = channel();
        let (to_foreground, from_beside) = channel();
        let minute = Duration::from_secs(60);
        let beside = move |steps: &mut Steps| {
            assert!(steps.is_chosen("step beside") && !steps.is_chosen("other"));
            from_foreground.recv_timeout(minute).unwrap();
            writeln!(steps.output(), "beside").unwrap();
            let ended = vec![(Verdict::Failed("no".into()), Duration::ZERO)];
            steps.add(vec!["step beside".into()], ended, Duration::ZERO);
            to_foreground.send(()).unwrap();
        };
        steps.run_beside(beside, |steps| {
            steps.run("step in front", || {
                to_beside.send(()).unwrap();
                from_beside.recv_timeout(minute).unwrap();
                Ok(())
            });
            writeln!(steps.output(), "in front").unwrap();
        });
        assert_eq!(shown(&steps), "in front\nbeside\n== step beside FAILED: no\n");
        let (text, outcome) = steps.summary(false);
        assert!(text.find("step in front").unwrap() < text.find("step beside").unwrap());
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 0 skipped"));
        assert!(outcome.is_err());
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
