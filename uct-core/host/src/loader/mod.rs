//! Finds plugins, checks them, and makes tables of them that can be called without a further check.
//!
//! Used by the context, which turns the result into components. Built on `uct-abi` and the system's loader. Built-in
//! plugins go the same way as files. A plugin that fails is listed in [`Loaded::failures`] and harms no other.

mod array;
mod config;
mod elf;
mod failure;
mod handshake;
mod names;
mod open;
mod overlay;
mod own_library;
mod registry;
mod search;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::{fmt, path::PathBuf};

use ucs::{config::Schema, sys::trust::Trust, units::NameList};
use uct_abi::{UctCmOps, UctComponentOps, UctEpOps, UctHost, UctIfaceOps, UctMdOps, UctPlugin, UctTlOps};

pub use failure::{LoadFailure, LoadFailureKind, LoadStage};
pub(crate) use table::Slot;
pub(crate) use text::is_name;
pub use text::{COMPONENT_NAME_LIMIT, DEVICE_NAME_LIMIT, MD_NAME_LIMIT, TL_NAME_LIMIT};

use handshake::Prepared;
use search::PluginFile;

/// Where to look for plugins, and which to take.
#[derive(Clone, Debug)]
pub struct LoaderSettings {
    /// Directories to search ahead of all others, in this order. One that cannot be listed is a failure.
    pub module_dirs: Vec<PathBuf>,
    /// Whether to search, behind those, the directory of the executable, `../lib/uct` from there, `uct` in the directory of
    /// the shared library that this code is a part of, if it is one, and the directory of installed plugins: the one that
    /// `UCT_BUILD_PLUGIN_DIR` named when this library was compiled, or else `/usr/local/lib/uct` and `/usr/lib/uct`.
    pub search_standard: bool,
    /// Users, by number, whose files, directories and links are trusted besides those of [`Trust::of_process`].
    pub module_owners: Vec<u32>,
    /// Which plugins to load, by name, whether built in or from a file.
    pub modules: NameList,
    /// Which files take the place of a built-in plugin of the same name. All others of such a name are ignored.
    pub replace_builtin: NameList,
    /// The configuration keys that are taken; a plugin whose keys do not fit beside them is refused.
    pub schema: Schema,
}

impl Default for LoaderSettings {
    /// What is built in and what lies in the standard places; nothing built in is replaced.
    fn default() -> Self {
        LoaderSettings {
            module_dirs: Vec::new(),
            search_standard: true,
            module_owners: Vec::new(),
            modules: NameList::all(),
            replace_builtin: "^all".parse().expect("it is a list of names"),
            schema: Schema::new(),
        }
    }
}

impl LoaderSettings {
    /// Whose files may be loaded as code.
    fn trust(&self) -> Trust {
        Trust::of_process().and_users(&self.module_owners)
    }
}

/// What [`load`] achieved.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The plugins that are ready: the built-in ones in their order, then files in the order of the search.
    pub plugins: Vec<Plugin>,
    /// What failed, in the order in which it was found. The caller reports it to the user.
    pub failures: Vec<LoadFailure>,
    /// What was left out on purpose.
    pub ignored: Vec<Ignored>,
    /// The directories that were searched, in their order.
    pub searched: Vec<Searched>,
}

/// A directory that was searched for plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Searched {
    /// The directory, without symbolic links in its path if it is there.
    pub directory: PathBuf,
    /// What was there.
    pub seen: Seen,
}

/// What a directory had for the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// So many files with the name of a plugin.
    Plugins(
        /// Their number.
        usize,
    ),
    /// Another user can write to it, so nothing of it was used.
    Untrusted,
    /// It cannot be listed.
    Unlisted(
        /// Why not.
        std::io::ErrorKind,
    ),
}

impl fmt::Display for Searched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ", self.directory.display())?;
        match self.seen {
            Seen::Plugins(1) => out.write_str("(1 plugin)"),
            Seen::Plugins(count) => write!(out, "({count} plugins)"),
            Seen::Untrusted => out.write_str("(not trusted)"),
            Seen::Unlisted(std::io::ErrorKind::NotFound) => out.write_str("(not there)"),
            Seen::Unlisted(error) => write!(out, "({error})"),
        }
    }
}

/// Where plugins were looked for, as part of a message about one that is not there.
pub(crate) fn looked_in(searched: &[Searched]) -> String {
    let places: Vec<String> = searched.iter().map(ToString::to_string).collect();
    format!("plugins were looked for in {}", places.join(", "))
}

