//! The commands of this workspace, as `cargo xtask COMMAND`.
//! Built on cargo, and on Debian packages that a command installs or names when it needs them.
#![forbid(unsafe_code)]

mod apart;
mod check;
mod config;
mod dist;
mod footprint;
mod hello;
mod install;
mod instructions;
mod man;
mod part;
#[cfg(test)]
#[path = "../../ucs/testing/skip.rs"]
mod skip;
mod soft;
mod steps;
mod test;
mod vm;

use clap::{Parser, Subcommand};
use failure::Outcome;
use std::process::ExitCode;
use workspace::Workspace;
use xtask_common::{apt, failure, generated, net, process, processor, workspace};

/// The commands of this workspace
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Two processes say hello over the transport with the lowest latency
    Hello(hello::Options),
    /// Run everything that can be run on this machine
    Test(test::Options),
    /// Run the tests of one transport or crate, soon after an edit of it
    Try(part::Options),
    /// Check format, lints, documentation, dependencies, licences and generated files
    Check(check::Options),
    /// Run floor, UCX and ours in turn, and show medians and ratios
    Compare(apart::Options),
    /// Count the instructions of each operation and compare them with their ceilings
    Instructions(instructions::Options),
    /// Measure the memory of a small program and compare it with its ceiling
    Footprint,
    /// Write config/uct.toml from the schema
    Config(config::Options),
    /// Install programs, plugins, the C header, manual pages and completions below a prefix
    Install(install::Options),
    /// Make a tarball and a Debian package of what `install` installs
    Dist,
    /// Write manual pages and shell completions of the programs
    Man,
    /// Write the C header of the plugin boundary
    Header(apart::Options),
    /// Run one command in a small virtual machine that has real verbs devices without hardware
    Vm(vm::Options),
}

fn main() -> ExitCode {
    failure::exit(dispatch(Arguments::parse().command))
}

fn dispatch(command: Command) -> Outcome<u8> {
    match command {
        Command::Compare(options) => apart::become_program(apart::COMPARE, None, &options),
        Command::Instructions(options) => instructions::run(&Workspace::load()?, &options).map(|()| 0),
        Command::Footprint => footprint::run(&Workspace::load()?).map(|()| 0),
        Command::Test(options) => test::run(&options).map(|()| 0),
        Command::Try(options) => part::run(&options).map(|()| 0),
        Command::Check(options) => check::run(&Workspace::load()?, &options).map(|()| 0),
        Command::Config(options) => config::run(&Workspace::load()?, &options).map(|()| 0),
        Command::Install(options) => install::run(&Workspace::load()?, &options).map(|()| 0),
        Command::Dist => dist::run(&Workspace::load()?).map(|()| 0),
        Command::Man => man::run().map(|()| 0),
        Command::Hello(options) => hello::run(&Workspace::load()?, &options).map(|()| 0),
        Command::Header(options) => apart::become_program(apart::SOURCES, Some("header"), &options),
        Command::Vm(options) => vm::run(&options),
    }
}
