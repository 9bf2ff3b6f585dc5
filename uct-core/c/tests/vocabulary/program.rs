//! Compiles programs in C with the headers, links them with the library, and runs them.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip::skip;

/// How long a program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The name that programs are linked to.
const LIBRARY: &str = "libuct-compat.so.0";

/// A file of this package.
pub fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The library, which cargo has made beside this program.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program's path");
    program.with_file_name("libuct_compat.so")
}

/// Whether cargo has made the plugin of a transport beside this program.
#[track_caller]
pub fn has_plugin(transport: &str) -> bool {
    let plugin = library().with_file_name(format!("libuct_{transport}.so"));
    if !plugin.exists() {
        skip(transport, format_args!("{} is not there: cargo build", plugin.display()));
    }
    plugin.exists()
}

/// The C compiler, or that for C++.
pub fn compiler(variable: &str, usual: &str) -> OsString {
    std::env::var_os(variable).unwrap_or_else(|| usual.into())
}

/// Whether a compiler is there.
#[track_caller]
pub fn is_here(compiler: &OsString) -> bool {
    let answer = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_here = answer.is_ok_and(|status| status.success());
    if !is_here {
        skip("cc", format_args!("{} is not there: install gcc, or set CC or CXX", compiler.display()));
    }
    is_here
}

/// A compiled program, and a folder with what it needs.
pub struct Program {
    folder: TempDir,
    path: PathBuf,
}

impl Program {
    /// Compiles a source file of this package; `None` without a compiler.
    #[track_caller]
    pub fn compile(file: &str) -> Option<Program> {
        let compiler = compiler("CC", "cc");
        if !is_here(&compiler) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("program");
        symlink(library(), folder.path().join(LIBRARY)).expect("a link");
        let mut compile = Command::new(&compiler);
        compile.args(["-std=gnu99", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I"]);
        compile.arg(source("include/uct-compat")).arg("-o").arg(&path).arg(source(file));
        compile.arg("-L").arg(folder.path()).arg(format!("-l:{LIBRARY}"));
        let output = compile.output().expect("the compiler runs");
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        Some(Program { folder, path })
    }

    /// The program, with the plugins that cargo has left beside the library. Its verbs device is one in software.
    pub fn command(&self) -> Command {
        let mut program = Command::new(&self.path);
        program.env("LD_LIBRARY_PATH", self.folder.path());
        program.env("UCT_MODULE_DIR", library().parent().expect("a directory"));
        program.env("UCT_CALIBRATION", "off").env("UCT_IB_LIBRARY", "soft").env("SOFTVERBS_NAME", "soft0");
        program
    }

    /// What it prints, if it ends well.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        finish(start(self.command().args(arguments)), &format!("{arguments:?}"))
    }
}

/// Starts a program whose output is read.
pub fn start(program: &mut Command) -> Child {
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits for its end, which is to be a good one; returns what it printed.
#[track_caller]
pub fn finish(mut program: Child, what: &str) -> String {
    let end = Instant::now() + LIMIT;
    let status = loop {
        match program.try_wait().expect("its status") {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if status.is_none() {
        program.kill().expect("it is ended");
    }
    let (mut printed, mut errors) = (String::new(), String::new());
    program.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
    program.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
    let ended_well = status.is_some_and(|status| status.success());
    assert!(ended_well, "{what}: {status:?} (none: no end in {LIMIT:?})\n{printed}{errors}");
    printed
}
