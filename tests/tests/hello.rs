//! `uct_hello_world` between two processes over tcp: every flavour, linkage and address family, and sizes from nothing to
//! the largest; and bad input, each with a status and one line that says what was expected.

#[path = "../../ucs/testing/port.rs"]
mod port;
#[path = "support/programs.rs"]
mod programs;

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use port::free_port;
use uct_core::{Context, Worker};

type Outcome = Result<(), Failed>;

/// Largest message, so that the largest string is one of bearable length.
const LARGEST: &str = "1m";
/// How long a run may take; the program gives up by itself ahead of that.
const LIMIT: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for flavour in ["-i", "-b", "-z"] {
        for linkage in ["static", "plugin"] {
            for family in ["IPv4", "IPv6"] {
                let name = format!("hello over tcp with {flavour}, {linkage}, over {family}, of every size");
                let trial = Trial::test(name, move || every_size(flavour, linkage, family));
                trials.push(trial.with_ignored_flag(family == "IPv6" && !has_ipv6()));
            }
        }
    }
    trials.push(Trial::test(
        "without -t and -d the nearest transport is taken and named with the reason",
        chosen,
    ));
    let apart = Trial::test(
        "where a peer did not prove that it is of this machine the choice is tcp, and the explanation says why",
        fallen_back,
    );
    trials.push(apart.with_ignored_flag(!may_make_namespaces()));
    for (name, run) in BAD_INPUT {
        trials.push(Trial::test(format!("{name} is an error that says what was expected"), *run));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Some machines have it switched off.
fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// Network namespaces take privileges, which root lacks in some containers, and the programs that fill them.
fn may_make_namespaces() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(["--net", "sh", "-c", "ip link set lo up && ip link add near type veth peer name far"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The program.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::build(&["uct_hello_world"]).join("uct_hello_world"))
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env("UCT_TCP_MAX_MESSAGE", LARGEST).current_dir(std::env::temp_dir());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that is killed if it was not waited for.
struct Running(Option<Child>);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(Some(command.spawn().expect("the program starts")))
    }

    fn finish(mut self) -> Output {
        let child = self.0.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        let (done, timeout) = std::sync::mpsc::channel::<()>();
        let watch = thread::spawn(move || {
            if timeout.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        let output = child.wait_with_output().expect("the program ends");
        drop(done);
        watch.join().expect("the watch");
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs server and client with common arguments and variables; what both printed.
fn pair(arguments: &[&str], address: &str, variables: &[(&str, &str)]) -> (Output, Output) {
    let port = free_port().to_string();
    let mut common = vec!["-p", &port, "--timeout", "20"];
    common.extend_from_slice(arguments);
    let server = Running::start(command(&common).envs(variables.iter().copied()));
    common.extend_from_slice(&["-n", address]);
    let client = Running::start(command(&common).envs(variables.iter().copied()));
    // Both are read at the same time: one that waits for a reader keeps the other waiting, too.
    let server = thread::spawn(move || server.finish());
    let client = client.finish();
    (server.join().expect("the reader of the server"), client)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn every_size(flavour: &str, linkage: &str, family: &str) -> Outcome {
    let own = std::env::current_exe()?;
    let plugins = own.parent().ok_or("no directory")?.display().to_string();
    let mut variables = vec![("UCT_MODULE_DIR", plugins.as_str())];
    variables.push(("UCT_MODULE_REPLACE", if linkage == "plugin" { "all" } else { "^all" }));
    let (address, option) = if family == "IPv6" { ("::1", Some("-6")) } else { ("127.0.0.1", None) };
    variables.push(("UCT_TCP_AF_PRIO", if family == "IPv6" { "inet6" } else { "inet" }));
    for size in [0, 1, 8, 9, 100, 8192, largest(flavour)?] {
        let size = size.min(largest(flavour)?).to_string();
        let mut arguments = vec![flavour, "-t", "tcp", "-d", "lo", "-s", &size];
        arguments.extend(option);
        let (server, client) = pair(&arguments, address, &variables);
        let (printed, errors) = (text(&server.stdout), text(&server.stderr) + &text(&client.stderr));
        if !server.status.success() || !client.status.success() {
            return Err(format!("{size} bytes: {} and {}: {errors}", server.status, client.status).into());
        }
        let function = match flavour {
            "-i" => "am_short",
            "-b" => "am_bcopy",
            _ => "am_zcopy",
        };
        let expected: String = ('A'..='Z').cycle().take(size.parse()?).collect();
        let line = format!("[callback] uct_ep_{function} sent {expected}");
        if !printed.lines().any(|printed| printed == line) {
            return Err(format!("{size} bytes: the server printed something else: {printed:.500}").into());
        }
        let origin = if linkage == "plugin" { "libuct_tcp.so" } else { "built in" };
        for printed in [&printed, &text(&client.stdout)] {
            if !printed.contains("Using lo with tcp.") || !printed.contains(origin) {
                return Err(format!("nothing about tcp on lo from {origin}: {printed:.500}").into());
            }
        }
    }
    Ok(())
}

/// The largest string that tcp sends by this flavour.
fn largest(flavour: &str) -> Result<usize, Failed> {
    let context = Context::builder().set("tcp.max_message", LARGEST).build()?;
    let am = Worker::new(&context)?.open("tcp", "lo")?.attributes().am;
    Ok(match flavour {
        "-i" => am.max_short,
        "-b" => am.max_bcopy - 8,
        _ => am.max_zcopy - 8,
    })
}

fn chosen() -> Outcome {
    let (server, client) = pair(&[], "127.0.0.1", &[]);
    let printed = text(&client.stdout);
    if !server.status.success() || !client.status.success() {
        return Err(format!("{} {}", text(&server.stderr), text(&client.stderr)).into());
    }
    if !printed.contains("Using ") || !printed.contains("lowest latency") {
        return Err(format!("no reason: {printed}").into());
    }
    Ok(())
}

/// Two network namespaces, neither of them the machine's, with a cable between them; the program in each. The words that
/// follow are the program's command line; the server writes to a file of its own.
const TWO_NAMESPACES: &str = r#"
set -e
output=$1; shift
ip link set lo up
unshare --net sleep 180 & other=$!
trap 'kill $other' EXIT
tries=0
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
    tries=$((tries + 1)); [ $tries -lt 5000 ]; sleep 0.01
done
ip link add near type veth peer name far netns $other
ip address add 192.0.2.1/24 dev near
ip link set near up
nsenter --target $other --net sh -c 'ip address add 192.0.2.2/24 dev far; ip link set far up; ip link set lo up'
nsenter --target $other --net "$@" > $output 2>&1 & server=$!
"$@" -n 192.0.2.2
wait $server
"#;

/// Both processes are on one machine, but have neither a network namespace nor a directory in common.
fn fallen_back() -> Outcome {
    let served = tempfile::NamedTempFile::new()?;
    let mut both = Command::new("unshare");
    both.args(["--net", "sh", "-c", TWO_NAMESPACES, "sh"]).arg(served.path()).arg(program());
    both.args(["-p", "13337", "--timeout", "60", "--explain"])
        .env("UCT_SHM_DIR", "none")
        .current_dir(std::env::temp_dir());
    both.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = Running::start(&mut both).finish();
    let errors = text(&client.stderr);
    let served = std::fs::read_to_string(served.path())?;
    if !client.status.success() || !text(&client.stdout).contains("Using near with tcp.") {
        return Err(format!("{}: {}{errors}\nserver: {served}", client.status, text(&client.stdout)).into());
    }
    // What the other side did not offer to an address of elsewhere is no fallback; each side says how to have it.
    for said in [&text(&client.stdout), &served] {
        let line = said.lines().find(|line| line.starts_with("REJECTED  posix/memory")).unwrap_or_default();
        if let Some(word) = ["not of this machine", "shared_key"].iter().find(|word| !line.contains(**word)) {
            return Err(format!("no word of {word:?} in {line:?}: {said}{errors}").into());
        }
    }
    Ok(())
}

/// What is wrong, and the test that it is refused.
type Bad = (&'static str, fn() -> Outcome);

const BAD_INPUT: &[Bad] = &[
    ("an unknown device", || one(&["-t", "tcp", "-d", "loo"], &["loo", "did you mean", "lo"])),
    ("an unknown transport", || one(&["-t", "tpc"], &["tpc", "did you mean", "tcp"])),
    ("an unknown transport with a device", || {
        one(&["-t", "tpc", "-d", "lo"], &["tpc", "did you mean", "tcp"])
    }),
    ("an unknown device alone", || one(&["-d", "loo"], &["no device \"loo\"", "did you mean", "lo"])),
    ("a configuration that leaves no transport", || {
        line(command(&[]).env("UCT_TLS", "^*"), &["no transport can be used", "UCT_TLS"])
    }),
    ("a required transport that is not there", || {
        line(command(&[]).env("UCT_REQUIRE", "nosuch"), &["no transport can be used", "UCT_REQUIRE"])
    }),
    ("standard output that nobody takes", || {
        let full = std::fs::File::options().write(true).open("/dev/full")?;
        line(command(&["-t", "self", "-d", "memory"]).stdout(full), &["cannot print"])
    }),
    ("an unknown configuration key", || {
        configured("[tcp]\ntx_seg_sise = \"8k\"\n", &["tx_seg_sise", "tx_seg_size", ":2"])
    }),
    ("an unknown configuration section", || {
        configured("[tpc]\ntx_seg_size = \"8k\"\n", &["tpc", "tcp", ":1"])
    }),
    ("a value of the wrong type", || {
        configured("\n[tcp]\ntx_seg_size = \"many\"\n", &["tx_seg_size", "many", ":3"])
    }),
    ("a key of the command line that is not one", || one(&["--set", "tpc.max=1"], &["tpc"])),
    ("a setting of the command line without a value", || refused(&["--set", "tls"], &["KEY=VALUE"])),
    ("a configuration file that is not there", || {
        one(&["--config", "/nowhere/uct.toml"], &["/nowhere/uct.toml"])
    }),
    ("a variable of the wrong type", || {
        line(command(&["-t", "tcp"]).env("UCT_TCP_TX_SEG_SIZE", "many"), &["UCT_TCP_TX_SEG_SIZE", "many"])
    }),
    ("a port in use", port_in_use),
    ("a server that is not there", || {
        let port = free_port().to_string();
        one(&["-n", "127.0.0.1", "-p", &port], &["no server at", &port, "start one"])
    }),
    ("a string too long for am_short", || too_long("-i")),
    ("a string too long for am_bcopy", || too_long("-b")),
    ("a string too long for am_zcopy", || too_long("-z")),
    ("a peer of another version", another_version),
    ("self across processes", self_across_processes),
    ("memory of another kind", || one(&["-m", "cuda"], &["-m cuda", "only -m host"])),
    ("a timeout of nothing", || one(&["--timeout", "0"], &["--timeout 0", "seconds"])),
    ("a size that is no number", || refused(&["-s", "many"], &["many", "64k"])),
    ("a size below nothing", || refused(&["-s", "-1"], &["-1", "64k"])),
    ("a port that is none", || refused(&["-p", "99999"], &["99999", "65535"])),
    ("an unknown option", || refused(&["--sise", "4"], &["--sise"])),
];

/// The program fails, and its one line has these words.
fn one(arguments: &[&str], words: &[&str]) -> Outcome {
    line(&mut command(arguments), words)
}

fn line(command: &mut Command, words: &[&str]) -> Outcome {
    let output = Running::start(command).finish();
    says(&output, words)
}

fn says(output: &Output, words: &[&str]) -> Outcome {
    let errors = text(&output.stderr);
    if output.status.success() {
        return Err(format!("it ends well: {}\n{errors}", text(&output.stdout)).into());
    }
    if output.status.code().is_none() {
        return Err(format!("it was killed: {}: {errors}", output.status).into());
    }
    let lines: Vec<&str> = errors.lines().filter(|line| !line.starts_with("INFO: ")).collect();
    let [line] = lines[..] else {
        return Err(format!("{} lines instead of one:\n{errors}", lines.len()).into());
    };
    match words.iter().find(|word| !line.contains(**word)) {
        Some(word) => Err(format!("no word of {word:?} in: {line}").into()),
        None => Ok(()),
    }
}

/// The command line itself is wrong: its parser says more than a line.
fn refused(arguments: &[&str], words: &[&str]) -> Outcome {
    let output = Running::start(&mut command(arguments)).finish();
    let errors = text(&output.stderr);
    if output.status.success() || !words.iter().all(|word| errors.contains(word)) {
        return Err(format!("{}, without all of {words:?}: {errors}", output.status).into());
    }
    Ok(())
}

fn configured(file: &str, words: &[&str]) -> Outcome {
    let mut config = tempfile::Builder::new().suffix(".toml").tempfile()?;
    config.write_all(file.as_bytes())?;
    let path = config.path().display().to_string();
    let mut words = words.to_vec();
    words.push(&path);
    one(&["--config", &path], &words)
}

fn port_in_use() -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port().to_string();
    one(&["-p", &port, "--timeout", "5"], &[&port, "-p"])
}

fn too_long(flavour: &str) -> Outcome {
    let size = (largest(flavour)? + 1).to_string();
    let (server, client) = pair(&[flavour, "-t", "tcp", "-d", "lo", "-s", &size], "127.0.0.1", &[]);
    says(&client, &["bytes"])?;
    says(&server, &["peer"])
}

fn another_version() -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let fake = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(b"UCTN\x09\x02\0\0\0\0\0\0")?;
        // What the client says is of no interest; it goes as soon as it has seen this.
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let start = Instant::now();
    let outcome = one(&["-n", "127.0.0.1", "-p", &port, "--timeout", "40"], &["version 9", "this side"]);
    let _ = fake.join();
    if start.elapsed() > Duration::from_secs(30) {
        return Err("it waits for its timeout instead".into());
    }
    outcome
}

fn self_across_processes() -> Outcome {
    let (server, client) = pair(&["-t", "self"], "127.0.0.1", &[]);
    says(&client, &["self", "process"])?;
    says(&server, &["peer"])
}
