//! `cargo xtask compare --sweep TRANSPORT`: latency and bandwidth over the size of the message, of every operation and layout: the
//! newest UCX, ours with the transport named on both sides, and ours with every transport open at the server.
//! Built on the measurements and rounds of `compare`.

#[path = "../../../tools/uct_perftest/src/chart.rs"]
mod chart;

use super::measure::{Pin, Side, json_figure, ucx_figure};
use super::rounds::{MEASURED, OPEN, OURS, Rounds, UCX};
use super::table::{Figure, Metric};
use super::wheel::Peer;
use super::{apt, digits, vm};
use crate::apt::Package;
use crate::failure::{Context, Failure, Outcome};
use crate::workspace::Workspace;
use chart::{Chart, Series, draw};
use clap::Args;
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What a sweep has besides.
#[derive(Args, Debug)]
pub struct Sweeping {
    /// Another ucx_perftest than that of the newest Python wheel
    #[arg(long, value_name = "PROGRAM", requires = "sweep")]
    ucx: Option<PathBuf>,

    /// Sizes instead of the powers of two up to 1 MiB, 48, 80 and 8000, in bytes
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', requires = "sweep")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 26))]
    sizes: Vec<u64>,

    /// Draw a picture for each operation, TRANSPORT-OPERATION.svg in this directory
    #[arg(long, value_name = "DIRECTORY", requires = "sweep")]
    svg: Option<PathBuf>,
}

/// Rounds of a point.
const ROUNDS: u8 = 3;
const LARGEST: u64 = 1 << 20;
/// Sizes between the powers of two, where layouts and buffers end.
const BETWEEN: [u64; 3] = [48, 80, 8000];
/// Bytes that a measurement moves at most, unless its messages are few.
const BYTES: u64 = 256 << 20;
const FEWEST: u64 = 200;

/// An operation as uct_perftest has it, and as UCX has it.
struct Test {
    ours: &'static str,
    ucx: &'static str,
    metric: Metric,
    /// UCX counts the header of a message into its size.
    header: u64,
}

const TESTS: [Test; 6] = [
    Test { ours: "am_lat", ucx: "am_lat", metric: Metric::Latency, header: 8 },
    Test { ours: "am_bw", ucx: "am_bw", metric: Metric::Bandwidth, header: 8 },
    Test { ours: "put_lat", ucx: "put_lat", metric: Metric::Latency, header: 0 },
    Test { ours: "put_bw", ucx: "put_bw", metric: Metric::Bandwidth, header: 0 },
    Test { ours: "get_lat", ucx: "get", metric: Metric::Latency, header: 0 },
    Test { ours: "get_bw", ucx: "get_bw", metric: Metric::Bandwidth, header: 0 },
];

impl Test {
    /// A figure of UCX's, whose bandwidth counts the header, as ours does not.
    fn without_header(&self, figure: f64, size: u64) -> f64 {
        match self.metric {
            Metric::Bandwidth => figure * size as f64 / (size + self.header) as f64,
            _ => figure,
        }
    }
}

/// A layout and the colours of its lines: UCX's, ours, and ours with everything open.
const LAYOUTS: [(&str, [&str; 3]); 3] = [
    ("short", ["#ffbb78", "#9ecae1", "#a1d99b"]),
    ("bcopy", ["#ff7f0e", "#1f77b4", "#31a354"]),
    ("zcopy", ["#a63603", "#08306b", "#00441b"]),
];

/// What is measured: a test in one layout, and the rounds of each size.
struct Curve {
    test: &'static Test,
    layout: &'static str,
    points: Vec<(u64, Rounds)>,
}

/// What is measured.
struct Contestants<'a> {
    transport: &'a str,
    ours: PathBuf,
    ucx: Peer,
}

