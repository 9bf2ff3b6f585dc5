//! One suite for every transport: what UCT promises, as cases that run against whatever is found.
//!
//! For this workspace's tests, and transports outside of it. Built on `uct-host` alone: a case
//! takes its limits from the attributes, and no transport is named anywhere.
//!
//! A transport of one's own is tested with a test target that has `harness = false` and
//!
//! ```no_run
//! # use std::process::ExitCode;
//! fn main() -> ExitCode {
//!     uct_conformance::run(uct_conformance::Config::from_environment())
//! }
//! ```
//!
//! with the directory of `libuct_NAME.so` in `UCT_MODULE_DIR`, and `UCT_TEST_TRANSPORTS=NAME`.
//!
//! | variable | what |
//! |---|---|
//! | `UCT_TEST_TRANSPORTS` | transports to test, `tcp,self` or `^tcp`; all unless set |
//! | `UCT_TEST_DEVICES` | network devices to test on; `lo` unless set, so that nothing leaves the machine |
//! | `UCT_TEST_FAR_DEVICE` | where the transport has this device, its far ends are on it, so that packets cross a cable |
//! | `UCT_TEST_OPEN` | `all`: the worker of a case has all other interfaces of the machine open; `one` unless set |
//! | `UCT_TEST_REQUIRE` | transports or plugins whose absence is a failure |
//! | `UCT_TEST_SEED` | order of the cases and their random choices; printed by every run |
//! | `UCT_TEST_SOAK_SECONDS` | how long the soak takes; 2 unless set |
//! | `UCT_TEST_LOG` | print what is logged, up to this level: `debug` |
//! | `UCT_MODULE_DIR` | where plugins are; beside the test program unless set |

pub mod access;
mod beside;
mod case;
mod cases;
pub mod cms;
mod config;
pub mod elsewhere;
pub mod log;
pub mod message;
pub mod pair;
pub mod random;
pub mod remote;
mod runner;
mod setup;
mod target;
pub mod watchdog;

pub use case::{Case, Needs};
pub use cases::in_child;
pub use config::Config;
pub use runner::run;
pub use setup::Setup;
pub use target::{Linkage, Target};
