//! One measurement: starts a program, with its server if it has one, each on a processor of its own, and reads the
//! figure out of what it prints.
//! Built on `process`; used by `compare`.

use super::table::{Figure, Metric, Row, TRAFFIC, Table, program_and_arguments};
use crate::failure::{Context, Failure, Outcome};
use crate::net::{free_port, is_listening};
use crate::process::{capture, cargo, command, kill_tree, line, spawn, wait_until};
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const LISTEN_LIMIT: Duration = Duration::from_secs(10);
/// How often a program of perftest is started until it prints figures.
const PERFTEST_ATTEMPTS: u32 = 4;
/// The programs of xtask/compare/floors.
pub const FLOORS: &[&str] = &["call", "cacheline", "stream", "tcp"];
/// A stream of librdmacm.
const RSTREAM: &str = "rstream";
/// The programs of tests/peers.
pub const PEERS: &[&str] = &["shmipc"];

/// Where programs are.
pub struct Programs {
    /// The compiled floors and peers.
    pub floors: PathBuf,
    /// Directory of uct_perftest and its plugins, and of `traffic`.
    pub ours: PathBuf,
    /// The same of an older build.
    pub before: Option<PathBuf>,
    /// Whether each side is kept on a processor of its own.
    pub pin: bool,
}

impl Programs {
    /// Measures the floor of a row.
    pub fn floor(&self, arguments: &str, metric: Metric) -> Outcome<f64> {
        let (program, arguments) = program_and_arguments(arguments);
        if program == TRAFFIC || PEERS.contains(&program) {
            let directory = if program == TRAFFIC { &self.ours } else { &self.floors };
            return figure(&directory.join(program), arguments);
        }
        if FLOORS.contains(&program) {
            return floor(&self.floors.join(program), arguments);
        }
        if program == RSTREAM {
            return rstream(arguments, metric);
        }
        let side = Side::new(program.into(), arguments, self.pinned(Pin::Taskset));
        let mut attempts = 0;
        loop {
            attempts += 1;
            match perftest_median(&side.measure(&[])?, metric) {
                // It measures the processor's clock first; where it fails to, on a busy machine, it prints `inf`.
                Err(_) if attempts < PERFTEST_ATTEMPTS => {}
                answer => return answer,
            }
        }
    }

    /// Measures UCX.
    pub fn ucx(&self, row: &Row, arguments: &str) -> Outcome<f64> {
        let side = Side::new("ucx_perftest".into(), arguments, self.pinned(Pin::Option));
        // Final figures only, as comma separated values.
        let printed = side.measure(&["-f", "-v"])?;
        Ok(ucx_figure(&printed, row.metric)? * row.ucx_factor)
    }

    /// Measures ours, in this directory.
    pub fn ours(&self, directory: &Path, table: &Table, row: &Row, arguments: &str) -> Outcome<f64> {
        if row.ours_is_traffic() {
            return figure(&directory.join(TRAFFIC), program_and_arguments(arguments).1);
        }
        let side = Side::new(directory.join("uct_perftest"), arguments, self.pinned(Pin::Option));
        json_figure(&side.measure(&["--json"])?, &table.ours[&row.metric])
    }

    /// The older build, if it has the program that measures the row.
    pub fn before_of(&self, row: &Row) -> Option<&Path> {
        let before = self.before.as_deref()?;
        (!row.ours_is_traffic() || before.join(TRAFFIC).is_file()).then_some(before)
    }

    fn pinned(&self, how: Pin) -> Pin {
        if self.pin { how } else { Pin::Not }
    }
}

/// How a program is kept on one processor.
pub enum Pin {
    /// It has an option `-c`.
    Option,
    /// By taskset.
    Taskset,
    /// Not at all.
    Not,
}

/// A program that is its own server, unless it talks to itself (`-l`).
pub struct Side {
    program: PathBuf,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    /// Of the server, if it gets others.
    server: Option<Vec<String>>,
    pin: Pin,
}

