//! What the tools' command lines have in common: where the configuration comes from, the log, manual pages, failures.
//!
//! For `uct_info` and `uct_perftest`. Built on `uct-core` and clap.

#![forbid(unsafe_code)]

pub mod complete;

/// The log and the text of peers, for programs that use no other part of that crate.
pub use ucs::{log, text};

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use tracing_subscriber::EnvFilter;
use uct_core::{Context, ContextBuilder};

/// Whatever ends a program early, as the line that it prints.
pub type Failure = Box<dyn std::error::Error>;

/// Options of every tool.
#[derive(Args, Clone, Debug)]
pub struct CommonOptions {
    /// Configuration file, instead of the search.
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// Set a configuration key, e.g. tls=^tcp or tcp.tx_seg_size=64k; overrides file and environment.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value, help_heading = "Configuration", add = complete::keys())]
    pub overrides: Vec<(String, String)>,
    /// Write the manual page into a directory.
    #[arg(long, value_name = "DIR", hide = true)]
    generate_man: Option<PathBuf>,
    /// Write shell completions into a directory.
    #[arg(long, value_name = "DIR", hide = true)]
    generate_completions: Option<PathBuf>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, e.g. tls=^tcp; uct_info -c lists the keys".to_owned()),
    }
}

impl CommonOptions {
    /// A context's builder with what the command line says of the configuration.
    pub fn builder(&self) -> ContextBuilder {
        let builder = self.config.iter().fold(Context::builder(), |builder, file| builder.config_file(file));
        let set = |builder: ContextBuilder, (key, value): &(String, String)| builder.set(key, value);
        self.overrides.iter().fold(builder, set)
    }

    /// Whether a manual page or completions are asked for.
    pub fn generates(&self) -> bool {
        self.generate_man.is_some() || self.generate_completions.is_some()
    }

    /// Writes manual page or completions of a program, if asked to.
    pub fn generate<Program: CommandFactory>(&self) -> Option<Result<(), Failure>> {
        if let Some(dir) = &self.generate_man {
            return Some(clap_mangen::generate_to(Program::command(), dir).map_err(Failure::from));
        }
        self.generate_completions.as_ref().map(|dir| complete::write::<Program>(dir))
    }
}

/// Has the framework's messages printed to standard error: those of the key `log_level`, which is also a filter such as
/// `warn,uct_tcp=debug`. In colour on a terminal, unless `NO_COLOR` is set.
///
/// # Errors
/// What is wrong in the configuration of all transports together.
pub fn init_log(builder: &ContextBuilder) -> Result<(), Failure> {
    let level = builder.core_config()?.log_level;
    let filter = EnvFilter::try_new(&level).map_err(|error| {
        format!("log_level = {level} (UCT_LOG_LEVEL): {error}; e.g. debug or uct_tcp=debug")
    })?;
    let is_coloured =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_coloured);
    // It would write of a line that cannot be written to the same place, and panic.
    log.with_writer(std::io::stderr).without_time().log_internal_errors(false).init();
    Ok(())
}

/// The exit code of a program; a failure is printed first.
pub fn report(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the output: `uct_info -d | head`.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("{program}: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints to standard error as it is. Unlike `eprint!` it does not panic when that is closed or full, which cannot be reported anywhere.
pub fn note(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints to standard output as it is. Unlike `print!` it does not panic when the output is closed.
///
/// # Errors
/// Those of writing.
pub fn output(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
