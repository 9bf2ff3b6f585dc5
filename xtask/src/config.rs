//! `cargo xtask config`: config/uct.toml, written from the one schema in code.
//! Built on uct_info, which knows the schema; `check` compares the committed file.

use crate::failure::{Failure, Outcome};
use crate::generated::{compare, write};
use crate::process::{command, output};
use crate::workspace::Workspace;
use clap::Args;
use std::time::Duration;

/// What to do with the file.
#[derive(Args, Debug)]
pub struct Options {
    /// Write nothing: fail if the committed file is not what would be written
    #[arg(long)]
    pub check: bool,
}

/// Writes or checks the file.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    // Each plugin has its own keys.
    run_with(workspace, options, &["build", "--workspace", "--lib", "--bin", "uct_info"])
}

/// The same with the program and the plugins that a cargo of these arguments builds.
pub fn run_with(workspace: &Workspace, options: &Options, build: &[&str]) -> Outcome {
    let built = workspace.build(build)?;
    let mut info = command(built.program("uct_info")?);
    // What this machine has configured is not what the schema says.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UCT_")) {
        info.env_remove(name);
    }
    // Nor are other plugins that may lie beside the program.
    let plugins = built.plugins.iter().filter_map(|path| path.file_stem()?.to_str()?.strip_prefix("libuct_"));
    info.env("UCT_MODULES", plugins.collect::<Vec<_>>().join(","));
    let wanted = output(info.arg("--config-template"), Duration::from_secs(300))?;
    if wanted.trim().is_empty() {
        return Err(Failure::new("`uct_info --config-template` printed nothing"));
    }
    let path = workspace.root().join("config/uct.toml");
    if options.check { compare(&path, &wanted, "cargo xtask config") } else { write(&path, &wanted) }
}
