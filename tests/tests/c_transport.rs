//! The suite against transports that are written in C and compiled here: `plugins/cself`, which has nearly all there is within
//! one process, and `plugins/cmsg`, which has messages between processes, of which the host composes put, get and atomics.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use uct_conformance::Config;
use uct_core::{Capabilities, Context, Worker};

/// Each plugin and its files.
const PLUGINS: [(&str, &[&str]); 2] = [("cself", &["plugin", "iface", "ep"]), ("cmsg", &["plugin"])];

fn main() -> ExitCode {
    let directory = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => return failed(&format!("no temporary directory: {error}")),
    };
    for (plugin, sources) in PLUGINS {
        if let Err(problem) = compile(directory.path(), plugin, sources) {
            return failed(&problem);
        }
    }
    if let Err(problem) = check_composed(directory.path()) {
        return failed(&problem);
    }
    let config = Config::from_environment().map(|config| Config {
        transports: "cself,cmsg".parse().expect("a list of names"),
        require: PLUGINS.iter().map(|(plugin, _)| (*plugin).to_owned()).collect(),
        module_dirs: vec![directory.path().to_owned()],
        built_in: false,
        ..config
    });
    uct_conformance::run(config)
}

/// Whether all operations are there on the transport that has messages only: without them their cases would be left out.
fn check_composed(directory: &Path) -> Result<(), String> {
    let wanted = Capabilities::PUT_SHORT
        | Capabilities::PUT_BCOPY
        | Capabilities::PUT_ZCOPY
        | Capabilities::GET_SHORT
        | Capabilities::GET_BCOPY
        | Capabilities::GET_ZCOPY
        | Capabilities::AM_ZCOPY;
    let builder = Context::builder().set("module_dir", directory.display().to_string());
    let context = builder.build().map_err(|error| error.to_string())?;
    let worker = Worker::new(&context).map_err(|error| error.to_string())?;
    let iface = worker.open("cmsg", "memory").map_err(|error| error.to_string())?;
    let (has, emulated) = (iface.capabilities(), iface.emulated());
    if !has.contains(wanted | Capabilities::PENDING) || emulated & wanted != wanted {
        return Err(format!("cmsg has {has:?}, of which {emulated:?} are emulated"));
    }
    for atomics in [iface.attributes().atomic32, iface.attributes().atomic64] {
        if atomics.post == 0 || atomics.fetch == 0 || atomics.fetch_emulated != atomics.fetch {
            return Err("cmsg has no atomics, or native ones".to_owned());
        }
    }
    Ok(())
}

fn failed(problem: &str) -> ExitCode {
    eprintln!("{problem}");
    ExitCode::FAILURE
}

/// Compiles a plugin with the C compiler of the system, with every warning an error.
fn compile(directory: &Path, plugin: &str, sources: &[&str]) -> Result<(), String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<PathBuf> =
        sources.iter().map(|file| here.join(format!("plugins/{plugin}/{file}.c"))).collect();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-missing-field-initializers"])
        .args(["-g", "-O1", "-shared", "-fPIC", "-I"])
        .arg(here.join("../uct-core/abi/include"))
        .arg("-o")
        .arg(directory.join(format!("libuct_{plugin}.so")))
        .args(sources)
        .output()
        .map_err(|error| format!("a C compiler is needed ({compiler:?}, or set CC): {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
