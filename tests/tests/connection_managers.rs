//! The suite against every connection manager that is found: linked statically, and loaded from the plugins beside this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    uct_conformance::cms::run()
}
