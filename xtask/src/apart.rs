//! Commands that are programs of their own: what they are built on takes long to compile, and the others start without it.
//! Built on `cargo run`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::capture;
use crate::workspace::{BUILD_LIMIT, cargo_run};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;

/// The programs' packages.
pub const COMPARE: &str = "xtask-compare";
pub const SOURCES: &str = "xtask-sources";

/// What the program reads by itself.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Options {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Becomes the program, with a command of it in front of the arguments. Returns only if that fails.
pub fn become_program(package: &str, command: Option<&str>, options: &Options) -> Outcome<u8> {
    let error = cargo_run(package).args(command).args(&options.arguments).exec();
    Err(error).context(|| format!("cannot start {package}"))
}

/// Runs the program to its end, as a step. A failure is what it says on standard error.
pub fn run_program(package: &str, arguments: &[&str]) -> Outcome {
    let (status, _, stderr) = capture(cargo_run(package).args(arguments), BUILD_LIMIT)?;
    if status.success() { Ok(()) } else { Err(Failure::new(stderr.trim().trim_start_matches("xtask: "))) }
}
