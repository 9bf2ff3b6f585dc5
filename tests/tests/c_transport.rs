//! The suite against transports that are written in C and compiled here: `plugins/cself`, which has nearly all there is within
//! one process, and `plugins/cmsg`, which has messages between processes and nothing else.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use uct_conformance::Config;

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
    let config = Config::from_environment().map(|config| Config {
        transports: "cself,cmsg".parse().expect("a list of names"),
        require: PLUGINS.iter().map(|(plugin, _)| (*plugin).to_owned()).collect(),
        module_dirs: vec![directory.path().to_owned()],
        built_in: false,
        ..config
    });
    uct_conformance::run(config)
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
