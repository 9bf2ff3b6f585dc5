//! `softverbs`: runs a program of others on a verbs device in software.
//!
//! The program is replaced by the other one, whose loader finds the drop-in library by the environment. docs/softverbs.md says what
//! runs.

#![forbid(unsafe_code)]

mod libraries;
mod options;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Parser;
use uct_tools_common::{Failure, complete, report};

use libraries::Libraries;
use options::{Action, Options, Run};

fn main() -> ExitCode {
    complete::reply::<Options>();
    let options = Options::parse();
    if let Some(result) = options.generate() {
        return report("softverbs", result);
    }
    match options.action {
        Some(Action::Run(options)) => report("softverbs", run(&options)),
        None => report("softverbs", Err("expected a command: softverbs run -- PROGRAM".into())),
    }
}

/// Becomes the program. Returns if that fails.
fn run(options: &Run) -> Result<(), Failure> {
    let libraries = Libraries::find(options.libraries.as_deref())?;
    let Some((program, arguments)) = options.program.split_first() else {
        return Err("expected a program: softverbs run -- PROGRAM".into());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    libraries.set(&mut command, |name| std::env::var_os(name));
    for (name, value) in options.variables() {
        command.env(name, value);
    }
    Err(format!("cannot run {}: {}", program.to_string_lossy(), command.exec()).into())
}
