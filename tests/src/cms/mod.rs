//! One suite for every connection manager: what UCT promises of them, as cases.
//!
//! Built on `uct_host::cm` alone, as an application does. A program with `harness = false` and [`run`] as its `main` runs it:
//!
//! | variable | what |
//! |---|---|
//! | `UCT_TEST_CMS` | connection managers to test, which have to work; all that do unless set |
//! | `UCT_TEST_CM_ADDRESSES` | addresses of this machine to listen on and to connect to; `127.0.0.1,::1` unless set |
//! | `UCT_TEST_CM_SOURCE` | the address to connect from, of another device than those to connect to; the system chooses one unless set |
//! | `UCT_TEST_CM_STORM` | connections of the storm; 500 unless set |
//!
//! and those of the suite for transports.

mod apart;
mod ending;
mod limits;
mod opening;
mod rejecting;
mod scene;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use uct_host::cm::ConnectOptions;
use uct_host::loader::{Plugin, PluginOrigin};
use uct_host::{Context, Worker};

use crate::config::Config;
use crate::target::{Linkage, Target};
use crate::watchdog::Watchdog;
use crate::{log, runner};

/// A case: what holds, as a sentence, and the function that finds out.
type Case = (&'static str, fn(&CmSetup));

/// What a case is run with.
#[derive(Clone)]
pub struct CmSetup {
    config: Config,
    linkage: Linkage,
    /// The connection manager's component.
    pub component: String,
    /// An address of this machine.
    pub address: IpAddr,
    /// The address of another device of this machine, if there is one to connect from.
    pub source: Option<SocketAddr>,
}

impl CmSetup {
    /// A context with settings of the caller's, as `("connect_timeout", "1s")`: keys of the component's section.
    pub fn context(&self, settings: &[(&str, &str)]) -> Context {
        let named = |(key, value): &(&str, &str)| (format!("{}.{key}", self.component), (*value).to_owned());
        let settings: Vec<_> = settings.iter().map(named).collect();
        Target::context(self.linkage, &self.config, &settings).expect("the settings are right")
    }

    /// The address with port 0.
    pub fn any_port(&self) -> SocketAddr {
        SocketAddr::new(self.address, 0)
    }

    /// The options of a connection.
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions { source: self.source, ..ConnectOptions::default() }
    }
}

fn cases() -> impl Iterator<Item = &'static Case> {
    [opening::CASES, rejecting::CASES, ending::CASES, limits::CASES, apart::CASES].into_iter().flatten()
}

/// Runs the suite as the environment and the command line ask; the exit code of the program.
pub fn run() -> ExitCode {
    runner::prepare();
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let config = match Config::from_environment() {
        Ok(config) => config,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    if let Err(reason) = runner::raise_descriptor_limit() {
        println!("skipped all: {reason}");
        return ExitCode::SUCCESS;
    }
    let source = std::env::var("UCT_TEST_CM_SOURCE")
        .ok()
        .map(|word| SocketAddr::new(word.parse().expect("UCT_TEST_CM_SOURCE is an address"), 0));
    let mut trials = Vec::new();
    for linkage in [Linkage::Static, Linkage::Plugin] {
        for (component, address) in targets(&config, linkage) {
            let setup = CmSetup { config: config.clone(), linkage, component, address, source };
            trials.extend(cases().map(|case| trial(case, &setup)));
        }
    }
    log::take();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The connection managers that are there, each with every address.
fn targets(config: &Config, linkage: Linkage) -> Vec<(String, IpAddr)> {
    let context = Target::context(linkage, config, &[]).expect("the configuration is right");
    let wanted = std::env::var("UCT_TEST_CMS").unwrap_or_default();
    let addresses = std::env::var("UCT_TEST_CM_ADDRESSES").unwrap_or_else(|_| "127.0.0.1,::1".to_owned());
    let addresses: Vec<IpAddr> = addresses
        .split(',')
        .map(|word| word.parse().expect("UCT_TEST_CM_ADDRESSES holds addresses"))
        .filter(|address| {
            let is_there = UdpSocket::bind((*address, 0)).is_ok();
            if !is_there {
                println!("not tested: {address}: it is not an address of this machine");
            }
            is_there
        })
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.split(',').any(|it| it == name);
    let is_of_linkage = |name: &str| {
        let has = |plugin: &&Plugin| plugin.components.iter().any(|component| component.name == name);
        let origin = context.plugins().iter().find(has).map(|plugin| &plugin.origin);
        (origin == Some(&PluginOrigin::BuiltIn)) == (linkage == Linkage::Static)
    };
    let names =
        context.connection_managers().into_iter().filter(|name| is_wanted(name) && is_of_linkage(name));
    let all = names.flat_map(|name| addresses.iter().map(move |address| (name.to_owned(), *address)));
    // One that is asked for by name has to work, and that of tcp on any machine; the others need devices.
    let is_required = |name: &str| !wanted.is_empty() || name == "tcp";
    all.filter(|(name, address)| match usable(&context, name, *address) {
        Err(reason) if !is_required(name) => {
            println!("not tested: {name}/{address}: {reason}");
            false
        }
        _ => true,
    })
    .collect()
}

/// Whether a connection manager listens at an address here, or why not.
fn usable(context: &Context, name: &str, address: IpAddr) -> Result<(), String> {
    let worker = Worker::new(context).map_err(|error| error.to_string())?;
    let cm = worker.open_cm(name).map_err(|error| error.to_string())?;
    cm.listen(SocketAddr::new(address, 0), None, |_| {}).map(drop).map_err(|error| error.to_string())
}

fn trial(case: &'static Case, setup: &CmSetup) -> Trial {
    let linkage = if setup.linkage == Linkage::Static { "static" } else { "plugin" };
    let name = format!("{}/{}[{linkage}]::{}", setup.component, setup.address, case.0);
    let (setup, limit) = (Arc::new(setup.clone()), setup.config.case_limit);
    Trial::ignorable_test(name.clone(), move || {
        let _watchdog = Watchdog::new(name, limit);
        log::take();
        let outcome = runner::caught(|| (case.1)(&setup));
        let logged = log::take();
        match outcome {
            Ok(()) if logged.is_empty() => Ok(Completion::Completed),
            Ok(()) => Err(Failed::from(format!("it was logged: {}", logged[0]))),
            Err(runner::Problem::Skipped(reason)) => Ok(Completion::ignored_with(reason)),
            Err(runner::Problem::Panic(words)) => {
                let lines: Vec<String> = logged.iter().map(|line| format!("\n    logged: {line}")).collect();
                Err(Failed::from(format!("{words}{}", lines.concat())))
            }
        }
    })
}