/// Measures and prints the curves. What fails is shown, and the status is 1.
pub fn run(transport: &str, options: &super::Options, workspace: &Workspace) -> Outcome<u8> {
    apt::require(&[Package { name: "util-linux", brings: "/usr/bin/taskset" }])?;
    let sweeping = &options.sweeping;
    let ucx = match &sweeping.ucx {
        Some(program) => Peer::of(program)?,
        None => Peer::of_wheel(workspace.target())?,
    };
    let built = vm::build_packages(workspace, "release", ["uct_perftest"].into_iter())?;
    let contestants = Contestants { transport, ours: built.program("uct_perftest")?.to_owned(), ucx };
    let sizes = if sweeping.sizes.is_empty() { standard_sizes() } else { sweeping.sizes.clone() };
    let is_wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));

    let (mut curves, mut complaints) = (Vec::new(), Vec::new());
    for test in &TESTS {
        for (layout, _) in LAYOUTS {
            let mut curve = Curve { test, layout, points: Vec::new() };
            if is_wanted(&curve.name()) {
                curve.measure(&contestants, &sizes, options.rounds(ROUNDS), &mut complaints);
                curves.extend((!curve.points.is_empty()).then_some(curve));
            }
        }
    }
    if curves.is_empty() {
        let names = "expected a part of a name such as `am_lat bcopy`";
        complaints.push(format!("nothing was measured over {transport}; NAME: {names}"));
    }
    for curve in &curves {
        println!("{} over {transport}, {}\n{}", curve.name(), curve.test.metric.unit(), curve.table());
    }
    println!(
        "Beside {}. Medians of the rounds, in turn; ratios are medians of the rounds' ratios. A size beyond a limit has no figure.\n\
         open: ours with every transport open at the server.",
        contestants.ucx.name
    );
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", document(&contestants, &curves));
        std::fs::write(file, text).context(|| format!("--json {}", file.display()))?;
    }
    if let Some(directory) = &sweeping.svg {
        std::fs::create_dir_all(directory).context(|| format!("--svg {}", directory.display()))?;
        for (name, picture) in pictures(&contestants, &curves) {
            let file = directory.join(name);
            std::fs::write(&file, picture).context(|| format!("--svg {}", file.display()))?;
        }
    }
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    Ok(u8::from(!complaints.is_empty()))
}

fn standard_sizes() -> Vec<u64> {
    let doubling = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|&size| size <= LARGEST);
    let mut sizes: Vec<u64> = doubling.chain(BETWEEN).collect();
    sizes.sort_unstable();
    sizes
}

impl Curve {
    fn name(&self) -> String {
        format!("{} {}", self.test.ours, self.layout)
    }

    /// Measures size by size, each of the three in turn, from small to large. One that a size is too large for is not asked again.
    fn measure(
        &mut self,
        contestants: &Contestants,
        sizes: &[u64],
        wanted: u8,
        complaints: &mut Vec<String>,
    ) {
        let mut goes_on = [true; 3];
        for &size in sizes {
            let mut rounds = Rounds::new(self.test.metric, None);
            for taken in 0..usize::from(wanted) {
                let mut round = [None; MEASURED];
                for whose in (0..3).map(|turn| (taken + turn) % 3) {
                    if !goes_on[whose] {
                        continue;
                    }
                    match contestants.measure(whose, self.test, self.layout, size) {
                        Ok(figure) => round[whose] = Some(figure),
                        Err(failure) => {
                            goes_on[whose] = false;
                            if !is_limit(&failure) {
                                complaints.push(format!("{} of {size} bytes: {failure}", self.name()));
                            }
                        }
                    }
                }
                rounds.add(round);
            }
            if [OPEN, UCX, OURS].iter().all(|&whose| rounds.median(whose).is_none()) {
                return;
            }
            let [ucx, ours] = [UCX, OURS].map(|whose| figure(rounds.median(whose)));
            eprintln!("{} of {size} bytes: UCX {ucx}, ours {ours} {}", self.name(), self.test.metric.unit());
            self.points.push((size, rounds));
        }
    }

    fn table(&self) -> comfy_table::Table {
        let mut shown = comfy_table::Table::new();
        shown.load_style(UTF8_FULL_CONDENSED);
        shown.set_header(["bytes", "UCX", "ours", "open", "ours/UCX", "open/UCX", "open/ours"]);
        for (size, rounds) in &self.points {
            let [ucx, ours, open] = [UCX, OURS, OPEN].map(|whose| figure(rounds.median(whose)));
            let ratio =
                |of, to| rounds.ratio(of, to).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            shown.add_row([
                size.to_string(),
                ucx,
                ours,
                open,
                ratio(OURS, UCX),
                ratio(OPEN, UCX),
                ratio(OPEN, OURS),
            ]);
        }
        shown.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        shown
    }

