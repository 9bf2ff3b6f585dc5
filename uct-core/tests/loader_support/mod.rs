//! What the tests of the loader share: a host, plugins compiled on the spot, and a watchdog.
#![allow(dead_code, reason = "each test uses its part")]

use std::{
    ffi::c_void,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use tempfile::TempDir;
use uct_abi::*;
use uct_core::loader::{LoadFailure, LoadFailureKind, Loaded, LoaderSettings, Plugin, load};

/// The macros that make `tests/plugins/bad.c` wrong; see there.
pub type Macros<'a> = &'a [&'a str];

/// A directory of plugins.
pub struct Modules {
    pub directory: TempDir,
    _watchdog: Watchdog,
}

impl Modules {
    /// An empty one. While it is there, a test that takes longer than a minute is ended.
    pub fn new() -> Self {
        Modules { directory: tempfile::tempdir().expect("a temporary directory"), _watchdog: Watchdog::new() }
    }

    /// The path of the file of the plugin `name`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("libuct_{name}.so"))
    }

    /// Compiles `tests/plugins/bad.c` as the plugin `name`.
    pub fn bad(&self, name: &str, macros: Macros<'_>) -> &Self {
        let path = self.path(name);
        let mut options = vec![format!("-DNAME={name}")];
        options.extend(macros.iter().map(|define| format!("-D{define}")));
        compile(&[plugins().join("bad.c")], &options, &path);
        self
    }

    /// Adds the transport in C.
    pub fn cself(&self) -> &Self {
        fs::write(self.path("cself"), cself()).expect("the directory is writable");
        self
    }

    /// Copies the library of panicking plugins, which lies beside the test, as the plugin `name`.
    pub fn panicking(&self, name: &str) -> &Self {
        let test = std::env::current_exe().expect("the test's own path");
        let library = test.with_file_name("libpanics.so");
        fs::copy(&library, self.path(name))
            .unwrap_or_else(|error| panic!("{} was not built: {error}", library.display()));
        self
    }

    /// Settings that search this directory alone.
    pub fn settings(&self) -> LoaderSettings {
        LoaderSettings {
            module_dirs: vec![self.directory.path().to_owned()],
            search_standard: false,
            ..LoaderSettings::default()
        }
    }

    /// Loads what is in it, without anything built in.
    pub fn load(&self) -> Loaded {
        load(&self.settings(), &[], &HOST)
    }

    /// Loads what is in it: the one failure, with a good plugin beside it that has to be there nevertheless.
    pub fn only_failure(&self) -> LoadFailure {
        fs::write(self.path("good"), good()).expect("the directory is writable");
        let loaded = self.load();
        assert_eq!(names(&loaded), ["good"]);
        let [failure] = <[LoadFailure; 1]>::try_from(loaded.failures).expect("one failure");
        failure
    }

    /// The kind of [`only_failure`](Self::only_failure), once it was checked that its message names the plugin's file.
    pub fn only_failure_of(&self, name: &str) -> LoadFailureKind {
        let failure = self.only_failure();
        let text = failure.to_string();
        assert_eq!(failure.name, name, "{text}");
        let path =
            fs::canonicalize(self.directory.path()).expect("the directory").join(format!("libuct_{name}.so"));
        assert_eq!(failure.path.as_ref(), Some(&path), "{text}");
        assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
        assert!(!text.contains('\n'), "{text}");
        assert!(failure.hint().len() > 10);
        failure.kind
    }
}

/// The names of the plugins that are ready.
pub fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.plugins.iter().map(|plugin| plugin.name.as_str()).collect()
}

/// The plugin of this name.
#[track_caller]
pub fn plugin<'a>(loaded: &'a Loaded, name: &str) -> &'a Plugin {
    let found = loaded.plugins.iter().find(|plugin| plugin.name == name);
    found.unwrap_or_else(|| panic!("{name} is not there; failures: {:?}", loaded.failures))
}

/// The library of a plugin that is not bad, compiled once.
fn good() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| fs::read(Modules::new().bad("good", &[]).path("good")).expect("it was compiled"))
}

