//! `-b`: how this program was built, and where it looks for plugins.

use std::fmt;

use serde::Serialize;
use uct_core::loader::PluginOrigin;
use uct_core::{ABI_VERSION, Context};

/// The section.
#[derive(Serialize)]
pub(crate) struct Build {
    version: &'static str,
    /// Of the sources, as `UCT_COMMIT` named it when the program was compiled; `cargo xtask install` and `dist` do.
    commit: Option<&'static str>,
    profile: &'static str,
    architecture: &'static str,
    system: &'static str,
    /// Plugins that are linked in: the features of uct-core.
    features: Vec<String>,
    abi_major: u32,
    abi_minor: u32,
    /// In the order of the search.
    plugin_directories: Vec<String>,
}

impl Build {
    pub(crate) fn of(context: &Context) -> Build {
        let used = context.plugins().iter().map(|plugin| (&plugin.name, &plugin.origin));
        // A plugin that the configuration leaves out is linked in all the same.
        let ignored = context.ignored_plugins().iter().map(|ignored| (&ignored.name, &ignored.origin));
        let linked = used.chain(ignored).filter(|(_, origin)| **origin == PluginOrigin::BuiltIn);
        let mut features: Vec<String> = linked.map(|(name, _)| name.clone()).collect();
        features.sort_unstable();
        features.dedup();
        let directories = context.searched().iter();
        Build {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("UCT_COMMIT"),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            architecture: std::env::consts::ARCH,
            system: std::env::consts::OS,
            features,
            abi_major: ABI_VERSION.0,
            abi_minor: ABI_VERSION.1,
            plugin_directories: directories.map(|it| it.directory.display().to_string()).collect(),
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Build { version, commit, profile, architecture, system, features, .. } = self;
        writeln!(f, "# Version: {version}")?;
        writeln!(f, "# Commit: {}", commit.unwrap_or("not recorded by this build"))?;
        writeln!(f, "# Profile: {profile}, {architecture}-{system}")?;
        let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
        writeln!(f, "# Linked in: {features}")?;
        writeln!(f, "# Plugin boundary: {}.{}", self.abi_major, self.abi_minor)?;
        let mut directories = self.plugin_directories.iter();
        directories.try_for_each(|directory| writeln!(f, "# Plugin directory: {directory}"))
    }
}