    fn document(&self) -> Value {
        let points = self.points.iter().map(|(size, rounds)| {
            json!({
                "size": size,
                "ucx": rounds.median(UCX),
                "ours": rounds.median(OURS),
                "open": rounds.median(OPEN),
                "ours_to_ucx": rounds.ratio(OURS, UCX),
                "open_to_ours": rounds.ratio(OPEN, OURS),
            })
        });
        let points: Vec<Value> = points.collect();
        let unit = self.test.metric.unit();
        json!({ "test": self.test.ours, "layout": self.layout, "unit": unit, "points": points })
    }
}

fn figure(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), digits)
}

impl Contestants<'_> {
    fn measure(&self, whose: usize, test: &Test, layout: &str, size: u64) -> Outcome<f64> {
        let transport = self.transport;
        if whose == UCX {
            let device = if transport == "tcp" { "lo" } else { "memory" };
            let name = test.ucx;
            let repeats = repeats(size, if transport == "tcp" { 10_000 } else { 100_000 });
            let bytes = size + test.header;
            let arguments = format!("-t {name} -x {transport} -d {device} -D {layout} -s {bytes} {repeats}");
            let mut side = Side::new(self.ucx.program.clone(), &self.looped(&arguments), Pin::Option);
            if let Some(libraries) = &self.ucx.libraries {
                side = side.environment("LD_LIBRARY_PATH", &libraries.to_string_lossy());
            }
            let figure = ucx_figure(&side.measure(&["-f", "-v"])?, test.metric)?;
            return Ok(test.without_header(figure, size));
        }
        let name = test.ours;
        // A stream of ours over sockets is collected, so that many more messages pass in the same time.
        let is_slow = transport == "tcp" && test.metric == Metric::Latency;
        let repeats = repeats(size, if is_slow { 10_000 } else { 200_000 });
        let transport =
            if transport == "tcp" { "-x tcp -d lo".to_owned() } else { format!("-x {transport}") };
        let arguments = format!("-t {name} {transport} -D {layout} -s {size} {repeats}");
        let side = Side::new(self.ours.clone(), &self.looped(&arguments), Pin::Option);
        let side = side.server(if whose == OPEN { "" } else { &transport });
        let (pointer, factor) = match test.metric {
            Metric::Latency => ("/results/0/latency/p50_ns", 1.0),
            Metric::Rate => ("/results/0/rate/overall", 1e-6),
            Metric::Bandwidth => ("/results/0/bandwidth/overall", 1e-6),
            Metric::Mean | Metric::Requests | Metric::Cpu => {
                return Err(Failure::new("a sweep does not measure this"));
            }
        };
        json_figure(&side.measure(&["--json"])?, &Figure { pointer: pointer.to_owned(), factor })
    }

    /// `self` connects a process with itself only.
    fn looped(&self, arguments: &str) -> String {
        if self.transport == "self" { format!("-l {arguments}") } else { arguments.to_owned() }
    }
}

/// How many messages are measured, at most so many, and how many ahead of them are not.
fn repeats(size: u64, most: u64) -> String {
    let count = (BYTES / size).clamp(FEWEST, most);
    format!("-n {count} -w {}", count / 10)
}

/// Whether a program says that the size, layout or operation is beyond what the transport can do.
fn is_limit(failure: &Failure) -> bool {
    const SIGNS: [&str; 3] = ["larger than max supported", "does not support operation", "no transport for"];
    let text = failure.to_string();
    SIGNS.iter().any(|sign| text.contains(sign))
}

fn document(contestants: &Contestants, curves: &[Curve]) -> Value {
    let curves: Vec<Value> = curves.iter().map(Curve::document).collect();
    json!({ "transport": contestants.transport, "ucx": contestants.ucx.name, "curves": curves })
}

