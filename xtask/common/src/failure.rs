//! Why a command failed, as a human-readable text, and its exit status.
//! Built on no other module; every command returns it.

use std::fmt;
use std::process::ExitCode;

/// The answer of every fallible step here.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A message that says what was wrong and what to do, and the exit status that goes with it.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// A failure that exits with status 1.
    pub fn new(message: impl Into<String>) -> Self {
        Failure::with_status(message, 1)
    }

    /// A failure that exits with `status`: used where the status itself has a meaning, as in `vm`.
    pub fn with_status(message: impl Into<String>, status: u8) -> Self {
        Failure { message: message.into(), status }
    }

    /// The same, with lines below it.
    pub fn with_lines(mut self, lines: Vec<&str>) -> Self {
        for line in lines {
            self.message.push('\n');
            self.message += line;
        }
        self
    }

    /// The status to exit with.
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// The end of a program: its status, or that of the failure, whose message is printed.
pub fn exit(outcome: Outcome<u8>) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

/// Adds what was being done to an error that does not know it.
pub trait Context<T> {
    /// The error becomes `what: error`.
    fn context(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}
