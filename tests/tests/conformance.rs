//! The suite against every transport that is found: linked statically, and loaded from the plugins beside this program.

use std::process::ExitCode;

// Links the transports of its features in.
use uct_core as _;

fn main() -> ExitCode {
    uct_conformance::run(uct_conformance::Config::from_environment())
}