impl Side {
    /// Leading words `NAME=VALUE` are the program's environment, as in a shell.
    pub fn new(program: PathBuf, arguments: &str, pin: Pin) -> Self {
        let mut words = arguments.split_whitespace().peekable();
        let mut environment = Vec::new();
        while let Some((name, value)) =
            words.peek().filter(|word| !word.starts_with('-')).and_then(|w| w.split_once('='))
        {
            environment.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        Side { program, environment, arguments: words.map(str::to_owned).collect(), server: None, pin }
    }

    /// With other arguments for the server.
    pub fn server(mut self, arguments: &str) -> Self {
        self.server = Some(arguments.split_whitespace().map(str::to_owned).collect());
        self
    }

    /// With a variable more in the environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What the client prints, or the one process if it talks to itself.
    pub fn measure(&self, output_options: &[&str]) -> Outcome<String> {
        match self.arguments.iter().any(|argument| argument == "-l") {
            true => succeed(self.on("1", &self.arguments).args(output_options)),
            false => self.with_server(output_options),
        }
    }

    /// The program on a processor.
    fn on(&self, processor: &str, arguments: &[String]) -> Command {
        let program = match self.pin {
            Pin::Taskset => Path::new("taskset"),
            Pin::Option | Pin::Not => &self.program,
        };
        let mut side = command(program);
        match self.pin {
            Pin::Option => side.args(["-c", processor]),
            Pin::Taskset => side.args(["-c", processor]).arg(&self.program),
            Pin::Not => &mut side,
        };
        side.args(arguments).env("UCX_WARN_UNUSED_ENV_VARS", "n");
        side.envs(self.environment.iter().map(|(name, value)| (name, value)));
        side
    }

    fn with_server(&self, output_options: &[&str]) -> Outcome<String> {
        let port = free_port();
        let port_option = port.to_string();
        let mut server = self.on("0", self.server.as_ref().unwrap_or(&self.arguments));
        server.args(["-p", &port_option]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawn(&mut server)?;
        let deadline = Instant::now() + LISTEN_LIMIT;
        while !is_listening(port) && Instant::now() < deadline {
            if let Some(status) = wait_until(&mut child, Instant::now() + Duration::from_millis(20))? {
                return Err(Failure::new(format!("`{}` ended before it listened: {status}", line(&server))));
            }
        }
        let mut client = self.on("1", &self.arguments);
        let printed = succeed(client.args(output_options).args(["-p", &port_option, "127.0.0.1"]));
        // A server that has done its work ends by itself; after a failed client it would wait for ever.
        if wait_until(&mut child, Instant::now() + Duration::from_secs(2))?.is_none() {
            kill_tree(&mut child);
        }
        printed
    }
}

fn succeed(command: &mut Command) -> Outcome<String> {
    let (status, stdout, stderr) = capture(command, LIMIT)?;
    if status.success() {
        return Ok(stdout);
    }
    Err(Failure::new(format!("`{}` failed: {status}\n{stdout}{stderr}", line(command))))
}

/// Of a program that starts its other side, keeps each on a processor, and prints a number.
fn figure(program: &Path, arguments: &str) -> Outcome<f64> {
    number(&succeed(command(program).args(arguments.split_whitespace()))?)
}

fn number(printed: &str) -> Outcome<f64> {
    printed.trim().parse().context(|| format!("expected a number, got {printed:?}"))
}

/// The last line: iterations, median latency (us), average, overall latency, average and overall bandwidth (MiB/s),
/// average and overall rate (messages/s).
pub fn ucx_figure(printed: &str, metric: Metric) -> Outcome<f64> {
    let (column, factor) = match metric {
        Metric::Latency => (1, 1e3),
        Metric::Rate => (7, 1e-6),
        Metric::Bandwidth => (5, 1.048_576),
        Metric::Mean | Metric::Requests | Metric::Cpu => {
            return Err(Failure::new("ucx_perftest does not measure this"));
        }
    };
    // The number of iterations is aligned to the right.
    let mut lines = printed.lines().rev().map(str::trim_start);
    let line = lines.find(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let value = line.and_then(|line| line.split(',').nth(column)?.trim().parse::<f64>().ok());
    value
        .map(|value| value * factor)
        .ok_or_else(|| Failure::new(format!("ucx_perftest printed no figures:\n{printed}")))
}

/// `#bytes #iterations t_min t_max t_typical …`, in us; the typical one is the median.
fn perftest_median(printed: &str, metric: Metric) -> Outcome<f64> {
    if metric != Metric::Latency {
        return Err(Failure::new("a floor by perftest is a latency"));
    }
    let mut lines = printed.lines().skip_while(|line| !line.contains("t_typical[usec]"));
    let value = lines.nth(1).and_then(|line| line.split_whitespace().nth(4)?.parse::<f64>().ok());
    let value = value.filter(|value| value.is_finite());
    value
        .map(|value| value * 1e3)
        .ok_or_else(|| Failure::new(format!("perftest printed no median:\n{printed}")))
}

/// A server of rstream, and a client with the same arguments: `-s ADDRESS` and others.
fn rstream(arguments: &str, metric: Metric) -> Outcome<f64> {
    let port = free_port().to_string();
    let with = |arguments: &str| {
        let mut side = command(RSTREAM);
        side.args(["-p", &port]).args(arguments.split_whitespace());
        side
    };
    // It binds to the address that its client connects to.
    let mut server = with(&arguments.replace("-s ", "-b "));
    let mut child = spawn(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))?;
    // That it listens cannot be seen from outside: a client that comes earlier is refused.
    let deadline = Instant::now() + LISTEN_LIMIT;
    let printed = loop {
        match succeed(&mut with(arguments)) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
            printed => break printed,
        }
    };
    if wait_until(&mut child, Instant::now() + Duration::from_secs(2))?.is_none() {
        kill_tree(&mut child);
    }
    rstream_figure(&printed?, metric)
}

/// The last line: name, bytes of a transfer, transfers, iterations, total, time, Gb/sec, us of a transfer. It counts the transfers of both
/// directions, which take turns.
fn rstream_figure(printed: &str, metric: Metric) -> Outcome<f64> {
    let words: Vec<&str> = printed.lines().next_back().unwrap_or_default().split_whitespace().collect();
    let microseconds = words.last().and_then(|word| word.parse::<f64>().ok()).filter(|time| *time > 0.0);
    let microseconds =
        microseconds.ok_or_else(|| Failure::new(format!("rstream printed no figures:\n{printed}")))?;
    match metric {
        Metric::Mean => Ok(microseconds * 1e3),
        Metric::Bandwidth => {
            let bytes = words.get(1).and_then(|size| binary_size(size));
            let bytes = bytes.ok_or_else(|| Failure::new(format!("rstream printed no size:\n{printed}")))?;
            Ok(bytes / microseconds)
        }
        _ => Err(Failure::new("a floor by rstream is a mean or a bandwidth")),
    }
}

/// `64`, `64k`.
fn binary_size(word: &str) -> Option<f64> {
    match word.strip_suffix('k') {
        Some(number) => Some(number.parse::<f64>().ok()? * 1024.0),
        None => word.parse().ok(),
    }
}

pub fn json_figure(printed: &str, figure: &Figure) -> Outcome<f64> {
    let document: serde_json::Value = serde_json::from_str(printed)
        .context(|| format!("uct_perftest printed no JSON document:\n{printed}"))?;
    let value = document.pointer(&figure.pointer).and_then(serde_json::Value::as_f64);
    let pointer = &figure.pointer;
    value
        .map(|value| value * figure.factor)
        .ok_or_else(|| Failure::new(format!("uct_perftest's JSON has no number at {pointer}:\n{printed}")))
}

/// A floor, on two processors.
fn floor(program: &Path, arguments: &str) -> Outcome<f64> {
    let mut floor = command("taskset");
    floor.args(["-c", "0,1"]).arg(program).args(arguments.split_whitespace());
    number(&succeed(&mut floor)?)
}

/// Time of a cache line from one processor to the other, ns, by its floor, in some milliseconds.
pub fn cache_line(program: &Path) -> Outcome<f64> {
    floor(program, "300")
}

/// Compiles the floors with rustc alone: they need only std.
pub fn compile_floors(sources: &Path, into: &Path) -> Outcome {
    std::fs::create_dir_all(into).context(|| format!("cannot make {}", into.display()))?;
    for floor in FLOORS {
        let source = sources.join(floor).with_extension("rs");
        let mut rustc = command(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition", "2024", "-O", "-o"]).arg(into.join(floor)).arg(source);
        crate::process::run(&mut rustc, LIMIT)?;
    }
    Ok(())
}

/// Builds tests/peers, whose libraries are fetched for it, and puts its programs beside the floors.
pub fn build_peers(workspace: &Workspace, into: &Path) -> Outcome {
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "--locked",
        "--manifest-path",
        "tests/peers/Cargo.toml",
        "--target-dir",
    ]);
    build.arg(workspace.target().join("peers"));
    let built = workspace.run_build(&mut build)?;
    std::fs::create_dir_all(into).context(|| format!("cannot make {}", into.display()))?;
    for peer in PEERS {
        let (from, to) = (built.program(peer)?, into.join(peer));
        std::fs::copy(from, &to).context(|| format!("cannot make {}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_assignments_are_environment() {
        let side = Side::new("x".into(), "A=1 B= -t am --key=value", Pin::Option);
        assert_eq!(side.environment, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())]);
        assert_eq!(side.arguments, ["-t", "am", "--key=value"]);
    }

