//! The loom models: every interleaving of what crosses threads, up to a bound.
//! Stands on tests that are compiled only with `--cfg loom`, with `model` in their path; `test` stands on it.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, output, run as run_command};
use crate::steps::Steps;
use crate::workspace::{BUILD_LIMIT, Workspace};
use cargo_metadata::Package;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What marks a module of models.
const MARK: &str = "#[cfg(all(test, loom))]";

/// A step for each crate that has models.
pub fn run(workspace: &Workspace, steps: &mut Steps) {
    for package in workspace.members().filter(|package| has_models(package)) {
        steps.run(&format!("models of {}", package.name), || models(workspace, &package.name));
    }
}

fn models(workspace: &Workspace, package: &str) -> Outcome {
    let list = output(cargo_test(workspace, package).arg("--list"), BUILD_LIMIT)?;
    let count = list.lines().filter(|line| line.ends_with(": test")).count();
    if count == 0 {
        return Err(Failure::new(format!(
            "no test of {package} has `model` in its path, though its sources have {MARK}"
        )));
    }
    run_command(&mut cargo_test(workspace, package), BUILD_LIMIT)
}

fn cargo_test(workspace: &Workspace, package: &str) -> Command {
    let mut test = cargo();
    // A directory of its own, so that nothing else is built again because of the flag. Models are many runs of
    // little code: optimised, they are several times faster.
    test.env("RUSTFLAGS", "--cfg loom").env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    test.arg("test").arg("--target-dir").arg(workspace.target().join("loom"));
    test.args(["--package", package, "--lib", "--", "model"]).current_dir(workspace.root());
    test
}

fn has_models(package: &Package) -> bool {
    let sources = package.manifest_path.as_std_path().with_file_name("src");
    marked(&sources).unwrap_or(false)
}

fn marked(directory: &Path) -> Outcome<bool> {
    let entries = fs::read_dir(directory).context(|| format!("cannot read {}", directory.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let found = if path.is_dir() {
            marked(&path)?
        } else {
            fs::read_to_string(&path).is_ok_and(|text| text.lines().any(|line| line.starts_with(MARK)))
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}
