//! The virtual machines' steps in a process of their own, while other steps run: neither keeps all processors busy.
//! Built on this program itself and a file for what it prints; used by `test`.

use super::TEST_LIMIT;
use crate::failure::{Context, Failure, Outcome};
use crate::process::{build_as_this, command, echo, line, spawn, wait};
use crate::workspace::Workspace;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

/// Steps that run.
pub struct Beside {
    command: Command,
    child: Child,
    printed: PathBuf,
}

impl Beside {
    /// Starts the steps whose names contain these words.
    pub fn start(workspace: &Workspace, words: &str) -> Outcome<Self> {
        let printed = workspace.target().join("beside.log");
        let file = || File::create(&printed).context(|| format!("cannot write {}", printed.display()));
        // The file of this program may have been built anew.
        let mut command = command("/proc/self/exe");
        build_as_this(&mut command);
        let stdout = file()?;
        let stderr = stdout.try_clone().context(|| printed.display().to_string())?;
        let child = spawn(command.args(["test", words]).stdout(stdout).stderr(stderr))?;
        eprintln!("\n== `{words}` has begun; what it prints is shown when it has ended");
        Ok(Beside { command, child, printed })
    }

    /// Waits for the end, and shows what was printed.
    pub fn finish(mut self) -> Outcome {
        let status = wait(&mut self.child, TEST_LIMIT, &line(&self.command));
        echo(&self.command);
        print!("{}", fs::read_to_string(&self.printed).unwrap_or_else(|error| error.to_string()));
        match status? {
            status if status.success() => Ok(()),
            status => Err(Failure::new(format!("{status}; its own table is above"))),
        }
    }
}
