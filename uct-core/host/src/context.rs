//! The context: configuration, plugins, memory domains and the resources that can be opened.

use std::collections::HashMap;
use std::env;
use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use ucs::config::{Config, ENV_PREFIX, FileSource, Schema, Sources, UnknownSections, Warning, nearest};
use ucs::sys::trust;
use uct_abi::{UCT_DEVICE_IS_SOFTWARE, UCT_OK, UctConfig, UctDevice, UctStr};

use crate::attach::{Observers, Snapshot};
use crate::config::{AllocMethod, CoreConfig, FOREIGN_VARIABLES, PluginValues, text};
use crate::error::{ContextError, OpenError, Refused};
use crate::loader::text as loader_text;
use crate::loader::{Component, Ignored, LoadFailure, Loaded, LoaderSettings, Plugin, Searched, looked_in};
use crate::md::{MdInner, MemoryDomain};
use crate::reason::Reason;
use crate::resource::{DeviceKind, Resource};
use crate::select::{Calibration, CalibrationError};
use crate::{device, host, linked, loader, misspelt};

/// The configuration and the loaded transports of a process, or of a library within it.
///
/// Cheap to clone; usable from any thread. Several contexts may have different configurations.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

pub(crate) struct ContextInner {
    pub(crate) config: Config,
    pub(crate) core: CoreConfig,
    alloc_methods: Vec<AllocMethod>,
    schema: Schema,
    config_file: Option<PathBuf>,
    calibration_file: Option<PathBuf>,
    calibration: OnceLock<Calibration>,
    warnings: Vec<Warning>,
    plugins: Vec<Plugin>,
    failures: Vec<LoadFailure>,
    ignored: Vec<Ignored>,
    searched: Vec<Searched>,
    /// (plugin, component in it) of every component.
    components: Vec<(usize, usize)>,
    domains: Mutex<HashMap<(usize, String), Weak<MdInner>>>,
    discovery: OnceLock<Discovery>,
    /// Those that show what its workers have done.
    pub(crate) observers: Observers,
}

/// The devices of all components, and the reasons of those that have none.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// All that can be opened.
    pub resources: Vec<Resource>,
    /// Components that returned a reason instead.
    pub absent: Vec<Absent>,
}

/// A transport or component that offers nothing here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The component.
    pub component: String,
    /// Its transports that are concerned.
    pub transports: Vec<String>,
    /// Why.
    pub refused: Refused,
}

impl Absent {
    /// Whether the configuration excludes it, or it has no transports that could be permitted.
    pub fn is_excluded(&self) -> bool {
        self.refused.operation == Context::EXCLUDED
    }
}

/// Makes a [`Context`].
#[derive(Clone, Debug)]
pub struct ContextBuilder {
    sources: Sources,
    reports: bool,
}

