//! The libraries as an installation has them, and pairs of programs that use them.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../../common/testing/process.rs"]
pub mod process;

pub use process::Ended;
use process::{Running, start};

/// A user without any rights, whom a test that runs as root becomes.
const NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--"];
/// How long a server may take until it listens, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory with the libraries, which everybody may read.
pub struct Libraries(TempDir);

impl Libraries {
    /// Linked from what cargo made of this package's dependencies.
    pub fn new() -> Libraries {
        let place = TempDir::new().expect("a temporary directory");
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).expect("its owner");
        let built = std::env::current_exe().expect("this program");
        let built = built.parent().expect("its directory");
        let link = concat!(env!("CARGO_MANIFEST_DIR"), "/verbs/link");
        let library = place.path().join("libibverbs.so.1");
        let linked = Command::new(link).arg(archive(built)).arg(&library).status().expect("a linker");
        assert!(linked.success(), "{link}: {linked}");
        let files = "libsoftverbs_files.so";
        std::fs::copy(built.join(files), place.path().join(files)).expect("cargo made the library");
        Libraries(place)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A program with the device, as `softverbs run` starts it.
    pub fn run(&self, options: &[&str], line: &[&str]) -> Command {
        let mut command = process::command(env!("CARGO_BIN_EXE_softverbs"), &["run"]);
        command.arg("--libraries").arg(self.path()).args(options).arg("--");
        command.args(unprivileged()).args(line).env_remove("LD_LIBRARY_PATH").current_dir("/");
        command
    }
}

/// The archive that was made last: others may be left of another set of features.
fn archive(built: &Path) -> PathBuf {
    let entries = std::fs::read_dir(built).expect("cargo's directory").flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libsoftverbs_verbs") && name.ends_with(".a")
    };
    let time = |path: &PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    entries.filter(named).max_by_key(time).expect("cargo made the archive")
}

/// What a command begins with to be of no privileges.
pub fn unprivileged() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() { &NOBODY } else { &[] }
}

/// Whether a program is installed. If it is not, the test is skipped.
pub fn is_installed(program: &str, package: &str) -> bool {
    let is_there = Path::new("/usr/bin").join(program).exists();
    if !is_there {
        super::skip::skip(package, format_args!("there is no {program}, of the package {package}"));
    }
    is_there
}

/// A command of no privileges, with a variable that is set by hand for the last program of its line.
pub fn with_variable(line: &[&str], name: &str, value: &Path) -> Command {
    let mut setting = OsString::from(name);
    setting.push("=");
    setting.push(value);
    let mut words = unprivileged().iter().chain(&["env"]);
    let mut command = process::command(words.next().expect("env at least"), &[]);
    command.args(words).arg(setting).args(line);
    command.env_remove("LD_LIBRARY_PATH").current_dir("/");
    command
}

/// A server and its client on one port, which `{}` stands for in the options; how both ended.
pub fn talk(line: &[&str], mut program: impl FnMut(&[&str]) -> Command) -> (Ended, Ended) {
    let port = free_port();
    let text = port.to_string();
    let mut line: Vec<&str> =
        line.iter().map(|word| if *word == "{}" { text.as_str() } else { word }).collect();
    let server = start(&mut program(&line));
    wait_for(port, server.id());
    line.push("127.0.0.1");
    let client = start(&mut program(&line)).end();
    (server.end(), client)
}

/// How often perftest is run at most.
const ATTEMPTS: usize = 3;

/// As [`talk`]; both succeed. What the client printed. perftest is run again where it fails at its end, because other work has disturbed its look at
/// the processor's clock.
pub fn succeed(line: &[&str], mut program: impl FnMut(&[&str]) -> Command) -> String {
    let is_disturbed = |side: &Ended| format!("{side:?}").contains("Can't produce a report");
    let mut attempts = (0..ATTEMPTS).map(|_| talk(line, &mut program));
    let (server, client) = attempts
        .find(|(server, client)| !is_disturbed(server) && !is_disturbed(client))
        .unwrap_or_else(|| panic!("{line:?}: perftest produced no report, {ATTEMPTS} times"));
    assert!(
        client.code == Some(0) && server.code == Some(0),
        "{line:?}\nclient: {client:?}\nserver: {server:?}"
    );
    client.stdout
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Waits until a server listens: the kernel lists it, and nobody has to connect.
fn wait_for(port: u16, server: u32) {
    let deadline = Instant::now() + LIMIT;
    let suffix = format!(":{port:04X}");
    let listens = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&suffix)) && words.nth(1) == Some("0A")
    };
    loop {
        let lists =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
        if lists.iter().any(|list| list.lines().any(listens)) {
            return;
        }
        assert!(Instant::now() < deadline, "the server does not listen on {port}");
        // The caller reports a server that failed when it waits for its end.
        let stat = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program to its end, with variables that are set by hand.
pub fn by_hand(line: &[&str], variables: &[(&str, &Path)]) -> Ended {
    let line: Vec<&str> = unprivileged().iter().chain(line).copied().collect();
    let mut command = process::command(line[0], &line[1..]);
    command.env_remove("LD_LIBRARY_PATH").current_dir("/").stdin(Stdio::null());
    // The last program of the line is the first that has them.
    command.envs(variables.iter().copied());
    let running: Running = start(&mut command);
    running.end()
}
