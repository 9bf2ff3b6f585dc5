//! `cargo xtask check`: all that can be said about the sources without running what they make.
//! Built on cargo's own checks and the files beside this one; `test` runs the same steps.

mod dependencies;
mod files;
mod history;
mod licences;
mod packages;
mod pages;

use crate::failure::Outcome;
use crate::process::{cargo, command, output, run as run_command};
use crate::steps::Steps;
use crate::workspace::{BUILD_LIMIT, Workspace};
use crate::{apart, config};
use clap::Args;
use std::path::Path;
use std::process::Command;

/// The step that compares config/uct.toml. `test` has built the program for it.
pub const CONFIG: &str = "config/uct.toml";

/// Features that compile code of their own; all other steps build them together.
const NET_FEATURES: [&str; 6] = ["async-io", "axum", "futures-io", "hyper", "tls", "tokio"];

/// What to check.
#[derive(Args, Debug)]
pub struct Options {
    /// Only the steps whose names contain one of these words
    #[arg(value_name = "STEP")]
    only: Vec<String>,
}

/// Runs the steps and prints their table.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let mut steps = Steps::only(&options.only);
    read_sources(workspace, &mut steps);
    compile_sources(workspace, &mut steps, Targets::All);
    // What only tests use is compiled with the feature `testing`, which the whole workspace has.
    let release = ["clippy", "--", "--deny", "warnings"];
    steps.run("clippy without the feature `testing`", || cargo_step(workspace, &release));
    let bare = ["check", "--package", "uct-core", "--no-default-features"];
    steps.run("core without transports", || cargo_step(workspace, &bare));
    for feature in NET_FEATURES {
        let alone = ["check", "--package", "uct-net", "--features", feature];
        steps.run(&format!("uct-net with {feature} alone"), || cargo_step(workspace, &alone));
    }
    steps.run(CONFIG, || config::run(workspace, &config::Options { check: true }));
    // `test` has it among the other tests.
    steps.run("layout of the plugin boundary", || cargo_step(workspace, &["test", "--package", "uct-abi"]));
    steps.finish()
}

/// What clippy reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Targets {
    /// Tests and examples, too.
    All,
    /// Libraries and programs: a clone for tests builds nothing else twice.
    Used,
}

/// The steps that `check` and `test` share, and that take seconds.
pub fn read_sources(workspace: &Workspace, steps: &mut Steps) {
    steps.run("format", || cargo_step(workspace, &["fmt", "--all", "--check"]));
    steps.run("lock file", || {
        let mut metadata = cargo();
        metadata.args(["metadata", "--locked", "--format-version", "1"]).current_dir(workspace.root());
        output(&mut metadata, BUILD_LIMIT).map(drop)
    });
    steps.run("files", || files::check(workspace));
    steps.run("dependency direction", || dependencies::check(workspace));
    steps.run("pages", || pages::check(workspace));
    steps.run_or_skip("history", || history::check(workspace.root()));
    steps.run_or_skip("licences", || licences::check(workspace));
    steps.run("packages", || packages::check(workspace));
}

/// The others that they share.
pub fn compile_sources(workspace: &Workspace, steps: &mut Steps, targets: Targets) {
    steps.run("imports", || apart::run_program(apart::SOURCES, &["imports"]));
    steps.run("C header", || apart::run_program(apart::SOURCES, &["header", "--check"]));
    let all = (targets == Targets::All).then_some("--all-targets");
    let clippy = ["clippy", "--workspace"].into_iter().chain(all).chain(["--", "--deny", "warnings"]);
    steps.run("clippy", || cargo_step(workspace, &clippy.collect::<Vec<_>>()));
    steps.run("documentation", || {
        let mut doc = cargo();
        doc.env("RUSTDOCFLAGS", "-D warnings").current_dir(workspace.root());
        reuse_clippys_metadata(&mut doc)?;
        doc.args(["doc", "--workspace", "--no-deps", "--lib"]);
        // They have the names of the libraries that they are made of.
        doc.args(workspace.plugin_packages().flat_map(|plugin| ["--exclude", plugin.name.as_str()]));
        run_command(&mut doc, BUILD_LIMIT)
    });
}

/// Has cargo take what `cargo clippy --deny warnings` has made of the workspace's libraries, with the variables that this sets. Should they change,
/// the libraries are compiled once more, and nothing else differs.
fn reuse_clippys_metadata(doc: &mut Command) -> Outcome {
    let sysroot = output(command("rustc").args(["--print", "sysroot"]), BUILD_LIMIT)?;
    let clippy = Path::new(sysroot.trim()).join("bin/clippy-driver");
    if clippy.exists() {
        doc.env("RUSTC_WORKSPACE_WRAPPER", clippy);
        doc.env("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    Ok(())
}

fn cargo_step(workspace: &Workspace, arguments: &[&str]) -> Outcome {
    run_command(cargo().args(arguments).current_dir(workspace.root()), BUILD_LIMIT)
}