impl ContextBuilder {
    /// Reads this configuration file instead of the one that the search finds.
    #[must_use]
    pub fn config_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources = self.sources.file(path);
        self
    }

    /// Sets a key, `tls` or `tcp.tx_seg_size`, whatever file and environment say.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.sources = self.sources.set(key, value);
        self
    }

    /// Reads only from these sources, in place of file and environment.
    #[must_use]
    pub fn sources(mut self, sources: Sources) -> Self {
        self.sources = sources;
        self
    }

    /// Has the workers of the context report what they have done: [`Context::report`]. Costs nothing while data are sent.
    #[must_use]
    pub fn reports(mut self) -> Self {
        self.reports = true;
        self
    }

    /// Loads configuration and plugins. Blocks for as long as that takes: about a millisecond a plugin.
    ///
    /// Anything unusual but harmless (an unknown variable, a plugin that fails to load) is logged as one warning each and kept in
    /// the context.
    ///
    /// # Errors
    /// All that is wrong in the configuration.
    pub fn build(self) -> Result<Context, ContextError> {
        // Where the plugins are is configuration itself, so it is read ahead of the keys that they bring.
        let (known, config, early) = self.read_core()?;
        ucs::log::print_unheard(ucs::log::Directives::parse(&early.log_level));
        if trust::is_privileged()
            && matches!(self.sources.file, FileSource::System(_))
            && env::vars_os().any(|(name, value)| {
                !value.is_empty() && name.as_encoded_bytes().starts_with(ENV_PREFIX.as_bytes())
            })
        {
            ucs::log::warn!(
                "{ENV_PREFIX}* variables have no effect: this program has privileges that its caller lacks"
            );
        }
        let module_owners = early.owners().map_err(|entry| {
            ContextError::entry(
                &config,
                "module_owners",
                entry,
                "numbers of users, as `id -u NAME` prints them",
            )
        })?;
        let settings = LoaderSettings {
            module_dirs: early.module_dirs(),
            search_standard: true,
            module_owners,
            modules: early.modules,
            replace_builtin: early.module_replace,
            schema: known,
        };
        let Loaded { plugins, failures, ignored, searched } =
            loader::load(&settings, &linked::plugins(), host::table());
        for failure in &failures {
            ucs::log::warn!("{failure} ({})", failure.hint());
        }

        let mut schema = Schema::new();
        schema.add_section(CoreConfig::section())?;
        for variable in FOREIGN_VARIABLES {
            schema.add_foreign_variable(*variable);
        }
        for section in plugins.iter().flat_map(|plugin| &plugin.config) {
            schema.add_section(section.clone())?;
        }
        let loaded = Config::load(&schema, &self.sources)?;
        for warning in &loaded.warnings {
            ucs::log::warn!("{warning}");
        }
        let core = CoreConfig::from_settings(&loaded.config)?;
        let alloc_methods = core.alloc_methods().map_err(|entry| {
            ContextError::entry(&loaded.config, "alloc_prio", entry, "md, thp, heap, mmap or huge")
        })?;

        let observers = Observers::new(core.attach, self.reports);

        let transports = plugins.iter().flat_map(|plugin| &plugin.components).flat_map(|it| &it.transports);
        let names: Vec<&str> = transports.map(|transport| transport.name.as_str()).collect();
        let places = looked_in(&searched);
        misspelt::warn(&loaded.config, "tls", &core.tls, "transport", &names, &places);
        let seen = plugins.iter().map(|plugin| &plugin.name);
        let seen = seen.chain(failures.iter().map(|it| &it.name)).chain(ignored.iter().map(|it| &it.name));
        let names: Vec<&str> = seen.map(String::as_str).collect();
        misspelt::warn(&loaded.config, "modules", &core.modules, "plugin", &names, &places);

        let components = plugins
            .iter()
            .enumerate()
            .flat_map(|(index, plugin)| (0..plugin.components.len()).map(move |component| (index, component)))
            .collect();
        Ok(Context {
            inner: Arc::new(ContextInner {
                calibration_file: core.calibration_file(&self.sources),
                calibration: OnceLock::new(),
                config: loaded.config,
                core,
                alloc_methods,
                schema,
                config_file: loaded.file,
                warnings: loaded.warnings,
                plugins,
                failures,
                ignored,
                searched,
                components,
                domains: Mutex::default(),
                discovery: OnceLock::new(),
                observers,
            }),
        })
    }
}

impl ContextBuilder {
    /// The settings that concern all transports, read ahead of loading any: a program sets up its log by them, so that
    /// what [`ContextBuilder::build`] has to say is seen. Blocks as reading a file does.
    ///
    /// # Errors
    /// What is wrong with these settings; keys of transports are not looked at.
    pub fn core_config(&self) -> Result<CoreConfig, ContextError> {
        Ok(self.read_core()?.2)
    }

    fn read_core(&self) -> Result<(Schema, Config, CoreConfig), ContextError> {
        let mut known = Schema::new();
        known.add_section(CoreConfig::section())?;
        known.set_unknown_sections(UnknownSections::Ignore);
        let config = Config::load(&known, &self.sources)?.config;
        let core = CoreConfig::from_settings(&config)?;
        if let Some(entry) = core.odd_log_level() {
            let expected = "off, error, warn, info, debug, trace, or a filter such as uct_tcp=debug";
            return Err(ContextError::entry(&config, "log_level", entry.to_owned(), expected));
        }
        Ok((known, config, core))
    }
}

impl Context {
    /// The operation of a refusal that is the configuration's.
    pub(crate) const EXCLUDED: &'static str = "be used";

    /// Starts from the configuration file that the search finds and the environment of the process.
    pub fn builder() -> ContextBuilder {
        ContextBuilder { sources: Sources::from_process(), reports: false }
    }

    /// All settings, each with its origin.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The settings that concern all transports.
    pub fn core_config(&self) -> &CoreConfig {
        &self.inner.core
    }

    /// All keys there are, those of the loaded plugins included.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// What the workers of this context and their interfaces have done so far, for metrics: docs/metrics.md shows a program that serves them.
    ///
    /// Each worker collects its part in its own thread, inside its next progress; one that sleeps is woken. Blocks until all have done so, for
    /// a second at most: a worker that makes no progress by then has no report. So call it in a thread that drives no worker. Calls of several
    /// threads are served one after the other.
    ///
    /// `None` unless the context was made with [`ContextBuilder::reports`], and in the child of a fork.
    pub fn report(&self) -> Option<Snapshot> {
        self.inner.observers.report()
    }

