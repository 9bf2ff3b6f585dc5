//! The configuration of the core, and the way of a plugin's values across the boundary.

#![forbid(unsafe_code)]

use std::env;
use std::path::PathBuf;

use ucs::config::{Config, Section, Sources};
use ucs::memory::allocate::Method;
use ucs::sys::trust;
use ucs::units::{MemSize, NameList};
use uct_abi::{UctConfig, UctConfigValue, UctStr};

use crate::resource::DeviceKind;

ucs::config_enum! {
    /// What a fall back to a slower class of transport is.
    pub enum Fallback {
        /// An error.
        Error = "error",
        /// A warning, once per choice.
        Warn = "warn",
        /// Nothing worth a word.
        Allow = "allow",
    }
}

ucs::config_enum! {
    /// How the asynchronous context of a worker runs its handlers.
    pub enum AsyncMode {
        /// From progress; no thread.
        Poll = "poll",
        /// In a thread.
        Thread = "thread",
        /// As `thread`; the name of UCX.
        ThreadSpinlock = "thread_spinlock",
        /// As `thread`; the name of UCX.
        ThreadMutex = "thread_mutex",
    }
}

ucs::config_struct! {
    /// What concerns all transports.
    pub struct CoreConfig in "" {
        /// Transports that may be used, as names or patterns; a leading ^ excludes those named instead.
        pub tls: NameList = "all",
        /// Network devices that may be used: `eth0`, `mlx5_0:1`, or patterns; a leading ^ excludes.
        pub net_devices: NameList = "all",
        /// Shared memory devices that may be used.
        pub shm_devices: NameList = "all",
        /// Accelerator devices that may be used.
        pub acc_devices: NameList = "all",
        /// Loopback devices that may be used.
        pub self_devices: NameList = "all",
        /// Directories that are searched for transport plugins (libuct_NAME.so), separated by commas or colons, ahead of the standard ones.
        #[security = true]
        pub module_dir: Vec<String> = "",
        /// Users, by number, whose plugins are loaded besides those of root, of this user, and of the program's owner.
        #[security = true]
        pub module_owners: Vec<String> = "",
        /// Plugins that are loaded, built in or from a file.
        #[security = true]
        pub modules: NameList = "all",
        /// Plugin files that take the place of a built-in transport of the same name.
        #[security = true]
        pub module_replace: NameList = "^all",
        /// Transports or devices of which one has to be chosen; selection fails rather than take another.
        pub require: NameList = "all",
        /// What a fall back to a slower class of transport is: an error, one warning, or nothing.
        pub fallback: Fallback = "warn",
        /// File with measured times of operations, which `uct_info --calibrate` writes and selection uses in place of the models: a path,
        /// auto (uct/calibration.toml in $XDG_CACHE_HOME or ~/.cache), or off.
        #[security = true]
        pub calibration: String = "auto",
        /// Endpoints that the program expects to have on an interface. Selection passes over a transport that serves fewer
        /// (`max_num_eps` of rc_verbs, `max_connections` of ud_verbs), and counts what each endpoint adds to the latency.
        pub num_eps: u32 = "1" in 1..=1_000_000_000,
        /// How memory is allocated, the first that works: md (the transport itself), thp (transparent huge pages), heap,
        /// mmap, huge (the system's pool of huge pages).
        pub alloc_prio: Vec<String> = "md,thp,heap,mmap,huge",
        /// Makes the pages of memory when it is allocated, and maps those of a peer's shared memory when its key is first used, so that the first
        /// transfers do not wait for them. The pages are the largest that the system gives. With no, each is made at its first access.
        pub populate: bool = "yes",
        /// Messages of `uct-net` of at least so many bytes are read by the receiver from the sender's memory in one operation, over a
        /// transport whose gets are emulated those of 512 KiB to 1 MiB. Others, and all with inf, are sent in parts.
        pub rndv_thresh: MemSize = "256k",
        /// Most verbose messages that are printed to standard error: off, error, warn, info, debug, trace, or a filter such as
        /// `warn,uct_tcp=debug`. A program that installs a subscriber of `tracing` decides itself what is printed.
        pub log_level: String = "warn",
        /// Lines a second that an interface logs about messages without a handler; of all others their number is logged.
        #[security = true]
        pub log_rate: u32 = "5" in 1..=1_000_000,
        /// How the asynchronous context of a worker runs its handlers: from progress (poll), or in a thread, whose names in UCX are accepted as well.
        pub async_mode: AsyncMode = "poll",
        /// Lets programs of this user see what this process has done so far: `uct_info --attach PID`. Costs a thread and a unix socket in a
        /// directory of this user alone, and nothing while data are sent.
        #[security = true]
        pub attach: bool = "no",
        /// Measures how long each operation takes from its post to its completion: `uct_info --attach PID`, `Context::report`,
        /// `Iface::latencies`. Costs two readings of the clock for each operation in flight.
        pub latency_histograms: bool = "no",
    }
}

