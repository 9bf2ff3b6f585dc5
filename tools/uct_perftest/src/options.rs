//! The command line: ucx_perftest's flags, and a few more.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use uct_tools_common::{CommonOptions, Failure, complete};

use crate::kind::{Layout, Test, Wait};
use crate::sizes::Sizes;

/// Measures latency, bandwidth and message rate of a transport.
///
/// Without a host it is the server: it waits for one client, which chooses the test. With -l both sides are
/// in this process. Without -x and -d it measures the best transport that both sides have.
#[derive(Debug, Parser)]
#[command(name = "uct_perftest", version)]
pub(crate) struct Options {
    /// Host name or address of the server; makes this the client.
    #[arg(value_name = "HOST", conflicts_with = "loopback")]
    pub host: Option<String>,
    /// Test to run.
    #[arg(short = 't', value_name = "TEST", value_enum, default_value_t = Test::AmLat)]
    pub test: Test,
    /// Transport, e.g. tcp, posix, self, rc_verbs.
    #[arg(short = 'x', value_name = "TRANSPORT", add = complete::transports())]
    pub transport: Option<String>,
    /// Device, e.g. eth0, memory, mlx5_0:1.
    #[arg(short = 'd', value_name = "DEVICE", add = complete::devices())]
    pub device: Option<String>,
    /// short, bcopy or zcopy; default: the first that supports the size.
    #[arg(short = 'D', value_name = "LAYOUT", value_enum)]
    pub layout: Option<Layout>,
    /// Bytes of a message, without the header of 8 bytes that active messages have: 8, 64k, a list 8,64,4k, or a
    /// range that doubles, 8..1m. A size that the test or the transport does not take is left out, with the reason. connect has no
    /// size.
    #[arg(short = 's', value_name = "SIZE[,SIZE...]", default_value = "8")]
    pub sizes: Sizes,
    /// Iterations; default: 100000, fewer for large messages and 1000 for
    /// connect.
    #[arg(short = 'n', value_name = "ITERATIONS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub iterations: Option<u64>,
    /// Warm-up iterations, which are not measured; default: a tenth, at most 10000.
    #[arg(short = 'w', value_name = "WARMUP")]
    pub warmup: Option<u64>,
    /// Processors to pin to. With -l the first is the client's, the second the server's.
    #[arg(short = 'c', value_name = "CPU[,CPU...]", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// Messages in am_bw and am_mr that the receiver has not consumed; 0 leaves the limit to the transport.
    #[arg(short = 'W', value_name = "COUNT", default_value_t = 0)]
    pub window: u32,
    /// Outstanding operations; default: 1 for latency, 32 for bandwidth and rate.
    #[arg(short = 'O', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub outstanding: Option<u32>,
    /// Port that the server listens on and the client calls; with 0 the server uses a free one and prints it.
    #[arg(short = 'p', value_name = "PORT", default_value_t = 13337)]
    pub port: u16,
    /// Connect by a connection manager, e.g. rdmacm, on both sides; the server listens at its IPv4 addresses then. Without it
    /// connections are made over TCP.
    #[arg(long, value_name = "CM", conflicts_with = "loopback", add = complete::managers())]
    pub by: Option<String>,
    /// How to wait.
    #[arg(short = 'E', value_name = "MODE", value_enum, default_value_t = Wait::Poll)]
    pub wait: Wait,
    /// Both sides in this process, in two threads; in one thread for a transport that connects a process with itself.
    #[arg(short = 'l')]
    pub loopback: bool,
    /// Print final figures only.
    #[arg(short = 'f')]
    pub final_only: bool,
    /// Print comma separated values.
    #[arg(short = 'v', conflicts_with = "json")]
    pub csv: bool,
    /// Iterations that are timed together; default: as many as take a microsecond.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Print the verdict on every transport.
    #[arg(long)]
    pub explain: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
    /// Draw latency or bandwidth over size.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Compare two files that --json wrote; no measurement.
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["host", "loopback", "plot"])]
    pub compare: Option<Vec<PathBuf>>,
    /// Give up after this many seconds without activity of the other side.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    #[command(flatten)]
    pub common: CommonOptions,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, above 0 and up to 86400".to_owned()),
    }
}

