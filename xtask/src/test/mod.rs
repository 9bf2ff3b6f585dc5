//! `cargo xtask test`: everything. It installs what it needs, runs all that can be run on this machine, and says at
//! the end what passed, what failed and what was skipped.
//!
//! All steps build with `--workspace`, whatever part of it they need, and release builds with the same package: cargo builds a crate with
//! the features that the chosen packages ask for together, so each other choice would build many crates once more.
//! Built on all other commands; continuous integration runs it and nothing else.

mod hostile;
mod installed;
mod libfabric;
mod machines;
mod miri;
mod models;
mod outside;
mod wheel;
mod witness;

use crate::apt::{self, Package};
use crate::failure::Outcome;
use crate::process::{build_for_once, cargo, run as run_command, run_side_by_side, run_tests};
use crate::steps::{Steps, Verdict};
use crate::workspace::{CONFORMANCE, EVERYTHING, Workspace, tests_of};
use crate::{check, config, footprint, hello, instructions, soft, vm};
use clap::Args;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};
use std::fs;
use std::num::NonZero;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Duration;

/// For machines that are slow and busy; each test has a limit of its own.
const TEST_LIMIT: Duration = Duration::from_secs(5400);
/// Seconds of a test that goes on for some time, with `--all`.
const LONG_SECONDS: &str = "60";
/// The test program with the suite, and those beside it that take longest.
const SUITE: &str = "conformance";
const LONG: &[&str] = &["planted", "all_to_all", "c_transport", "ends_of_memory"];

/// Nothing is built and tested without these.
const NEEDED: &[Package] = &[
    Package { name: "gcc", brings: "/usr/bin/cc" },
    Package { name: "libc6-dev", brings: "/usr/include/stdio.h" },
    Package { name: "git", brings: "/usr/bin/git" },
    Package { name: "util-linux", brings: "/usr/bin/unshare" },
];
/// A test that needs one of these is skipped where it is missing.
const PACKAGES: &[Package] = &[
    Package { name: "iproute2", brings: "/sbin/ip" },
    Package { name: "ibverbs-utils", brings: "/usr/bin/ibv_devinfo" },
    Package { name: "perftest", brings: "/usr/bin/ib_send_lat" },
    Package { name: "ucx-utils", brings: "/usr/bin/ucx_perftest" },
];

/// The row of the table where this user cannot run them; otherwise they are among the others, and may not skip themselves.
const NEED_ROOT: &str = "tests that need root";

/// The program with the connections of uct-net, and its cases that run over any transport.
const NET: &str = "net_messages";
const NET_CASES: [&str; 17] = [
    "messages::messages_of_every_size",
    "messages::many_messages",
    "messages::a_stream",
    "messages::memory_that_a_side_shares",
    "messages::what_was_sent",
    "dropped::",
    "large::sends",
    "large::connections_that_end",
    "threads::threads_send",
    "threads::futures",
    "threads::a_waker",
    "threads::what_was_sent",
    "threads_memory::memory_that",
    "threads_memory::transfers",
    "transfers::",
    "contracts::",
    "fairness::room",
];
/// The program with programs of others over these connections, and its cases that run over any transport.
const STACKS: &str = "stacks";
const STACKS_CASES: &str = "answers_the_same";

/// What to run.
#[derive(Args, Debug)]
pub struct Options {
    /// Transports that must be found, where their absence would otherwise be a skip
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    require: Vec<String>,

    /// Leave out what needs a virtual machine
    #[arg(long)]
    no_vm: bool,

    /// Every case in every way, and long forms of tests, where each commit has a part (CONTRIBUTING.md lists them)
    #[arg(long)]
    all: bool,

    /// Only the steps whose names contain one of these words
    #[arg(value_name = "STEP")]
    only: Vec<String>,
}