/// One way to allocate memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocMethod {
    /// The memory domain itself.
    Md,
    /// The host, and then the memory is registered.
    Host(Method),
}

impl CoreConfig {
    /// The directories of `module_dir`, of which each entry may be several, as in `PATH`.
    pub(crate) fn module_dirs(&self) -> Vec<PathBuf> {
        let directories = self.module_dir.iter().flat_map(env::split_paths);
        directories.filter(|directory| !directory.as_os_str().is_empty()).collect()
    }

    /// The devices of a kind that may be used, and the key that permits them.
    pub(crate) fn devices(&self, kind: DeviceKind) -> (&NameList, &'static str) {
        match kind {
            DeviceKind::Network => (&self.net_devices, "net_devices"),
            DeviceKind::SharedMemory => (&self.shm_devices, "shm_devices"),
            DeviceKind::Accelerator => (&self.acc_devices, "acc_devices"),
            DeviceKind::Myself => (&self.self_devices, "self_devices"),
        }
    }

    /// What of `log_level` is neither a level nor a filter: most likely a level that is misspelt, and would show nothing.
    pub(crate) fn odd_log_level(&self) -> Option<&str> {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let is_level = |entry: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(entry));
        // A filter names a target: with a level behind it, or one of our crates, all of which is shown.
        let is_filter =
            |entry: &str| entry.contains(['=', '[']) || entry.starts_with("uct") || entry.starts_with("ucs");
        let mut entries = self.log_level.split(',').map(str::trim);
        entries.find(|entry| !entry.is_empty() && !is_level(entry) && !is_filter(entry))
    }

    /// The file of the key `calibration`. A program with privileges that its caller lacks has none: the caller would decide on the transport.
    pub(crate) fn calibration_file(&self, sources: &Sources) -> Option<PathBuf> {
        match self.calibration.as_str() {
            _ if trust::is_privileged() => None,
            "" | "off" => None,
            "auto" => Some(sources.cache_directory()?.join("uct/calibration.toml")),
            path => Some(PathBuf::from(path)),
        }
    }

    /// The users of `module_owners`; the entry that is no number.
    pub(crate) fn owners(&self) -> Result<Vec<u32>, String> {
        self.module_owners.iter().map(|entry| entry.parse().map_err(|_| entry.to_owned())).collect()
    }

    /// The methods of `alloc_prio`; the name that is none.
    pub(crate) fn alloc_methods(&self) -> Result<Vec<AllocMethod>, String> {
        let method = |name: &String| match name.as_str() {
            "md" => Ok(AllocMethod::Md),
            name => Method::from_name(name).map(AllocMethod::Host).ok_or_else(|| name.to_owned()),
        };
        self.alloc_prio.iter().map(method).collect()
    }
}

/// Variables that begin with `UCT_` and are no configuration.
pub(crate) const FOREIGN_VARIABLES: &[&str] =
    &["UCT_BUILD_PLUGIN_DIR", "UCT_CONFIG", "UCT_FI_*", "UCT_NET_KEY_FILE", "UCT_TEST_*"];

/// The key of all transports that plugins get besides their own.
const POPULATE: (&str, &str) = ("", "populate");

/// The values of a plugin's sections and of [`POPULATE`], in the form that crosses the boundary.
pub(crate) struct PluginValues<'a> {
    values: Vec<UctConfigValue>,
    config: std::marker::PhantomData<&'a Config>,
}

impl<'a> PluginValues<'a> {
    /// Collects the values of `sections`.
    pub(crate) fn new(config: &'a Config, sections: &'a [Section]) -> PluginValues<'a> {
        let own = sections
            .iter()
            .flat_map(|section| section.fields.iter().map(|field| (&*section.name, &*field.name)));
        let value = |(section, name): (&'a str, &'a str)| {
            let setting = config.value(section, name)?;
            let parts = setting.as_abi_parts();
            Some(UctConfigValue {
                section: text(section),
                name: text(name),
                text: text(&setting.text),
                integer: parts.integer,
                real: parts.real,
            })
        };
        let values = own.chain([POPULATE]).filter_map(value).collect();
        PluginValues { values, config: std::marker::PhantomData }
    }

    /// Hands the table to a call.
    pub(crate) fn with<T>(&self, call: impl FnOnce(*const UctConfig) -> T) -> T {
        let table = UctConfig {
            size: size_of::<UctConfig>(),
            values: self.values.as_ptr(),
            count: self.values.len(),
        };
        call(&raw const table)
    }
}

/// A string for the boundary; valid as long as `words` is.
pub(crate) fn text(words: &str) -> UctStr {
    UctStr { data: words.as_ptr(), length: words.len() }
}
