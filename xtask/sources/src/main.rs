//! What is read from the sources: the C header of the plugin boundary, and which files import which.
//! Built on cbindgen and syn; `cargo xtask header` and `cargo xtask check` start it.
#![forbid(unsafe_code)]

mod header;
mod imports;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask_common::workspace::Workspace;
use xtask_common::{failure, generated, process, workspace};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the C header of the plugin boundary
    Header(header::Options),
    /// Check that the files of a crate import each other in one direction
    Imports,
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let outcome = Workspace::load().and_then(|workspace| match command {
        Command::Header(options) => header::run_header(&workspace, &options),
        Command::Imports => imports::check(&workspace),
    });
    failure::exit(outcome.map(|()| 0))
}