/// Runs the steps and prints their table; the last line is `N passed, N failed, N skipped`.
pub fn run(options: &Options) -> Outcome {
    let missing = install(options)?;
    let workspace = Workspace::load()?;
    if is_fresh(&workspace) {
        build_for_once();
    }
    let require = if options.require.is_empty() { built_in(&workspace) } else { options.require.join(",") };
    let mut steps = Steps::only(&options.only);

    check::read_sources(&workspace, &mut steps);
    steps.run("build", || workspace.build(EVERYTHING).map(drop));
    let only_check = config::Options { check: true };
    steps.run(check::CONFIG, || config::run_with(&workspace, &only_check, EVERYTHING));
    steps.run("tests", || tests(&workspace));
    if !is_root() {
        let reason = "this user is not root, or root without its capabilities, as in a container: tests that give files to other \
                      users, become another, or make namespaces skip themselves";
        steps.run_or_skip(NEED_ROOT, || Ok(Verdict::Impossible(reason.to_owned())));
    }
    steps.run("documentation's examples", || {
        let mut test = cargo();
        run_command(test.args(["test", "--workspace", "--doc"]).current_dir(workspace.root()), TEST_LIMIT)
    });
    steps.run("hostile peers", || hostile::run(&workspace));
    steps.run("conformance", || conformance(&workspace, &require, options.all));
    steps.run_or_skip("Miri", || miri::run_or_skip(&workspace));
    steps.run_or_skip("verbs structures", || witness::run_or_skip(&workspace));
    steps.run("hello", || {
        hello::run_with(&workspace, &hello::Options::default(), EVERYTHING)?;
        hello::Options::over_soft_verbs()
            .try_for_each(|options| hello::run_with(&workspace, &options, EVERYTHING))
    });
    steps.run("installation", || installed::run(&workspace));
    steps.run_or_skip("installation in an empty root", || installed::run_in_empty_root(&workspace));
    steps.run("applications outside of the workspace", || outside::run(&workspace));
    libfabric::run_steps(&workspace, &mut steps, &missing);
    steps.run_or_skip("python wheel", || wheel::run_or_skip(&workspace, &missing));
    // A guest takes one processor of two, and waits for a fifth of its time. What does not depend on time goes on beside it.
    let machines = prepare_machines(&workspace, &mut steps, options, &missing);
    let others = |steps: &mut Steps| {
        check::compile_sources(&workspace, steps, check::Targets::Used);
        steps.run("models", || models::run(&workspace));
        steps.run("footprint", || footprint::run(&workspace));
        steps.run_or_skip("instruction ceilings", || match missing.reason(instructions::PACKAGES) {
            Some(reason) => Ok(Verdict::Impossible(reason)),
            None => instructions::run_as_step(&workspace),
        });
    };
    steps.run_beside(|steps| machines::run(machines, steps), others);
    steps.finish()
}

/// The virtual machines that are chosen and that this machine can run.
fn prepare_machines(
    workspace: &Workspace,
    steps: &mut Steps,
    options: &Options,
    missing: &apt::Missing,
) -> Vec<machines::Ready> {
    let verdict = if !cfg!(target_arch = "x86_64") {
        Verdict::Impossible("the virtual machine is an x86-64 one".to_owned())
    } else if options.no_vm {
        Verdict::LeftOut("--no-vm".to_owned())
    } else if let Some(reason) = missing.reason(vm::PACKAGES) {
        Verdict::Impossible(reason)
    } else {
        return machines::prepare(workspace, steps, &machines::Asked::of(options.all));
    };
    steps.run_or_skip("virtual machine", || Ok(verdict));
    Vec::new()
}

/// Whether nothing but this program was built here: a clone for tests, which nobody is going to edit.
fn is_fresh(workspace: &Workspace) -> bool {
    let built = fs::read_dir(workspace.target().join("debug/incremental"));
    let ours = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("xtask");
    built.map_or(true, |entries| entries.flatten().all(ours))
}