/// A plugin that is ready.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its name: `NAME` of `libuct_NAME.so`.
    pub name: String,
    /// Its version, human-readable; may be empty.
    pub version: String,
    /// Where it came from.
    pub origin: PluginOrigin,
    /// What it offers; at least one.
    pub components: Vec<Component>,
    /// Its configuration keys.
    pub config: Vec<ucs::config::Section>,
}

/// Where a plugin came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PluginOrigin {
    /// It is linked into the program.
    BuiltIn,
    /// It was loaded from this file.
    File(PathBuf),
}

impl fmt::Display for PluginOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PluginOrigin::BuiltIn => out.pad("built in"),
            PluginOrigin::File(path) => path.display().fmt(out),
        }
    }
}

/// A component of a plugin. In its tables and those below every slot is there: what the plugin lacks returns
/// `UCT_ERR_UNSUPPORTED`, and the pointers between them lead to tables of the same kind.
#[derive(Clone)]
pub struct Component {
    /// Its name, at most [`COMPONENT_NAME_LIMIT`] bytes; no other loaded component has it.
    pub name: String,
    /// Its calls.
    pub ops: &'static UctComponentOps,
    /// The calls of its memory domains.
    pub md_ops: &'static UctMdOps,
    /// The calls of its connection managers, if it has any.
    pub cm_ops: Option<&'static UctCmOps>,
    /// Its transports; at least one.
    pub transports: Vec<Transport>,
}

impl fmt::Debug for Component {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Component")
            .field("name", &self.name)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}

/// A transport of a component.
#[derive(Clone)]
pub struct Transport {
    /// Its name, at most [`TL_NAME_LIMIT`] bytes; no other loaded transport has it.
    pub name: String,
    /// Its calls.
    pub ops: &'static UctTlOps,
    /// The calls of its interfaces.
    pub iface_ops: &'static UctIfaceOps,
    /// The calls of its endpoints.
    pub ep_ops: &'static UctEpOps,
}

impl fmt::Debug for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Transport").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A plugin that was found and left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub origin: PluginOrigin,
    /// Why it was left out.
    pub reason: IgnoredReason,
}

impl fmt::Display for Ignored {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "plugin {} ({}): {}", self.name, self.origin, self.reason)
    }
}

/// Why a plugin was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IgnoredReason {
    /// `modules` does not contain it.
    Excluded,
    /// A plugin of this name is built in, and the settings do not prefer the file.
    BuiltInKept,
    /// It is built in, and a file took its place.
    ReplacedBy(
        /// The file.
        PathBuf,
    ),
    /// A directory searched earlier has a plugin of this name.
    Shadowed {
        /// That plugin.
        by: PathBuf,
    },
}

impl fmt::Display for IgnoredReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IgnoredReason::Excluded => out.pad("excluded by `modules` (UCT_MODULES)"),
            IgnoredReason::BuiltInKept => {
                out.pad("the built-in one of this name is used; `module_replace` (UCT_MODULE_REPLACE) can prefer the file")
            }
            IgnoredReason::ReplacedBy(path) => {
                write!(out, "{} took its place, as configured", path.display())
            }
            IgnoredReason::Shadowed { by } => write!(out, "{} was found earlier", by.display()),
        }
    }
}

