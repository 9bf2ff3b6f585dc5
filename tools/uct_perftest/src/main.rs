//! `uct_perftest`: latency, bandwidth and message rate of a transport, between two processes or within one.
//!
//! The client finds the server (`peer`) and plans (`setup`, `plan`), both sides go through the plan's cases in step (`session`,
//! `run`), and the client prints (`output`, `result`, `svg`). docs/tools.md documents the figures and the JSON.

#![forbid(unsafe_code)]

mod chart;
mod compare;
mod kind;
mod options;
mod output;
mod peer;
mod plan;
mod result;
mod run;
mod session;
mod setup;
mod sizes;
mod svg;

use std::process::ExitCode;

use clap::Parser;
use uct_tools_common::{Failure, complete, init_log, output as print, report};

use options::Options;
use output::Output;

fn main() -> ExitCode {
    complete::reply::<Options>();
    let options = Options::parse();
    if let Some(result) = options.common.generate::<Options>() {
        return report("uct_perftest", result);
    }
    report("uct_perftest", run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    if let Some([a, b]) = options.compare.as_deref() {
        return compare::run(a, b, options.json);
    }
    init_log(&options.common.builder())?;
    options.check()?;
    let mut output = Output::of(options);
    let record = match &options.host {
        Some(host) => session::client(options, host, &mut output)?,
        None if options.loopback => session::loopback(options, &mut output)?,
        None => return session::server(options, &mut output),
    };
    if options.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&record)?))?;
    }
    match &options.plot {
        Some(path) => svg::write(path, &record),
        None => Ok(()),
    }
}