    #[test]
    fn ucxs_figures_are_in_the_last_line() {
        let printed =
            "iterations,50.0_percentile_lat,…\n300000,0.305,0.834,1.701,18.30,8.97,1199189,587729\n";
        assert_eq!(ucx_figure(printed, Metric::Latency).unwrap(), 305.0);
        assert_eq!(ucx_figure(printed, Metric::Rate).unwrap(), 0.587_729);
        let few = " 256,29.705,32.465,32.465,30802.43,30802.43,30923,30923\n";
        assert_eq!(ucx_figure(few, Metric::Latency).unwrap(), 29_705.0);
        assert!(ucx_figure("iterations,50.0\n", Metric::Rate).is_err());
    }

    #[test]
    fn perftests_median_is_the_typical_time() {
        let printed = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                       2       1000          8.42           900.31       9.05             14.20\n";
        assert_eq!(perftest_median(printed, Metric::Latency).unwrap(), 9050.0);
        assert!(perftest_median(&printed.replace("9.05", "inf"), Metric::Latency).is_err());
        assert!(perftest_median("no table", Metric::Latency).is_err());
    }

    #[test]
    fn rstreams_figure_is_the_time_of_a_transfer_of_its_last_line() {
        let printed = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n\
                       custom    64k     100     10      125m        1.30s      0.81     650.00\n";
        assert_eq!(rstream_figure(printed, Metric::Mean).unwrap(), 650_000.0);
        assert_eq!(rstream_figure(printed, Metric::Bandwidth).unwrap(), 65_536.0 / 650.0);
        assert!(rstream_figure(printed, Metric::Rate).is_err());
        assert!(rstream_figure("rconnect: Connection refused\n", Metric::Mean).is_err());
    }

    #[test]
    fn our_figure_is_where_the_table_says() {
        let figure = Figure { pointer: "/latency/p50".to_owned(), factor: 2.0 };
        assert_eq!(json_figure("{\"latency\": {\"p50\": 4.5}}", &figure).unwrap(), 9.0);
        assert!(json_figure("{}", &figure).unwrap_err().to_string().contains("/latency/p50"));
        assert!(json_figure("not json", &figure).is_err());
    }
}