/// Installs at the start what any step needs, all of it at once. Without a compiler nothing goes on; what else this
/// machine neither has nor lets this user install is the reason why a step is skipped.
fn install(options: &Options) -> Outcome<apt::Missing> {
    let machine = if options.no_vm || !cfg!(target_arch = "x86_64") { &[] } else { vm::PACKAGES };
    match apt::require(
        &[NEEDED, PACKAGES, libfabric::PACKAGES, wheel::PACKAGES, instructions::PACKAGES, machine].concat(),
    ) {
        Ok(()) => Ok(apt::Missing::default()),
        Err(failure) => {
            eprintln!("xtask: {failure}");
            apt::require(NEEDED)?;
            Ok(apt::Missing::because(&failure))
        }
    }
}

/// Runs the tests by cargo-nextest where it is installed, since it gives each a watchdog from outside. The suite and
/// what else is in its package's tests/ come later, by [`conformance`]; hostile peers have a step of their own.
fn tests(workspace: &Workspace) -> Outcome {
    let nextest = cargo().args(["nextest", "--version"]).output().is_ok_and(|output| output.status.success());
    let mut test = cargo();
    if nextest {
        // Three for two processors, since some of a test's time is waiting.
        let threads = available_parallelism().map_or(2, NonZero::get) * 3 / 2;
        test.args(["nextest", "run", "--test-threads", &threads.to_string()]);
        let hostile = workspace.tests().filter(|(_, name)| hostile::is_hostile(name));
        let apart: String =
            hostile.map(|(package, name)| format!(" | binary_id({}::{name})", package.name)).collect();
        test.args(["-E", &format!("not ((package({CONFORMANCE}) & kind(test)){apart})")]);
    } else {
        test.args(["test", "--no-fail-fast", "--lib", "--bins"]);
        let others = workspace.tests().filter(|(package, _)| package.name != CONFORMANCE);
        let names = others.map(|(_, name)| name).filter(|name| !hostile::is_hostile(name));
        test.args(names.flat_map(|name| ["--test", name]));
    }
    require_root(&mut test);
    run_tests(test.arg("--workspace").current_dir(workspace.root()), TEST_LIMIT)
}

