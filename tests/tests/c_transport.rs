//! The suite against a transport that is written in C and compiled here (`plugins/cself`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use uct_conformance::Config;

fn main() -> ExitCode {
    let directory = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => return failed(&format!("no temporary directory: {error}")),
    };
    if let Err(problem) = compile(directory.path()) {
        return failed(&problem);
    }
    let config = Config::from_environment().map(|config| Config {
        transports: "cself".parse().expect("a list of names"),
        require: vec!["cself".to_owned()],
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

/// Compiles the plugin with the C compiler of the system, with every warning an error.
fn compile(directory: &Path) -> Result<(), String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: [PathBuf; 3] =
        ["plugin", "iface", "ep"].map(|file| here.join(format!("plugins/cself/{file}.c")));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-missing-field-initializers"])
        .args(["-g", "-O1", "-shared", "-fPIC", "-I"])
        .arg(here.join("../uct-core/abi/include"))
        .arg("-o")
        .arg(directory.join("libuct_cself.so"))
        .args(sources)
        .output()
        .map_err(|error| format!("a C compiler is needed ({compiler:?}, or set CC): {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
