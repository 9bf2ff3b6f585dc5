//! The suite against every transport whose plugin is in `UCT_MODULE_DIR`, or else beside this program. No transport is linked in.

use std::process::ExitCode;

fn main() -> ExitCode {
    uct_conformance::run(uct_conformance::Config::from_environment())
}