    /// The configuration file that was read, if any.
    pub fn config_file(&self) -> Option<&Path> {
        self.inner.config_file.as_deref()
    }

    /// The file of measured times that the key `calibration` names, whether or not it is there. `None` if the key is off, or if this
    /// process has privileges that its caller lacks.
    pub fn calibration_file(&self) -> Option<&Path> {
        self.inner.calibration_file.as_deref()
    }

    /// The measured times that selection uses. Reads the file at the first call, and blocks meanwhile. A file that cannot be used is one
    /// warning. One that is only stale has no effect, and is a line at level debug: `uct_info` shows it.
    pub fn calibration(&self) -> &Calibration {
        self.inner.calibration.get_or_init(|| {
            let Some(path) = self.calibration_file() else { return Calibration::default() };
            Calibration::read(path).unwrap_or_else(|error| {
                let remedy = "`uct_info --calibrate` measures again, calibration = off ignores the file";
                let line = format!("{}: {error}; the models are used ({remedy})", path.display());
                match error {
                    CalibrationError::Stale(_) => ucs::log::debug!("{line}"),
                    CalibrationError::Unusable(_) => ucs::log::warn!("{line}"),
                }
                Calibration::default()
            })
        })
    }

    /// Warnings about the configuration, such as unknown keys; already logged.
    pub fn config_warnings(&self) -> &[Warning] {
        &self.inner.warnings
    }

    /// The plugins in use.
    pub fn plugins(&self) -> &[Plugin] {
        &self.inner.plugins
    }

    /// The plugins that failed to load; already logged.
    pub fn load_failures(&self) -> &[LoadFailure] {
        &self.inner.failures
    }

    /// The plugins that were found and left out on purpose.
    pub fn ignored_plugins(&self) -> &[Ignored] {
        &self.inner.ignored
    }

    /// The directories that were searched for plugins, in their order.
    pub fn searched(&self) -> &[Searched] {
        &self.inner.searched
    }

    /// Everything that can be opened, and the reasons for what cannot. Queries the transports once; blocks for as long as
    /// they look for devices. A device in the configuration that does not exist is one warning.
    pub fn discovery(&self) -> &Discovery {
        self.inner.discovery.get_or_init(|| {
            let found = self.discover();
            for kind in DeviceKind::ALL {
                let (list, key) = self.inner.core.devices(kind);
                let own = found.resources.iter().filter(|resource| resource.kind == kind);
                let names: Vec<&str> = own.map(|resource| resource.device.as_str()).collect();
                let what = format!("device of kind {}", kind.name());
                misspelt::warn(&self.inner.config, key, list, &what, &names, "");
            }
            found
        })
    }

    /// Everything that can be opened, whether or not the configuration permits it; see [`Context::excluded`].
    pub fn resources(&self) -> &[Resource] {
        &self.discovery().resources
    }

    /// Whether a loaded transport, a device or both (`tcp/eth0`) have this name, whatever the configuration permits.
    pub fn has_name(&self, name: &str) -> bool {
        self.transport_names().iter().any(|transport| transport == name)
            || self.resources().iter().any(|resource| resource.device == name || resource.to_string() == name)
    }

    /// Why the configuration excludes a resource: key, and value with origin. `None` if it is permitted.
    pub fn excluded(&self, resource: &Resource) -> Option<(&'static str, String)> {
        let core = &self.inner.core;
        let (devices, key) = core.devices(resource.kind);
        let key = if !core.tls.contains(&resource.transport) {
            "tls"
        } else if !devices.contains(&resource.device) {
            key
        } else {
            return None;
        };
        Some((key, self.inner.config.value("", key).map_or_else(String::new, ToString::to_string)))
    }

    /// The names in the key `tls` that no loaded transport has, and why each names none: the setting, and what there is. None if that key names
    /// what is to be left out.
    pub(crate) fn unknown_transports(&self) -> Vec<(&str, String)> {
        let tls = &self.inner.core.tls;
        let mut known = self.transport_names();
        known.sort_unstable();
        known.dedup();
        if tls.is_negated() || known.is_empty() {
            return Vec::new();
        }
        let why = |entry| {
            let value = self.inner.config.value("", "tls").map_or_else(String::new, ToString::to_string);
            let hint = nearest(entry, known.iter().map(String::as_str))
                .map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
            format!("no transport has this name (tls = {value}); there is {}{hint}", known.join(", "))
        };
        tls.unmatched(&known).into_iter().map(|entry| (entry, why(entry))).collect()
    }