/// A picture for each operation, with its file's name.
fn pictures(contestants: &Contestants, curves: &[Curve]) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    for test in &TESTS {
        let mut series = Vec::new();
        for curve in curves.iter().filter(|curve| curve.test.ours == test.ours) {
            let colours =
                LAYOUTS.iter().find(|(layout, _)| *layout == curve.layout).map_or([""; 3], |found| found.1);
            let lines = [(UCX, "UCX"), (OURS, "ours"), (OPEN, "open")];
            for ((whose, name), colour) in lines.into_iter().zip(colours) {
                let points = curve.points.iter();
                let points: Vec<(f64, f64)> =
                    points.filter_map(|(size, rounds)| Some((*size as f64, rounds.median(whose)?))).collect();
                if !points.is_empty() {
                    series.push(Series { name: format!("{name} {}", curve.layout), colour, points });
                }
            }
        }
        if series.is_empty() {
            continue;
        }
        let transport = contestants.transport;
        let chart = Chart {
            title: format!("{} over {transport}, beside {}", test.ours, contestants.ucx.name),
            vertical: test.metric.unit().to_owned(),
            horizontal: "bytes of a message".to_owned(),
            series,
        };
        pictures.push((format!("{transport}-{}.svg", test.ours), draw(&chart, tick)));
    }
    pictures
}

/// Bytes as people write them; the ticks are powers of two.
fn tick(bytes: usize) -> String {
    match bytes.trailing_zeros() {
        20.. => format!("{}m", bytes >> 20),
        10.. => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_up_and_lie_between_the_powers_too() {
        let sizes = standard_sizes();
        assert!(sizes.is_sorted() && sizes.first() == Some(&1) && sizes.last() == Some(&LARGEST));
        assert!(BETWEEN.iter().all(|size| sizes.contains(size)) && sizes.len() == 24);
    }

    #[test]
    fn a_measurement_is_neither_long_nor_empty() {
        assert_eq!(repeats(1, 10_000), "-n 10000 -w 1000");
        assert_eq!(repeats(1 << 20, 10_000), "-n 256 -w 25");
        assert_eq!(repeats(1 << 26, 10_000), "-n 200 -w 20");
    }

    #[test]
    fn the_bandwidth_of_ucx_counts_the_header_and_ours_does_not() {
        // 13.424 M messages/s of 8 bytes behind a header of 8.
        assert_eq!(TESTS[1].without_header(214.8, 8), 107.4);
        assert_eq!(TESTS[0].without_header(85.0, 8), 85.0);
        assert_eq!(TESTS[3].without_header(80.0, 8), 80.0);
    }

    #[test]
    fn a_limit_is_no_failure() {
        let limit = "libperf.c:562 UCX ERROR Message size (200) is larger than max supported (100)";
        assert!(is_limit(&Failure::new(limit)));
        assert!(is_limit(&Failure::new("uct_perftest: no transport for am_bcopy of 10008 bytes: …")));
        assert!(!is_limit(&Failure::new("`ucx_perftest` failed: exit status: 1\nConnection reset by peer")));
    }

    #[test]
    fn a_curve_has_a_line_for_each_side_that_was_measured() {
        let mut rounds = Rounds::new(Metric::Latency, None);
        rounds.add([Some(90.0), None, Some(80.0), None]);
        let curve = Curve { test: &TESTS[0], layout: "bcopy", points: vec![(1024, rounds)] };
        let ucx = Peer { program: "ucx_perftest".into(), libraries: None, name: "UCX <1.22>".to_owned() };
        let contestants = Contestants { transport: "posix", ours: "uct_perftest".into(), ucx };
        let table = curve.table().to_string();
        assert!(table.contains("1024") && table.contains("1.12"), "{table}");
        let curves = [curve];
        let document = document(&contestants, &curves);
        assert_eq!(document.pointer("/curves/0/points/0/ours"), Some(&json!(80.0)));
        assert_eq!(document.pointer("/curves/0/points/0/ucx"), Some(&Value::Null));
        let [(name, picture)] = &pictures(&contestants, &curves)[..] else { panic!("one picture") };
        assert_eq!(name, "posix-am_lat.svg");
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(
            picture.contains("ours bcopy")
                && picture.contains("open bcopy")
                && picture.contains("UCX &lt;1.22&gt;"),
            "{picture}"
        );
    }
}