/// Whether this is root with the capabilities that tests need: to give files away, to become another user, to make namespaces.
fn is_root() -> bool {
    let needed = CapabilitySet::CHOWN | CapabilitySet::SETUID | CapabilitySet::SYS_ADMIN;
    geteuid().is_root() && capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Has a test program fail, where it runs as root, rather than skip what needs root.
fn require_root(test: &mut Command) {
    if is_root() {
        let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
        test.env("UCT_TEST_REQUIRE", format!("{required},root"));
    }
}

/// Runs the suite on every transport, linked statically and as a plugin, and what else is in its package's tests/. The suite has its own
/// runner, which gives each case a watchdog and lists what it skipped and why. Much of the time is waiting, most of all where a mistake is planted
/// that makes the suite wait; so four programs run at a time, and those that take longest begin.
fn conformance(workspace: &Workspace, require: &str, all: bool) -> Outcome {
    let package = workspace.package(CONFORMANCE)?;
    let is_here = |name: &&str| !hostile::is_hostile(name);
    let built = workspace.build_tests(tests_of(package).filter(is_here))?;
    let test = |name: &str| {
        let mut test = built.test(package, name)?.command();
        test.env("UCT_MODULE_DIR", workspace.target().join("debug"));
        if all {
            test.env("UCT_TEST_SOAK_SECONDS", LONG_SECONDS).env("UCT_TEST_SECONDS", LONG_SECONDS);
        }
        Ok(test)
    };
    let part = |part: &str| {
        let mut suite = test(SUITE)?;
        suite.env("UCT_TEST_PART", part).env("UCT_TEST_REQUIRE", require);
        Ok(suite)
    };
    // Which interfaces are polled is the host's decision, so that some, linked in, stand for all; of the others, and of plugins, a part is run.
    let all_open = |transports: &str, linkage: &str, part: &str| {
        let mut suite = test(SUITE)?;
        suite.env("UCT_TEST_OPEN", "all").env("UCT_TEST_TRANSPORTS", transports).env("UCT_TEST_PART", part);
        suite.arg(linkage);
        Ok(suite)
    };
    let [some, few] = if all { ["1/1"; 2] } else { ["1/4", "1/16"] };
    // Between processes, and within one; what only the kernel's device shows is run in the virtual machine.
    let verbs = |transport: &str| {
        let mut suite = test(SUITE)?;
        soft::offer(&mut suite, transport).arg("[plugin]");
        Ok(suite)
    };
    // The connections of uct-net over them, and programs of others over those.
    let connections = workspace.build_tests([NET, STACKS].into_iter())?;
    let connections = |package: &str, name: &str, transport: &str| {
        let mut test = connections.test(workspace.package(package)?, name)?.command();
        soft::offer(&mut test, transport).env("UCT_MODULE_DIR", workspace.target().join("debug"));
        test.env("UCT_TEST_TRANSPORTS", transport).env("UCT_TEST_FEWER", "20");
        Ok(test)
    };
    let net = |transport: &str| {
        let mut test = connections("uct-net", NET, transport)?;
        test.args(NET_CASES);
        Ok(test)
    };
    let stacks = |transport: &str| {
        let mut test = connections("uct-stacks", STACKS, transport)?;
        test.arg(STACKS_CASES);
        Ok(test)
    };
    let suites = [
        verbs("ud_verbs"),
        verbs("rc_verbs"),
        net("ud_verbs"),
        net("rc_verbs"),
        stacks("ud_verbs"),
        stacks("rc_verbs"),
        part("1/2"),
        part("2/2"),
        all_open("self,posix,tcp", "[static]", "1/1"),
        all_open("sysv,cma", "[static]", some),
        all_open("self,posix,sysv,cma,tcp", "[plugin]", few),
    ];
    let short = tests_of(package).filter(is_here).filter(|name| *name != SUITE && !LONG.contains(name));
    let others = LONG.iter().copied().chain(short).map(test);
    let commands = suites.into_iter().chain(others).collect::<Outcome<_>>()?;
    run_side_by_side(4, commands, TEST_LIMIT)
}

/// The transports that any machine with Linux has, as the plugins' names say it. The others need devices.
fn built_in(workspace: &Workspace) -> String {
    let libraries = workspace.plugin_packages().flat_map(|package| &package.targets);
    let names = libraries.filter_map(|target| target.name.strip_prefix("uct_"));
    names.filter(|name| !name.ends_with("_verbs") && *name != "rdmacm").collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::output;
    use cargo_metadata::Target;
    use std::path::Path;
    use std::process::Command;

    /// The sources of a library or program: a file, or a folder with its root.
    fn sources(target: &Target) -> &Path {
        let root = target.src_path.as_std_path();
        let is_of_folder = root.file_name().is_some_and(|name| name == "lib.rs" || name == "main.rs");
        if is_of_folder { root.parent().unwrap() } else { root }
    }

    #[test]
    fn what_is_not_built_with_tests_has_none() {
        let workspace = Workspace::load().unwrap();
        let targets = workspace.members().flat_map(|package| &package.targets);
        let without = targets
            .filter(|target| !target.test && (target.is_lib() || target.is_cdylib() || target.is_bin()));
        let mut count = 0;
        for target in without {
            let mut search = Command::new("grep");
            search.args(["-rlE", r"^\s*(#\[test\]|proptest!)"]).arg(sources(target)).arg("/dev/null");
            let found = output(&mut search, Duration::from_secs(60));
            assert!(found.is_err(), "{} has `test = false`, and tests: {}", target.name, found.unwrap());
            count += 1;
        }
        assert!(count > 20, "{count}");
    }
}