    /// Opens the memory domain of a resource, or takes the one that is open already.
    ///
    /// # Errors
    /// The component's refusal.
    pub fn memory_domain(&self, resource: &Resource) -> Result<MemoryDomain, Refused> {
        self.open_md(resource.component_index, &resource.md)
    }

    /// The resource of a transport and a device, by their exact names.
    ///
    /// # Errors
    /// No such transport or device, with the nearest names and, where known, why it is not there.
    pub fn find(&self, transport: &str, device: &str) -> Result<Resource, OpenError> {
        let discovery = self.discovery();
        let of_transport: Vec<&Resource> =
            discovery.resources.iter().filter(|resource| resource.transport == transport).collect();
        if let Some(resource) = of_transport.iter().find(|resource| resource.device == device) {
            return Ok((*resource).clone());
        }
        let absent =
            discovery.absent.iter().find(|absent| absent.transports.iter().any(|name| name == transport));
        if of_transport.is_empty() && absent.is_none() {
            let mut known: Vec<String> = self.transport_names();
            known.sort_unstable();
            let because = self
                .inner
                .failures
                .iter()
                .find(|failure| failure.name == transport)
                .map(ToString::to_string)
                .or_else(|| {
                    self.inner.ignored.iter().find(|it| it.name == transport).map(ToString::to_string)
                })
                .or_else(|| Some(looked_in(&self.inner.searched)));
            return Err(OpenError::NoSuchTransport {
                given: transport.to_owned(),
                nearest: nearest(transport, known.iter().map(String::as_str)).map(str::to_owned),
                known,
                because,
            });
        }
        let known: Vec<String> = of_transport.iter().map(|resource| resource.device.clone()).collect();
        Err(OpenError::NoSuchDevice {
            transport: transport.to_owned(),
            given: device.to_owned(),
            nearest: nearest(device, known.iter().map(String::as_str)).map(str::to_owned),
            known,
            because: absent.map(|absent| absent.refused.to_string()),
        })
    }

    /// The names of all loaded transports.
    pub fn transport_names(&self) -> Vec<String> {
        let components = self.inner.plugins.iter().flat_map(|plugin| &plugin.components);
        components
            .flat_map(|component| &component.transports)
            .map(|transport| transport.name.clone())
            .collect()
    }

    /// All components, with their indices.
    pub(crate) fn components(&self) -> impl Iterator<Item = (usize, &Component)> {
        (0..self.inner.components.len()).map(|index| (index, self.component(index).1))
    }

    pub(crate) fn component(&self, index: usize) -> (&Plugin, &Component) {
        let (plugin, component) = self.inner.components[index];
        let plugin = &self.inner.plugins[plugin];
        (plugin, &plugin.components[component])
    }

    pub(crate) fn with_values<T>(&self, plugin: &Plugin, call: impl FnOnce(*const UctConfig) -> T) -> T {
        PluginValues::new(&self.inner.config, &plugin.config).with(call)
    }

    pub(crate) fn open_md(&self, component_index: usize, name: &str) -> Result<MemoryDomain, Refused> {
        let mut domains = self.inner.domains.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (component_index, name.to_owned());
        let open = domains.get(&key).and_then(Weak::upgrade);
        if let Some(open) = open.filter(|open| !open.is_parents()) {
            return Ok(MemoryDomain { inner: open });
        }
        let (plugin, component) = self.component(component_index);
        let mut raw = std::ptr::null_mut();
        let mut reason = Reason::new();
        let md_open = component.ops.md_open.expect("the loader fills every slot");
        let status = self.with_values(plugin, |values| {
            // SAFETY: the slot goes with the table; name and values are valid for the call, `raw` and `reason` are ours.
            unsafe { md_open(text(name), values, &raw mut raw, reason.as_mut()) }
        });
        reason.check(status, "open the memory domain", || format!("{}/{name}", component.name))?;
        let full_name = format!("{}/{name}", component.name);
        let methods = (self.inner.alloc_methods.clone(), self.inner.core.populate);
        let inner = Arc::new(MdInner::new(component.md_ops, raw, full_name, methods));
        domains.insert(key, Arc::downgrade(&inner));
        Ok(MemoryDomain { inner })
    }