/// Largest size of a default number of iterations, and the number.
const DEFAULT_ITERATIONS: [(usize, u64); 3] = [(8 << 10, 100_000), (1 << 20, 10_000), (usize::MAX, 1_000)];
const DEFAULT_CONNECTIONS: u64 = 1000;
const MOST_WARMUP: u64 = 10_000;

impl Options {
    /// What the parser cannot check.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let measures = self.host.is_some() || self.loopback;
        if self.plot.is_some() && !measures {
            return Err("--plot: a server has no results; use it at the client, or with -l".into());
        }
        let sizes = self.sizes();
        if let Some((size, reason)) = sizes.iter().find_map(|&size| Some((size, self.why_not(size)?)))
            && sizes.iter().all(|&size| self.why_not(size).is_some())
        {
            return Err(format!("-s {size}: {reason}").into());
        }
        if self.wait != Wait::Poll && self.test.polls_memory() {
            return Err(format!(
                "-E {}: {} polls memory that the peer writes, which causes no event; use -E poll, or am_lat",
                self.wait.name(),
                self.test.name()
            )
            .into());
        }
        if self.test.class().is_net()
            && let Some(layout) = self.layout
        {
            let (layout, test) = (layout.name(), self.test.name());
            return Err(format!("-D {layout}: uct-net chooses the layout of {test}; leave -D out").into());
        }
        if self.window == 1 {
            return Err(
                "-W 1: the receiver confirms half a window at a time; expected 0, or 2 and more".into()
            );
        }
        Ok(())
    }

    /// The sizes to measure. A connection has none.
    pub(crate) fn sizes(&self) -> &[usize] {
        if self.test == Test::Connect { &[0] } else { &self.sizes.0 }
    }

    /// Why the test does not take a size, on any transport.
    pub(crate) fn why_not(&self, size: usize) -> Option<String> {
        let expected = self.test.check_size(size).err()?;
        Some(format!("{} takes {expected}", self.test.name()))
    }

    /// The sizes that the test takes.
    pub(crate) fn possible_sizes(&self) -> Vec<usize> {
        self.sizes().iter().copied().filter(|&size| self.why_not(size).is_none()).collect()
    }

    /// Whether only the result is printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.json || self.csv
    }

    /// Iterations of a size.
    pub(crate) fn iterations(&self, size: usize) -> u64 {
        let fitting = DEFAULT_ITERATIONS.iter().find(|(largest, _)| size <= *largest);
        let by_size = fitting.map_or(1, |(_, iterations)| *iterations);
        let default = if self.test == Test::Connect { DEFAULT_CONNECTIONS } else { by_size };
        self.iterations.unwrap_or(default)
    }

    /// Iterations of a size that are not measured.
    pub(crate) fn warmup(&self, size: usize) -> u64 {
        self.warmup.unwrap_or((self.iterations(size) / 10).clamp(1, MOST_WARMUP))
    }

    /// Operations that may be outstanding.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding.unwrap_or(self.test.outstanding())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn ucxs_flags_are_understood() {
        let line = "uct_perftest -t get -x tcp -d lo -D zcopy -s 65536 -n 5000 -w 500 -p 7 -O 4 -W 128 -c 0,1 -f host";
        let options = Options::try_parse_from(line.split(' ')).unwrap();
        assert_eq!((options.test, options.cpus, options.port), (Test::GetLat, vec![0, 1], 7));
        assert_eq!(options.host.as_deref(), Some("host"));
    }

    #[test]
    fn large_messages_have_fewer_iterations_by_default() {
        let options = Options::try_parse_from(["uct_perftest"]).unwrap();
        assert_eq!([8, 65536, 4 << 20].map(|size| options.iterations(size)), [100_000, 10_000, 1000]);
        assert_eq!(options.warmup(8), 10_000);
        assert_eq!(options.outstanding(), 1);
        let options = Options::try_parse_from(["uct_perftest", "-t", "connect", "-s", "8:64"]).unwrap();
        assert_eq!((options.sizes(), options.iterations(0)), (&[0][..], 1000));
    }
}
