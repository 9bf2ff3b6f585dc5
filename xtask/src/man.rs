//! `cargo xtask man`: manual pages and shell completions of the programs.
//! Built on the programs, which write them from their own definitions of their options.

use crate::failure::{Context, Outcome};
use crate::process::{command, run as run_command};
use crate::workspace::Workspace;
use std::fs;
use std::time::Duration;

const PROGRAMS: &[&str] = &["uct_hello_world", "uct_info", "uct_perftest"];

/// Writes them into target/man and target/completions.
pub fn run() -> Outcome {
    let workspace = Workspace::load()?;
    let mut build = vec!["build"];
    for package in workspace.program_packages() {
        build.extend(["--package", package.name.as_str()]);
    }
    let built = workspace.build(&build)?;
    for (option, directory) in [("--generate-man", "man"), ("--generate-completions", "completions")] {
        let directory = workspace.target().join(directory);
        fs::create_dir_all(&directory).context(|| format!("cannot make {}", directory.display()))?;
        for program in PROGRAMS {
            let mut generate = command(built.program(program)?);
            run_command(generate.arg(option).arg(&directory), Duration::from_secs(300))?;
        }
        eprintln!("wrote {}", directory.display());
    }
    Ok(())
}
