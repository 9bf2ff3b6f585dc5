//! What the tests say of the sources as they are in the copy: those of the crate, then the suite and those of tcp.
//! Built on cargo; used by `mutants`.

use super::groups::Group;
use crate::failure::{Context, Failure, Outcome};
use crate::process::{capture, cargo, line};
use crate::workspace::{BUILD_LIMIT, CONFORMANCE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How a mutant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The crate's own tests fail.
    Crate,
    /// They pass, and the suite or a test of tcp fails.
    Suite,
    /// Tests go on for several times as long as without the change.
    Timeout,
    /// It does not compile.
    Unviable,
    /// All tests pass.
    Missed,
}

/// The tests, built apart from those of the workspace.
pub struct Tests {
    tree: PathBuf,
    target: PathBuf,
    /// What each package's tests take without a change, and the suite's.
    baseline: BTreeMap<&'static str, Duration>,
}

enum Ended {
    Passed(Duration),
    Failed(String),
    TooLong,
}

/// A time without a change tells little where it is short, and machines are not always as fast as that.
const LEAST: Duration = Duration::from_secs(120);
const FACTOR: u32 = 4;
/// What a run without a change may take.
const BASELINE_LIMIT: Duration = Duration::from_secs(1800);
/// In the place of a package's name: the suite's static half, and the tests of tcp.
const SUITE: &str = "(suite)";
const TCP: &str = "(tcp)";

impl Verdict {
    /// All of them, as the table has them.
    pub const ALL: [Verdict; 5] =
        [Verdict::Crate, Verdict::Suite, Verdict::Timeout, Verdict::Unviable, Verdict::Missed];

    /// As the table names it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Crate => "crate",
            Verdict::Suite => "suite",
            Verdict::Timeout => "timeout",
            Verdict::Unviable => "unviable",
            Verdict::Missed => "missed",
        }
    }
}

impl Tests {
    pub fn new(tree: &Path, target: &Path) -> Outcome<Self> {
        let tests = Tests { tree: tree.to_owned(), target: target.to_owned(), baseline: BTreeMap::new() };
        let empty = tests.no_plugins();
        fs::create_dir_all(&empty).context(|| format!("cannot make {}", empty.display()))?;
        Ok(tests)
    }

    /// A directory of plugins with none in it: a missing one is warned of, and the suite takes a warning for a failure.
    fn no_plugins(&self) -> PathBuf {
        self.target.join("no-plugins")
    }

    /// The result of the tests on the sources that `changed` has changed; the change lasts until its guard is dropped. In their first
    /// run the tests have to pass without a change, and the duration of that run sets the time limit.
    pub fn verdict<T>(&mut self, group: &Group, changed: impl Fn() -> Outcome<T>) -> Outcome<Verdict> {
        let stages = [(group.package, Verdict::Crate), (SUITE, Verdict::Suite), (TCP, Verdict::Suite)];
        for (what, failed) in &stages[..if group.in_suite { stages.len() } else { 1 }] {
            let limit = (self.baseline_of(what)? * FACTOR).max(LEAST);
            let _changed = changed()?;
            if !self.builds(what)? {
                return Ok(Verdict::Unviable);
            }
            match self.run(what, limit)? {
                Ended::Failed(_) => return Ok(*failed),
                Ended::TooLong => return Ok(Verdict::Timeout),
                Ended::Passed(_) => {}
            }
        }
        Ok(Verdict::Missed)
    }

    fn baseline_of(&mut self, what: &'static str) -> Outcome<Duration> {
        if let Some(known) = self.baseline.get(what) {
            return Ok(*known);
        }
        if !self.builds(what)? {
            return Err(Failure::new(format!("`{}` fails without a change", line(&self.test(what)))));
        }
        let took = match self.run(what, BASELINE_LIMIT)? {
            Ended::Passed(took) => took,
            Ended::Failed(said) => {
                let test = line(&self.test(what));
                return Err(Failure::new(format!("`{test}` fails without a change\n{said}")));
            }
            Ended::TooLong => return Err(Failure::new("the tests do not end without a change".to_owned())),
        };
        self.baseline.insert(what, took);
        Ok(took)
    }

    fn builds(&self, what: &str) -> Outcome<bool> {
        let (status, ..) = capture(self.test(what).arg("--no-run"), BUILD_LIMIT)?;
        Ok(status.success())
    }

    fn run(&self, what: &str, limit: Duration) -> Outcome<Ended> {
        let start = Instant::now();
        // Most of what a case of the suite takes is waiting.
        let threads = if what == SUITE { &["--", "--test-threads=8"][..] } else { &[] };
        match capture(self.test(what).args(threads), limit) {
            Ok((status, ..)) if status.success() => Ok(Ended::Passed(start.elapsed())),
            Ok((_, stdout, stderr)) => Ok(Ended::Failed(stdout + &stderr)),
            Err(failure) if failure.status() == 124 => Ok(Ended::TooLong),
            Err(failure) => Err(failure),
        }
    }

    /// `cargo test` of a package, or of the suite where there is no plugin, or of tcp.
    fn test(&self, what: &str) -> Command {
        let mut test = cargo();
        test.arg("test").current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        match what {
            SUITE => test.args(["--package", CONFORMANCE, "--test", "conformance"]),
            TCP => test.args(["--package", CONFORMANCE, "--test", "tcp_*"]),
            package => test.args(["--package", package, "--lib", "--tests"]),
        };
        if !matches!(what, SUITE | TCP) {
            return test;
        }
        test.env("UCT_MODULE_DIR", self.no_plugins());
        test
    }
}