    fn discover(&self) -> Discovery {
        let mut found = Discovery::default();
        for index in 0..self.inner.components.len() {
            let (plugin, component) = self.component(index);
            let absent = |transports: &[&str], refused| Absent {
                component: component.name.clone(),
                transports: transports.iter().map(|&name| name.to_owned()).collect(),
                refused,
            };
            let all: Vec<&str> =
                component.transports.iter().map(|transport| transport.name.as_str()).collect();
            // A component none of whose transports may be used is not even asked.
            if !all.iter().any(|name| self.inner.core.tls.contains(name)) {
                let tls = self.inner.config.value("", "tls").map_or_else(String::new, ToString::to_string);
                let refused = Refused {
                    operation: Context::EXCLUDED,
                    subject: component.name.clone(),
                    status: ucs::Error::UNSUPPORTED,
                    reason: format!("tls = {tls}"),
                };
                found.absent.push(absent(&all, refused));
                continue;
            }
            let names = match self.md_names(plugin, component) {
                Ok(names) => names,
                Err(refused) => {
                    found.absent.push(absent(&all, refused));
                    continue;
                }
            };
            for name in names {
                let md = match self.open_md(index, &name) {
                    Ok(md) => md,
                    Err(refused) => {
                        found.absent.push(absent(&all, refused));
                        continue;
                    }
                };
                for transport_index in 0..component.transports.len() {
                    match self.devices(&md, index, transport_index, &name) {
                        Ok(resources) => found.resources.extend(resources),
                        Err(refused) => {
                            found
                                .absent
                                .push(absent(&[&component.transports[transport_index].name], refused));
                        }
                    }
                }
            }
        }
        found
    }

    fn md_names(&self, plugin: &Plugin, component: &Component) -> Result<Vec<String>, Refused> {
        unsafe extern "C" fn emit(context: *mut c_void, name: UctStr) {
            // SAFETY: `md_names` passes a list of its own as the context.
            let names = unsafe { &mut *context.cast::<Vec<String>>() };
            // SAFETY: a string of a plugin is valid for the call (`UctEmitName`).
            match unsafe { loader_text::name(name, "name of a memory domain", loader::MD_NAME_LIMIT) } {
                Ok(name) => names.push(name),
                Err(problem) => ucs::log::warn!("a memory domain is left out: {problem}"),
            }
        }
        let mut names = Vec::<String>::new();
        let mut reason = Reason::new();
        let query = component.ops.query_mds.expect("the loader fills every slot");
        let status = self.with_values(plugin, |values| {
            // SAFETY: the slot goes with the table; everything passed is ours and valid for the call.
            unsafe { query(values, emit, (&raw mut names).cast(), reason.as_mut()) }
        });
        reason.check(status, "list its memory domains", || component.name.clone())?;
        Ok(names)
    }

    fn devices(
        &self,
        md: &MemoryDomain,
        component_index: usize,
        transport_index: usize,
        md_name: &str,
    ) -> Result<Vec<Resource>, Refused> {
        struct Found {
            template: Resource,
            resources: Vec<Resource>,
        }
        unsafe extern "C" fn emit(context: *mut c_void, device: *const UctDevice) {
            // SAFETY: `devices` passes a `Found` of its own as the context.
            let found = unsafe { &mut *context.cast::<Found>() };
            // SAFETY: the device is valid for the call (`UctEmitDevice`).
            let device = unsafe { device::whole(device) };
            // SAFETY: its strings are as well.
            match unsafe { loader_text::name(device.name, "name of a device", loader::DEVICE_NAME_LIMIT) } {
                Ok(name) => found.resources.push(Resource {
                    device: name,
                    kind: DeviceKind::from_abi(device.kind),
                    numa_node: u32::try_from(device.numa_node).ok(),
                    is_software: device.flags & UCT_DEVICE_IS_SOFTWARE != 0,
                    ..found.template.clone()
                }),
                Err(problem) => {
                    ucs::log::warn!(transport = found.template.transport, "a device is left out: {problem}");
                }
            }
        }
        let (plugin, component) = self.component(component_index);
        let transport = &component.transports[transport_index];
        let mut found = Found {
            template: Resource {
                component: component.name.clone(),
                md: md_name.to_owned(),
                transport: transport.name.clone(),
                device: String::new(),
                kind: DeviceKind::Network,
                numa_node: None,
                is_software: false,
                origin: plugin.origin.clone(),
                component_index,
                transport_index,
            },
            resources: Vec::new(),
        };
        let mut reason = Reason::new();
        let query = transport.ops.query_devices.expect("the loader fills every slot");
        let status = self.with_values(plugin, |values| {
            // SAFETY: the slot goes with the table, the domain is open; everything else is ours and valid for the call.
            unsafe { query(md.inner.plugin_raw(), values, emit, (&raw mut found).cast(), reason.as_mut()) }
        });
        reason.check(status, "list its devices", || transport.name.clone())?;
        debug_assert_eq!(status, UCT_OK);
        Ok(found.resources)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("plugins", &self.inner.plugins).finish_non_exhaustive()
    }
}
