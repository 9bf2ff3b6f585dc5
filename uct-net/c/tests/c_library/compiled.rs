//! Programs in C, compiled against the library as it is installed: under its own name, with the link for linkers.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::skip::skip;

pub const NAME: &str = "libuct-net.so.0";
pub const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The folder of this crate.
pub fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library, as cargo has built it.
pub fn library() -> PathBuf {
    std::env::current_exe().expect("this program has a path").with_file_name("libuct_net_c.so")
}

/// A directory with the library, and programs.
pub struct Place {
    pub directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let directory = tempfile::tempdir().expect("a directory");
        symlink(library(), directory.path().join(NAME)).expect("a link");
        symlink(NAME, directory.path().join("libuct-net.so")).expect("a link");
        Place { directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a source text; the program.
    pub fn compile_text(&self, name: &str, text: &str) -> Option<PathBuf> {
        let source = self.path().join(format!("{name}.c"));
        fs::write(&source, text).expect("a source");
        self.compile(&source)
    }

    /// Compiles a source; the program, or nothing where there is no compiler.
    pub fn compile(&self, source: &Path) -> Option<PathBuf> {
        let program = self.path().join(source.file_stem().expect("a name"));
        let is_cxx = source.extension().is_some_and(|extension| extension == "cc");
        let (mut compile, standard) = if is_cxx {
            (compiler("CXX", "c++")?, "-std=c++11")
        } else {
            (compiler("CC", "cc")?, "-std=c99")
        };
        compile.arg(standard).args(WARNINGS).arg("-o").arg(&program).arg(source);
        compile.arg("-L").arg(self.path()).arg("-luct-net");
        compile.arg(format!("-Wl,-rpath,{}", self.path().display()));
        run(&mut compile);
        Some(program)
    }
}

/// A compiler that has the header's directory; a skip where there is none.
pub fn compiler(variable: &str, default: &str) -> Option<Command> {
    let name = std::env::var_os(variable).unwrap_or_else(|| OsString::from(default));
    if Command::new(&name).arg("--version").output().is_err() {
        skip(default, format_args!("there is no compiler {}, and {variable} names no other", name.display()));
        return None;
    }
    let mut compiler = Command::new(name);
    compiler.arg("-I").arg(sources().join("include"));
    Some(compiler)
}

/// Runs a command that has to succeed; what it has printed.
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}
