//! `cargo xtask try`: the tests of one part of the workspace, soon after an edit of it.
//!
//! Of a transport, its plugin is built, the tests of its crate run, and then the suite over that plugin alone. The suite is a program that links no transport,
//! so it is built again only if it, the host or `ucs` has changed; cargo says so. A transport that needs verbs devices is tried on the
//! device in software. Of another crate, its tests run.
//! Built on cargo and the suite.

use crate::failure::{Failure, Outcome};
use crate::process::{cargo, command, run_side_by_side, run_tests};
use crate::soft;
use crate::workspace::{CONFORMANCE, Workspace};
use cargo_metadata::{Package, TargetKind};
use clap::Args;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(1800);
/// The suite without transports.
const SUITE: &str = "uct_conformance";
/// Two processes share the cases, since a case waits for much of its time.
const PROCESSES: usize = 2;

/// What to try.
#[derive(Args, Debug)]
pub struct Options {
    /// A transport plugin, such as tcp, shm or rc_verbs, or a crate, such as uct-net
    part: String,

    /// Only tests and cases whose names contain this
    case: Option<String>,
}

/// Fails if a test fails.
pub fn run(options: &Options) -> Outcome {
    let workspace = Workspace::load()?;
    let start = Instant::now();
    let case = options.case.as_deref();
    match Part::find(&workspace, &options.part)? {
        Part::Transport { plugin, library } => {
            // Tests of the crate load the plugin, too.
            workspace.build(&["build", "--package", &plugin.name])?;
            tests(&workspace, &library.name, case)?;
            suite(&workspace, plugin_name(plugin), case)?;
        }
        Part::Crate(package) => tests(&workspace, &package.name, case)?,
    }
    eprintln!("\n{} passed in {:.0} s", options.part, start.elapsed().as_secs_f64());
    Ok(())
}

/// What an argument names.
#[derive(Debug)]
enum Part<'a> {
    Transport { plugin: &'a Package, library: &'a Package },
    Crate(&'a Package),
}

impl<'a> Part<'a> {
    /// `tcp`, `uct-tcp` and `uct_tcp` are the same.
    fn find(workspace: &'a Workspace, name: &str) -> Outcome<Self> {
        let plain = |name: &str| name.replace('_', "-");
        let names = [plain(name), format!("uct-{}", plain(name))];
        let is_named = |package: &&Package| names.contains(&plain(&package.name));
        let Some(library) = workspace.members().find(is_named) else {
            let transports = workspace.plugin_packages().map(plugin_name);
            let crates = workspace.members().map(|package| package.name.as_str());
            return Err(Failure::new(format!(
                "expected a transport ({}) or a crate ({}), got `{name}`",
                transports.collect::<Vec<_>>().join(", "),
                crates.filter(|name| !name.ends_with("-plugin")).collect::<Vec<_>>().join(", "),
            )));
        };
        let plugin = format!("{}-plugin", library.name);
        Ok(match workspace.plugin_packages().find(|package| package.name == plugin) {
            Some(plugin) => Part::Transport { plugin, library },
            None => Part::Crate(library),
        })
    }
}

/// `NAME` of `libuct_NAME.so`.
fn plugin_name(package: &Package) -> &str {
    let library = package.targets.iter().find(|target| target.kind.contains(&TargetKind::CDyLib));
    library.and_then(|target| target.name.strip_prefix("uct_")).unwrap_or_default()
}

/// The tests of a crate with all its features.
fn tests(workspace: &Workspace, package: &str, case: Option<&str>) -> Outcome {
    let mut test = cargo();
    test.args(["test", "--package", package, "--all-features", "--no-fail-fast"]);
    test.args(["--lib", "--bins", "--tests"]).args(case);
    run_tests(test.current_dir(workspace.root()), LIMIT)
}

/// The suite over one plugin, which has been built.
fn suite(workspace: &Workspace, name: &str, case: Option<&str>) -> Outcome {
    let built = workspace.build(&["build", "--package", CONFORMANCE, "--bin", SUITE])?;
    let program = built.program(SUITE)?;
    let parts = (1..=PROCESSES).map(|part| {
        let mut suite = command(program);
        suite.env("UCT_MODULE_DIR", workspace.target().join("debug")).env("UCT_MODULES", name);
        suite.env("UCT_TEST_REQUIRE", name).env("UCT_TEST_PART", format!("{part}/{PROCESSES}"));
        soft::offer(&mut suite, name);
        suite.arg("--quiet").args(case);
        suite
    });
    run_side_by_side(PROCESSES, parts.collect(), LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_transport_or_a_crate_by_any_of_its_names() {
        let workspace = Workspace::load().unwrap();
        for name in ["tcp", "uct-tcp", "uct_tcp"] {
            let Ok(Part::Transport { plugin, library }) = Part::find(&workspace, name) else {
                panic!("{name}");
            };
            assert_eq!((plugin_name(plugin), library.name.as_str()), ("tcp", "uct-tcp"));
        }
        for name in ["net", "uct-net", "ucs", "uct_info"] {
            assert!(matches!(Part::find(&workspace, name), Ok(Part::Crate(_))), "{name}");
        }
        let refused = Part::find(&workspace, "posix").unwrap_err().to_string();
        assert!(refused.contains("rc_verbs") && refused.contains("uct-net") && refused.ends_with("`posix`"));
    }
}