/// Loads what the settings permit of `built_in` and of the files that the search finds.
///
/// Blocks while files are read and plugins start. Each plugin is checked and started once in the life of the process:
/// a later call returns the same for it, with the host of the first. A plugin from a file is never unloaded.
pub fn load(settings: &LoaderSettings, built_in: &[&'static UctPlugin], host: &'static UctHost) -> Loaded {
    let found = search::plugin_files(settings);
    let loaded = Loaded {
        plugins: Vec::new(),
        failures: found.failures,
        ignored: found.ignored,
        searched: found.searched,
    };
    let mut loading = Loading { loaded, host, trust: settings.trust(), schema: settings.schema.clone() };
    let mut files = loading.without_excluded(found.files, &settings.modules);
    for table in built_in {
        loading.built_in(table, &mut files, settings);
    }
    for file in &files {
        loading.file(file);
    }
    loading.loaded
}

/// The configuration keys that a plugin describes. It is checked, but not started, so this works for one that cannot
/// run here; the documentation is made from it.
///
/// # Errors
/// What is wrong with the plugin.
pub fn described(plugin: &'static UctPlugin) -> Result<Vec<ucs::config::Section>, LoadFailureKind> {
    // SAFETY: as for a built-in plugin in `Loading::built_in`.
    unsafe { registry::prepared(plugin) }.map(|prepared| prepared.config)
}

struct Loading {
    loaded: Loaded,
    host: &'static UctHost,
    trust: Trust,
    /// All keys: those of the settings, and those of the plugins that are ready.
    schema: Schema,
}

impl Loading {
    fn without_excluded(&mut self, files: Vec<PluginFile>, modules: &NameList) -> Vec<PluginFile> {
        let (wanted, excluded): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| modules.contains(&file.name));
        for file in excluded {
            self.ignore(file.name, PluginOrigin::File(file.path), IgnoredReason::Excluded);
        }
        wanted
    }

    /// Takes a built-in plugin, or the file that is to take its place; a file of its name is not among `files`
    /// afterwards.
    fn built_in(
        &mut self,
        table: &'static UctPlugin,
        files: &mut Vec<PluginFile>,
        settings: &LoaderSettings,
    ) {
        // SAFETY: a reference to a table that lives for ever; the code that linked it in promises that it is one.
        let plugin = match unsafe { registry::prepared(table) } {
            Ok(plugin) => plugin,
            Err(kind) => return self.fail(built_in_name(table), None, kind),
        };
        if !settings.modules.contains(&plugin.name) {
            return self.ignore(plugin.name, PluginOrigin::BuiltIn, IgnoredReason::Excluded);
        }
        if let Some(index) = files.iter().position(|file| file.name == plugin.name) {
            let file = files.remove(index);
            if !settings.replace_builtin.contains(&plugin.name) {
                self.ignore(file.name, PluginOrigin::File(file.path), IgnoredReason::BuiltInKept);
            } else if self.file(&file) {
                return self.ignore(plugin.name, PluginOrigin::BuiltIn, IgnoredReason::ReplacedBy(file.path));
            }
        }
        let name = plugin.name.clone();
        if let Err(kind) = self.start(table, plugin, PluginOrigin::BuiltIn) {
            self.fail(name, None, kind);
        }
    }

    /// Whether the plugin is ready afterwards.
    fn file(&mut self, file: &PluginFile) -> bool {
        let outcome = self.try_file(file);
        let ready = outcome.is_ok();
        if let Err(kind) = outcome {
            self.fail(file.name.clone(), Some(file.path.clone()), kind);
        }
        ready
    }

    fn try_file(&mut self, file: &PluginFile) -> Result<(), LoadFailureKind> {
        let table = open::plugin_table(file, &self.trust)?;
        // SAFETY: the exported function of a plugin returns its table, which is valid for ever.
        let plugin = unsafe { registry::prepared(table) }?;
        if plugin.name != file.name {
            return Err(LoadFailureKind::OtherName { expected: file.name.clone(), found: plugin.name });
        }
        self.start(table, plugin, PluginOrigin::File(file.path.clone()))
    }

    fn start(
        &mut self,
        table: *const UctPlugin,
        plugin: Prepared,
        origin: PluginOrigin,
    ) -> Result<(), LoadFailureKind> {
        self.check_names(&plugin)?;
        let schema = self.schema_with(&plugin)?;
        registry::started(table, &plugin, self.host)?;
        self.schema = schema;
        let Prepared { name, version, components, config, .. } = plugin;
        self.loaded.plugins.push(Plugin { name, version, origin, components, config });
        Ok(())
    }

    /// Names have to be unique for the user who chooses by them.
    fn check_names(&self, plugin: &Prepared) -> Result<(), LoadFailureKind> {
        for other in &self.loaded.plugins {
            let taken_by = || format!("plugin {} ({})", other.name, other.origin);
            names::check_disjoint(&plugin.components, &other.components, taken_by)?;
        }
        Ok(())
    }

    /// The schema with the keys of the plugin. Two plugins may share a section, if they mean the same.
    fn schema_with(&self, plugin: &Prepared) -> Result<Schema, LoadFailureKind> {
        let mut schema = self.schema.clone();
        for section in &plugin.config {
            let added = schema.add_section(section.clone());
            added.map_err(|error| LoadFailureKind::ConfigKey {
                key: format!("section [{}]", error.section),
                problem: error.reason,
            })?;
        }
        Ok(schema)
    }

    fn fail(&mut self, name: String, path: Option<PathBuf>, kind: LoadFailureKind) {
        self.loaded.failures.push(LoadFailure { name, path, kind });
    }

    fn ignore(&mut self, name: String, origin: PluginOrigin, reason: IgnoredReason) {
        self.loaded.ignored.push(Ignored { name, origin, reason });
    }
}

/// What a built-in plugin calls itself, if it can be read, for the message that something else is wrong with it.
fn built_in_name(table: &'static UctPlugin) -> String {
    // SAFETY: the string of a table in this program is readable; the code that linked it in promises that.
    unsafe { text::text(table.name, "name of the plugin") }.unwrap_or_default()
}
