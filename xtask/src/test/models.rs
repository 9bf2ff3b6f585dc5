//! The loom models: every interleaving of what crosses threads, up to a bound.
//! Built on tests that are compiled only with `--cfg loom`, with `model` in their path; used by `test`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, output, run as run_command};
use crate::workspace::{Built, Workspace};
use cargo_metadata::Package;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What marks a module of models.
const MARK: &str = "#[cfg(all(test, loom))]";
/// Which tests of a crate are models.
const FILTER: &str = "model";
/// Adds the flag to what cargo asks of the compiler.
const COMPILER: &str = "xtask/scripts/rustc-for-models";
const LIMIT: Duration = Duration::from_secs(1800);

/// Builds the crates that have models, all at once, because they share dependencies; then runs each one's models.
pub fn run(workspace: &Workspace) -> Outcome {
    let packages: Vec<&Package> = packages(workspace).collect();
    let built = workspace.run_build(&mut build(workspace))?;
    packages.iter().try_for_each(|package| models(package, &built))
}

/// The build of all models.
fn build(workspace: &Workspace) -> Command {
    let mut build = cargo();
    // The flag is for the crates of the workspace alone, so that the others are those that are built already. What takes time in a model
    // is loom, which the workspace's manifest optimises; the rest is sooner built than it would be optimised.
    build.env("RUSTC_WORKSPACE_WRAPPER", workspace.root().join(COMPILER));
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").args(["test", "--no-run", "--lib"]);
    build.args(packages(workspace).flat_map(|package| ["--package", package.name.as_str()]));
    build.current_dir(workspace.root());
    build
}

fn packages(workspace: &Workspace) -> impl Iterator<Item = &Package> {
    workspace.members().filter(|package| has_models(package))
}

fn models(package: &Package, built: &Built) -> Outcome {
    let program = built.test(package, &package.name.replace('-', "_"))?;
    let in_package = || {
        let mut models = program.command();
        models.arg(FILTER);
        models
    };
    let list = output(in_package().arg("--list"), LIMIT)?;
    let count = list.lines().filter(|line| line.ends_with(": test")).count();
    if count == 0 {
        return Err(Failure::new(format!(
            "no test of {} has `{FILTER}` in its path, though its sources have {MARK}",
            package.name
        )));
    }
    run_command(&mut in_package(), LIMIT)
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
