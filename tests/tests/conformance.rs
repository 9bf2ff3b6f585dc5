//! The suite against every transport that is found: linked statically, and loaded from the plugins beside this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    uct_conformance::run(uct_conformance::Config::from_environment())
}
