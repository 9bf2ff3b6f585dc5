//! Completions of a shell: it asks the program for them, which knows the transports, devices and keys of this machine.
//!
//! Used by the programs. Built on clap_complete. The script that a shell loads calls the program with `UCT_COMPLETE` set.

use std::ffi::OsStr;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use uct_core::Context;
use uct_core::configuration::key_name;

use crate::Failure;

const VARIABLE: &str = "UCT_COMPLETE";

/// Replies to a shell that asks for completions, and ends the process then. To be called before anything else is printed.
pub fn reply<Program: CommandFactory>() {
    CompleteEnv::with_factory(Program::command).var(VARIABLE).complete();
}

/// Writes the script of each shell into a directory: `NAME.bash`, `_NAME` (zsh), `NAME.fish`, `NAME.elv`, `_NAME.ps1`.
///
/// # Errors
/// Those of writing.
pub fn write<Program: CommandFactory>(directory: &Path) -> Result<(), Failure> {
    let name = Program::command().get_name().to_owned();
    for shell in Shells::builtins().iter() {
        let file = match shell.name() {
            "zsh" => format!("_{name}"),
            "elvish" => format!("{name}.elv"),
            "powershell" => format!("_{name}.ps1"),
            other => format!("{name}.{other}"),
        };
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, &name, &name, &name, &mut script)?;
        std::fs::write(directory.join(file), script)?;
    }
    Ok(())
}

/// Completes the name of a transport that is loaded.
pub fn transports() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        candidates(current, |context| {
            context.transport_names().into_iter().map(CompletionCandidate::new).collect()
        })
    })
}

/// Completes the name of a device of this machine, with the transports that use it.
pub fn devices() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, of_devices))
}

/// Completes the name of a connection manager that a listener has beside TCP.
pub fn managers() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        candidates(current, |context| {
            let managers = context.connection_managers().into_iter().filter(|name| *name != "tcp");
            managers.map(|name| CompletionCandidate::new(name.to_owned())).collect()
        })
    })
}

/// Completes a key of the configuration, up to its `=`.
pub fn keys() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, of_keys))
}

fn of_devices(context: &Context) -> Vec<CompletionCandidate> {
    let mut names: Vec<&str> = context.resources().iter().map(|resource| &*resource.device).collect();
    names.sort_unstable();
    names.dedup();
    let candidate = |name: &str| {
        let users = context.resources().iter().filter(|resource| resource.device == name);
        let users: Vec<&str> = users.map(|resource| &*resource.transport).collect();
        CompletionCandidate::new(name).help(Some(users.join(", ").into()))
    };
    names.into_iter().map(candidate).collect()
}

fn of_keys(context: &Context) -> Vec<CompletionCandidate> {
    let keys = context.schema().keys();
    let candidate = keys.map(|(section, field)| {
        let name = format!("{}=", key_name(&section.name, &field.name));
        CompletionCandidate::new(name).help(Some(field.doc.to_string().into()))
    });
    candidate.collect()
}

/// Those that begin with what was typed. None where the configuration is wrong: a shell cannot show why.
fn candidates(current: &OsStr, all: fn(&Context) -> Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let (Some(current), Ok(context)) = (current.to_str(), Context::builder().set("log_level", "off").build())
    else {
        return Vec::new();
    };
    let mut all = all(&context);
    all.retain(|candidate| candidate.get_value().to_str().is_some_and(|value| value.starts_with(current)));
    all
}
