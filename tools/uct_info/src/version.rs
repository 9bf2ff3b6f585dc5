//! `-v`: the version, the plugin boundary, the plugins in use and those that failed, and the machine.

use std::fmt;

use serde::Serialize;
use uct_core::loader::Seen;
use uct_core::{ABI_VERSION, Context, system};

/// The section.
#[derive(Serialize)]
pub(crate) struct Version {
    version: &'static str,
    abi_major: u32,
    abi_minor: u32,
    build: Build,
    host: Host,
    config_file: Option<String>,
    searched: Vec<Searched>,
    plugins: Vec<Plugin>,
    failed_plugins: Vec<FailedPlugin>,
    ignored_plugins: Vec<IgnoredPlugin>,
}

#[derive(Serialize)]
struct Build {
    profile: &'static str,
    architecture: &'static str,
    system: &'static str,
}

#[derive(Serialize)]
struct Host {
    name: String,
    kernel: String,
    processor: String,
    processors: usize,
}

#[derive(Serialize)]
struct Plugin {
    name: String,
    version: String,
    origin: String,
    transports: Vec<String>,
}

/// A directory of the search for plugins.
#[derive(Serialize)]
struct Searched {
    directory: String,
    plugins: usize,
    #[serde(skip)]
    line: String,
}

#[derive(Serialize)]
struct FailedPlugin {
    name: String,
    path: Option<String>,
    stage: String,
    problem: String,
    hint: String,
}

#[derive(Serialize)]
struct IgnoredPlugin {
    name: String,
    origin: String,
    reason: String,
}

impl Version {
    pub(crate) fn of(context: &Context) -> Version {
        let plugins = context.plugins().iter().map(|plugin| Plugin {
            name: plugin.name.clone(),
            version: plugin.version.clone(),
            origin: plugin.origin.to_string(),
            transports: plugin
                .components
                .iter()
                .flat_map(|component| component.transports.iter().map(|transport| transport.name.clone()))
                .collect(),
        });
        let failed_plugins = context.load_failures().iter().map(|failure| FailedPlugin {
            name: failure.name.clone(),
            path: failure.path.as_ref().map(|path| path.display().to_string()),
            stage: failure.stage().to_string(),
            problem: failure.kind.to_string(),
            hint: failure.hint(),
        });
        let searched = context.searched().iter().map(|searched| Searched {
            directory: searched.directory.display().to_string(),
            plugins: if let Seen::Plugins(count) = searched.seen { count } else { 0 },
            line: searched.to_string(),
        });
        let ignored_plugins = context.ignored_plugins().iter().map(|ignored| IgnoredPlugin {
            name: ignored.name.clone(),
            origin: ignored.origin.to_string(),
            reason: ignored.reason.to_string(),
        });
        Version {
            version: env!("CARGO_PKG_VERSION"),
            abi_major: ABI_VERSION.0,
            abi_minor: ABI_VERSION.1,
            build: Build {
                profile: if cfg!(debug_assertions) { "debug" } else { "release" },
                architecture: std::env::consts::ARCH,
                system: std::env::consts::OS,
            },
            host: Host {
                name: system::host::hostname(),
                kernel: system::host::kernel(),
                processor: system::cpu::model_name(),
                processors: system::cpu::count(),
            },
            config_file: context.config_file().map(|path| path.display().to_string()),
            searched: searched.collect(),
            plugins: plugins.collect(),
            failed_plugins: failed_plugins.collect(),
            ignored_plugins: ignored_plugins.collect(),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Build { profile, architecture, system } = &self.build;
        writeln!(f, "# Library version: {}", self.version)?;
        writeln!(f, "# Plugin boundary: {}.{}", self.abi_major, self.abi_minor)?;
        writeln!(f, "# Build: {profile}, {architecture}-{system}")?;
        writeln!(f, "# Host: {}, kernel {}", self.host.name, self.host.kernel)?;
        writeln!(f, "# Processor: {}, {} usable", self.host.processor, self.host.processors)?;
        writeln!(f, "# Configuration file: {}", self.config_file.as_deref().unwrap_or("none"))?;
        for Searched { line, .. } in &self.searched {
            writeln!(f, "# Searched for plugins: {line}")?;
        }
        for Plugin { name, version, origin, transports } in &self.plugins {
            writeln!(f, "# Plugin: {name} {version} ({origin}): {}", transports.join(", "))?;
        }
        for FailedPlugin { name, path, stage, problem, hint } in &self.failed_plugins {
            let place = path.as_deref().unwrap_or(name);
            writeln!(f, "# Failed plugin: {place}: {stage}: {problem} ({hint})")?;
        }
        for IgnoredPlugin { name, origin, reason } in &self.ignored_plugins {
            writeln!(f, "# Plugin left out: {name} ({origin}): {reason}")?;
        }
        Ok(())
    }
}
