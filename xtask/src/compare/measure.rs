//! One measurement: starts a program, with its server if it has one, each on a processor of its own, and reads the
//! figure out of what it prints.
//! Stands on `process`; `compare` stands on it.

use super::table::{Figure, Metric, Row, Table};
use crate::failure::{Context, Failure, Outcome};
use crate::net::{free_port, is_listening};
use crate::process::{capture, command, kill_tree, line, spawn, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const LISTEN_LIMIT: Duration = Duration::from_secs(10);
/// The programs of xtask/floors.
pub const FLOORS: &[&str] = &["call", "cacheline", "tcp"];

/// Where programs are.
pub struct Programs {
    /// The compiled floors.
    pub floors: PathBuf,
    /// Directory of uct_perftest; it is also where its plugins are looked for.
    pub ours: PathBuf,
}

impl Programs {
    /// Measures the floor of a row.
    pub fn floor(&self, arguments: &str, metric: Metric) -> Outcome<f64> {
        let mut words = arguments.split_whitespace();
        let program = words.next().unwrap_or_default();
        if FLOORS.contains(&program) {
            let mut floor = command("taskset");
            floor.args(["-c", "0,1"]).arg(self.floors.join(program)).args(words);
            return number(&succeed(&mut floor)?);
        }
        // The tools of perftest say where to connect to at the end, and take the port of the server as `-p`.
        let tool = Side {
            program: program.into(),
            arguments: words.map(str::to_owned).collect(),
            pin: Pin::Taskset,
        };
        let printed = tool.with_server(|port| vec!["-p".to_owned(), port.to_string()], &["127.0.0.1"])?;
        perftest_median(&printed, metric)
    }

    /// Measures UCX.
    pub fn ucx(&self, row: &Row, arguments: &str) -> Outcome<f64> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let loopback = arguments.iter().any(|argument| argument == "-l");
        let side = Side { program: "ucx_perftest".into(), arguments, pin: Pin::Option };
        // Final figures only, as comma separated values.
        let printed = match loopback {
            true => side.alone(&["-f", "-v"])?,
            false => side.with_server(port_option, &["127.0.0.1", "-f", "-v"])?,
        };
        Ok(ucx_figure(&printed, row.metric)? * row.ucx_factor)
    }

    /// Measures ours.
    pub fn ours(&self, table: &Table, row: &Row, arguments: &str) -> Outcome<f64> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let loopback = arguments.iter().any(|argument| argument == "-l");
        let side = Side { program: self.ours.join("uct_perftest"), arguments, pin: Pin::Option };
        let printed = match loopback {
            true => side.alone(&["--json"])?,
            false => side.with_server(port_option, &["127.0.0.1", "--json"])?,
        };
        json_figure(&printed, &table.ours[&row.metric])
    }
}

fn port_option(port: u16) -> Vec<String> {
    vec!["-p".to_owned(), port.to_string()]
}

/// How a program is kept on one processor.
enum Pin {
    /// It has an option `-c`.
    Option,
    /// By taskset.
    Taskset,
}

struct Side {
    program: PathBuf,
    arguments: Vec<String>,
    pin: Pin,
}

impl Side {
    fn on(&self, processor: &str) -> Command {
        let mut side = match self.pin {
            Pin::Option => command(&self.program),
            Pin::Taskset => command("taskset"),
        };
        match self.pin {
            Pin::Option => side.args(["-c", processor]),
            Pin::Taskset => side.args(["-c", processor]).arg(&self.program),
        };
        side.args(&self.arguments).env("UCX_WARN_UNUSED_ENV_VARS", "n");
        side
    }

    fn alone(&self, more: &[&str]) -> Outcome<String> {
        succeed(self.on("1").args(more))
    }

    fn with_server(&self, port_option: impl Fn(u16) -> Vec<String>, client: &[&str]) -> Outcome<String> {
        let port = free_port("127.0.0.1")?;
        let mut server = self.on("0");
        server.args(port_option(port)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = spawn(&mut server)?;
        let deadline = Instant::now() + LISTEN_LIMIT;
        while !is_listening(port) && Instant::now() < deadline {
            if let Some(status) = wait_until(&mut child, Instant::now() + Duration::from_millis(20))? {
                return Err(Failure::new(format!("`{}` ended before it listened: {status}", line(&server))));
            }
        }
        let printed = succeed(self.on("1").args(client).args(port_option(port)));
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

fn number(printed: &str) -> Outcome<f64> {
    printed.trim().parse().context(|| format!("expected a number, got {printed:?}"))
}

/// The last line: iterations, median latency (us), average, overall latency, average and overall bandwidth (MiB/s),
/// average and overall rate (messages/s).
fn ucx_figure(printed: &str, metric: Metric) -> Outcome<f64> {
    let (column, factor) = match metric {
        Metric::Latency => (1, 1e3),
        Metric::Rate => (7, 1e-6),
        Metric::Bandwidth => (5, 1.048_576),
    };
    let line = printed.lines().rev().find(|line| line.starts_with(|c: char| c.is_ascii_digit()));
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
    value
        .map(|value| value * 1e3)
        .ok_or_else(|| Failure::new(format!("perftest printed no median:\n{printed}")))
}

fn json_figure(printed: &str, figure: &Figure) -> Outcome<f64> {
    let document: serde_json::Value = serde_json::from_str(printed)
        .context(|| format!("uct_perftest printed no JSON document:\n{printed}"))?;
    let value = document.pointer(&figure.pointer).and_then(serde_json::Value::as_f64);
    let pointer = &figure.pointer;
    value
        .map(|value| value * figure.factor)
        .ok_or_else(|| Failure::new(format!("uct_perftest's JSON has no number at {pointer}:\n{printed}")))
}

/// Compiles the floors with rustc alone: they stand on nothing but std.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucxs_figures_are_in_the_last_line() {
        let printed =
            "iterations,50.0_percentile_lat,…\n300000,0.305,0.834,1.701,18.30,8.97,1199189,587729\n";
        assert_eq!(ucx_figure(printed, Metric::Latency).unwrap(), 305.0);
        assert_eq!(ucx_figure(printed, Metric::Rate).unwrap(), 0.587_729);
        assert!(ucx_figure("iterations,50.0\n", Metric::Rate).is_err());
    }

    #[test]
    fn perftests_median_is_the_typical_time() {
        let printed = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n \
                       2       1000          8.42           900.31       9.05             14.20\n";
        assert_eq!(perftest_median(printed, Metric::Latency).unwrap(), 9050.0);
        assert!(perftest_median("no table", Metric::Latency).is_err());
    }

    #[test]
    fn our_figure_is_where_the_table_says() {
        let figure = Figure { pointer: "/latency/p50".to_owned(), factor: 2.0 };
        assert_eq!(json_figure("{\"latency\": {\"p50\": 4.5}}", &figure).unwrap(), 9.0);
        assert!(json_figure("{}", &figure).unwrap_err().to_string().contains("/latency/p50"));
        assert!(json_figure("not json", &figure).is_err());
    }
}