/// The library of the transport in C, compiled once.
fn cself() -> &'static [u8] {
    static CSELF: OnceLock<Vec<u8>> = OnceLock::new();
    CSELF.get_or_init(|| {
        let modules = Modules::new();
        let sources = ["plugin", "iface", "ep"].map(|file| plugins().join(format!("cself/{file}.c")));
        compile(&sources, &[], &modules.path("cself"));
        fs::read(modules.path("cself")).expect("it was compiled")
    })
}

/// `tests/plugins` of the workspace.
pub fn plugins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/plugins")
}

/// Compiles a shared library with the C compiler of the system, with every warning an error.
pub fn compile(sources: &[PathBuf], options: &[String], output: &Path) {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let result = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-missing-field-initializers"])
        .args(["-g", "-O1", "-shared", "-fPIC", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/include"))
        .arg("-o")
        .arg(output)
        .args(sources)
        .args(options)
        .output()
        .unwrap_or_else(|error| panic!("a C compiler is needed ({compiler:?}, or set CC): {error}"));
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
}

/// Calls something that writes a reason, and answers what it wrote.
pub fn with_reason<T>(call: impl FnOnce(*mut UctText) -> T) -> (T, String) {
    let mut buffer = [0_u8; 256];
    let mut reason = UctText { data: buffer.as_mut_ptr(), capacity: buffer.len(), length: 0 };
    let answer = call(&raw mut reason);
    (answer, String::from_utf8_lossy(&buffer[..reason.length]).into_owned())
}

/// A string for the boundary.
pub const fn text(words: &'static str) -> UctStr {
    UctStr { data: words.as_ptr(), length: words.len() }
}

/// A host without a worker: it logs to nobody, and the rest is not supported.
pub static HOST: UctHost = {
    unsafe extern "C" fn log(_record: *const UctLogRecord) {}
    unsafe extern "C" fn log_level() -> u32 {
        UCT_LOG_TRACE
    }
    unsafe extern "C" fn now() -> u64 {
        0
    }
    unsafe extern "C" fn async_add_fd(
        _: *mut UctWorker,
        _: i32,
        _: u32,
        _: UctAsyncHandler,
        _: *mut c_void,
        _: *mut u64,
    ) -> UctStatus {
        UCT_ERR_UNSUPPORTED
    }
    unsafe extern "C" fn async_modify(_: *mut UctWorker, _: u64, _: u32) -> UctStatus {
        UCT_ERR_UNSUPPORTED
    }
    unsafe extern "C" fn async_add_timer(
        _: *mut UctWorker,
        _: u64,
        _: UctAsyncHandler,
        _: *mut c_void,
        _: *mut u64,
    ) -> UctStatus {
        UCT_ERR_UNSUPPORTED
    }
    unsafe extern "C" fn async_remove(_: *mut UctWorker, _: u64) -> UctStatus {
        UCT_ERR_UNSUPPORTED
    }
    unsafe extern "C" fn on_worker(_: *mut UctWorker) {}
    unsafe extern "C" fn progress_add(
        _: *mut UctWorker,
        _: UctProgress,
        _: *mut c_void,
        _: *mut u64,
    ) -> UctStatus {
        UCT_ERR_UNSUPPORTED
    }
    unsafe extern "C" fn progress_request(_: *mut UctHostIface) {}
    unsafe extern "C" fn progress_remove(_: *mut UctWorker, _: u64) -> UctStatus {
        UCT_ERR_UNSUPPORTED
    }
    UctHost {
        size: size_of::<UctHost>(),
        abi_version: UCT_ABI_MAJOR << 16 | UCT_ABI_MINOR,
        log,
        log_level,
        now,
        async_add_fd,
        async_modify,
        async_add_timer,
        async_remove,
        async_block: on_worker,
        async_unblock: on_worker,
        progress_add,
        progress_remove,
        worker_wake: on_worker,
        progress_request,
    }
};

/// Ends the process if it is not dropped within a minute.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub fn new() -> Self {
        let (alive, dropped) = mpsc::channel::<()>();
        thread::spawn(move || {
            if dropped.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a test of the loader hangs");
                std::process::abort();
            }
        });
        Watchdog { _alive: alive }
    }
}
