//! The command line.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use uct_tools_common::{Failure, complete};

/// A verbs device in software, for unmodified programs.
///
/// The device needs no hardware, privileges or kernel module. It is for tests and development, and not a network for production.
#[derive(Debug, Parser)]
#[command(name = "softverbs", version, arg_required_else_help = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub action: Option<Action>,
    /// Write the manual page into a directory.
    #[arg(long, value_name = "DIR", hide = true)]
    generate_man: Option<PathBuf>,
    /// Write shell completions into a directory.
    #[arg(long, value_name = "DIR", hide = true)]
    generate_completions: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a program that finds the device and no other.
    Run(Run),
}

/// How a program is run.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Name of the device, e.g. mlx5_0; default: SOFTVERBS_NAME, or soft0.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Address of the device, one of this machine; default: SOFTVERBS_ADDRESS, or a loopback address of the process's own.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// What goes wrong, e.g. 'seed=7 loss=1% wc=RETRY_EXC_ERR@37 port-down@2s port-up@3s'; docs/softverbs.md has all words.
    #[arg(long, value_name = "FAULTS")]
    faults: Option<String>,
    /// Start no thread: the device works in calls of the program only.
    #[arg(long)]
    no_thread: bool,
    /// Directory of the libraries; default: lib/uct/softverbs of the installation.
    #[arg(long, value_name = "DIR")]
    pub libraries: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

impl Run {
    /// The variables that tell the device.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = Vec::new();
        variables.extend(self.name.iter().map(|name| ("SOFTVERBS_NAME", name.clone())));
        variables.extend(self.address.iter().map(|address| ("SOFTVERBS_ADDRESS", address.to_string())));
        variables.extend(self.faults.iter().map(|faults| ("SOFTVERBS_FAULTS", faults.clone())));
        if self.no_thread {
            variables.push(("SOFTVERBS_THREAD", "no".to_owned()));
        }
        variables
    }
}

impl Options {
    /// Writes manual page or completions, if asked to.
    pub fn generate(&self) -> Option<Result<(), Failure>> {
        if let Some(directory) = &self.generate_man {
            return Some(clap_mangen::generate_to(Options::command(), directory).map_err(Failure::from));
        }
        self.generate_completions.as_ref().map(|directory| complete::write::<Options>(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn options_of_the_program_are_its_own() {
        let line = ["softverbs", "run", "--name", "mlx5_0", "--no-thread", "ib_send_lat", "--name", "-a"];
        let Some(Action::Run(run)) = Options::try_parse_from(line).expect("a command line").action else {
            panic!("a program")
        };
        assert_eq!(run.program, ["ib_send_lat", "--name", "-a"]);
        let expected = [("SOFTVERBS_NAME", "mlx5_0".to_owned()), ("SOFTVERBS_THREAD", "no".to_owned())];
        assert_eq!(run.variables(), expected);
    }
}
