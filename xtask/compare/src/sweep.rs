//! `cargo xtask compare --sweep TRANSPORT`: latency and bandwidth over the size of the message, of every operation and layout: the
//! newest UCX, ours with the transport named on both sides, and ours with every transport open at the server.
//! A figure is the median of the measurements that found the processors in one placement. A round measures all sizes, so that the
//! measurements of one size lie some time apart.
//! Built on the measurements and placements of `compare`.

#[path = "../../../tools/uct_perftest/src/chart.rs"]
mod chart;

use super::measure::{self, Pin, Side, json_figure, ucx_figure};
use super::placement::{self, Awake, Placement};
use super::rounds::{OPEN, OURS, UCX, median};
use super::table::{Figure, Metric};
use super::wheel::Peer;
use super::{apt, digits};
use crate::apt::Package;
use crate::failure::{Context, Failure, Outcome};
use crate::workspace::Workspace;
use chart::{Chart, Series, draw};
use clap::Args;
use comfy_table::{CellAlignment, presets::UTF8_FULL_CONDENSED};
use serde_json::{Value, json};
use std::collections::BTreeMap;
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

    /// Draw a picture for each operation, TRANSPORT-OPERATION.svg in this directory; with `-near` and `-distant` if the processors
    /// moved
    #[arg(long, value_name = "DIRECTORY", requires = "sweep")]
    svg: Option<PathBuf>,
}

/// Rounds of a point: each placement needs some.
const ROUNDS: u8 = 9;
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

/// What is measured: a test in one layout, and what was taken of it.
struct Curve {
    test: &'static Test,
    layout: &'static str,
    taken: Vec<Taken>,
}

/// One measurement.
struct Taken {
    size: u64,
    whose: usize,
    /// Time of a cache line meanwhile; `None` if a processor moved.
    cache_line: Option<f64>,
    figure: f64,
}

/// What was measured of each size in one placement.
type Points = BTreeMap<u64, Point>;

/// The figures of each of the three.
#[derive(Default)]
struct Point([Vec<f64>; 3]);

impl Point {
    fn median(&self, whose: usize) -> Option<f64> {
        median(self.0[whose].clone())
    }

    fn ratio(&self, of: usize, to: usize) -> Option<f64> {
        Some(self.median(of)? / self.median(to)?)
    }
}

/// What is measured.
struct Contestants<'a> {
    transport: &'a str,
    ours: PathBuf,
    ucx: Peer,
    /// The program that measures the time of a cache line.
    cache_line: PathBuf,
}

/// Measures and prints the curves. What fails is shown, and the status is 1.
pub fn run(transport: &str, options: &super::Options, workspace: &Workspace) -> Outcome<u8> {
    apt::require(&[Package { name: "util-linux", brings: "/usr/bin/taskset" }])?;
    let mut awake = Awake::start()?;
    let sweeping = &options.sweeping;
    let ucx = match &sweeping.ucx {
        Some(program) => Peer::of(program)?,
        None => Peer::of_wheel(workspace.target())?,
    };
    let built = workspace.build_packages("release", ["uct_perftest"].into_iter())?;
    let floors = workspace.target().join("floors");
    measure::compile_floors(&workspace.root().join(super::FLOORS), &floors)?;
    let ours = built.program("uct_perftest")?.to_owned();
    let contestants = Contestants { transport, ours, ucx, cache_line: floors.join("cacheline") };
    let sizes = if sweeping.sizes.is_empty() { standard_sizes() } else { sweeping.sizes.clone() };
    let is_wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));

    let (mut curves, mut complaints) = (Vec::new(), Vec::new());
    for test in &TESTS {
        for (layout, _) in LAYOUTS {
            let mut curve = Curve { test, layout, taken: Vec::new() };
            if is_wanted(&curve.name()) {
                curve.measure(&contestants, &sizes, options.rounds(ROUNDS), &mut complaints)?;
                curves.extend((!curve.taken.is_empty()).then_some(curve));
            }
        }
    }
    if curves.is_empty() {
        let names = "expected a part of a name such as `am_lat bcopy`";
        complaints.push(format!("nothing was measured over {transport}; NAME: {names}"));
    }
    let taken: Vec<&Taken> = curves.iter().flat_map(|curve| &curve.taken).collect();
    let placements = placement::placements(taken.iter().filter_map(|taken| taken.cache_line).collect());
    if placements.is_empty() && !taken.is_empty() {
        complaints
            .push("the processors moved all the time, and were in no placement often enough".to_owned());
    }
    complaints.extend(awake.complaint());
    for placement in &placements {
        println!("{}, in {} of {} measurements:", placement.name(), placement.count, taken.len());
        for curve in &curves {
            let points = curve.points(placement);
            println!("{} over {transport}, {}\n{}", curve.name(), curve.test.metric.unit(), table(&points));
        }
    }
    println!(
        "Beside {}, in turn; medians, and ratios of medians. No figure: the size is beyond a limit, or no measurement found this\n\
         placement. open: ours with every transport open at the server.",
        contestants.ucx.name
    );
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", document(&contestants, &placements, &curves));
        std::fs::write(file, text).context(|| format!("--json {}", file.display()))?;
    }
    if let Some(directory) = &sweeping.svg {
        std::fs::create_dir_all(directory).context(|| format!("--svg {}", directory.display()))?;
        for (suffix, placement) in placement::ends(&placements) {
            for (name, picture) in pictures(&contestants, placement, &curves) {
                let file = directory.join(format!("{name}{suffix}.svg"));
                std::fs::write(&file, picture).context(|| format!("--svg {}", file.display()))?;
            }
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

    /// In each round all sizes from small to large, of each size the three in turn. One that a size is too large for is not asked again.
    fn measure(
        &mut self,
        contestants: &Contestants,
        sizes: &[u64],
        wanted: u8,
        complaints: &mut Vec<String>,
    ) -> Outcome {
        // The size from which on it is not measured.
        let mut ends = [u64::MAX; 3];
        let mut before = Some(measure::cache_line(&contestants.cache_line)?);
        for round in 0..usize::from(wanted) {
            if ends.iter().all(|end| sizes.iter().all(|size| size >= end)) {
                break;
            }
            eprintln!("{} over {}, round {} of {wanted}", self.name(), contestants.transport, round + 1);
            for (&size, turn) in sizes.iter().flat_map(|size| (0..3).map(move |turn| (size, turn))) {
                let whose = (round + turn) % 3;
                if size >= ends[whose] {
                    continue;
                }
                match contestants.measure(whose, self.test, self.layout, size) {
                    Ok(figure) => {
                        let behind = measure::cache_line(&contestants.cache_line).ok();
                        let cache_line = placement::during(before, behind);
                        self.taken.push(Taken { size, whose, cache_line, figure });
                        before = behind;
                    }
                    Err(failure) => {
                        ends[whose] = size;
                        if !is_limit(&failure) {
                            complaints.push(format!("{} of {size} bytes: {failure}", self.name()));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn points(&self, placement: &Placement) -> Points {
        let mut points = Points::new();
        for taken in &self.taken {
            let point = points.entry(taken.size).or_default();
            if taken.cache_line.is_some_and(|time| placement.contains(time)) {
                point.0[taken.whose].push(taken.figure);
            }
        }
        points
    }

    fn document(&self, placement: &Placement) -> Value {
        let points = self.points(placement);
        let points = points.iter().map(|(size, point)| {
            json!({
                "size": size,
                "ucx": point.median(UCX),
                "ours": point.median(OURS),
                "open": point.median(OPEN),
                "ours_to_ucx": point.ratio(OURS, UCX),
                "open_to_ours": point.ratio(OPEN, OURS),
                "measurements": { "ucx": point.0[UCX], "ours": point.0[OURS], "open": point.0[OPEN] },
            })
        });
        let points: Vec<Value> = points.collect();
        let unit = self.test.metric.unit();
        json!({ "test": self.test.ours, "layout": self.layout, "unit": unit, "points": points })
    }
}

fn table(points: &Points) -> comfy_table::Table {
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let mut shown = comfy_table::Table::new();
    shown.load_style(UTF8_FULL_CONDENSED);
    shown.set_header(["bytes", "UCX", "ours", "open", "ours/UCX", "open/UCX", "open/ours", "measured"]);
    for (size, point) in points {
        let [ucx, ours, open] = [UCX, OURS, OPEN].map(|whose| or_dash(point.median(whose).map(digits)));
        let [first, second, third] = [(OURS, UCX), (OPEN, UCX), (OPEN, OURS)]
            .map(|(of, to)| or_dash(point.ratio(of, to).map(|ratio| format!("{ratio:.2}"))));
        let counts = [UCX, OURS, OPEN].map(|whose| point.0[whose].len().to_string()).join(" ");
        shown.add_row([size.to_string(), ucx, ours, open, first, second, third, counts]);
    }
    shown.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    shown
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

fn document(contestants: &Contestants, placements: &[Placement], curves: &[Curve]) -> Value {
    let placements = placements.iter().map(|placement| {
        let curves: Vec<Value> = curves.iter().map(|curve| curve.document(placement)).collect();
        json!({ "placement": placement.name(), "measurements": placement.count, "curves": curves })
    });
    let placements: Vec<Value> = placements.collect();
    json!({ "transport": contestants.transport, "ucx": contestants.ucx.name, "placements": placements })
}

/// A picture for each operation in one placement, with its name.
fn pictures(contestants: &Contestants, placement: &Placement, curves: &[Curve]) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    for test in &TESTS {
        let mut series = Vec::new();
        for curve in curves.iter().filter(|curve| curve.test.ours == test.ours) {
            let colours =
                LAYOUTS.iter().find(|(layout, _)| *layout == curve.layout).map_or([""; 3], |found| found.1);
            let lines = [(UCX, "UCX"), (OURS, "ours"), (OPEN, "open")];
            let measured = curve.points(placement);
            for ((whose, name), colour) in lines.into_iter().zip(colours) {
                let points = measured.iter();
                let points: Vec<(f64, f64)> =
                    points.filter_map(|(size, point)| Some((*size as f64, point.median(whose)?))).collect();
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
            title: format!(
                "{} over {transport}, beside {}; {}",
                test.ours,
                contestants.ucx.name,
                placement.name()
            ),
            vertical: test.metric.unit().to_owned(),
            horizontal: "bytes of a message".to_owned(),
            series,
        };
        pictures.push((format!("{transport}-{}", test.ours), draw(&chart, tick)));
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
        let taken =
            |whose, cache_line, figure| Taken { size: 1024, whose, cache_line: Some(cache_line), figure };
        let taken = vec![
            taken(OPEN, 40.0, 90.0),
            taken(OURS, 41.0, 80.0),
            taken(OURS, 42.0, 80.0),
            taken(OURS, 130.0, 180.0),
        ];
        let curve = Curve { test: &TESTS[0], layout: "bcopy", taken };
        let placements = placement::placements(vec![40.0, 41.0, 130.0]);
        let ucx = Peer { program: "ucx_perftest".into(), libraries: None, name: "UCX <1.22>".to_owned() };
        let (ours, cache_line) = ("uct_perftest".into(), "cacheline".into());
        let contestants = Contestants { transport: "posix", ours, ucx, cache_line };
        let table = table(&curve.points(&placements[0])).to_string();
        assert!(table.contains("1024") && table.contains("1.12"), "{table}");
        let curves = [curve];
        let document = document(&contestants, &placements, &curves);
        assert_eq!(document.pointer("/placements/0/curves/0/points/0/ours"), Some(&json!(80.0)));
        assert_eq!(document.pointer("/placements/0/curves/0/points/0/ucx"), Some(&Value::Null));
        assert_eq!(document.pointer("/placements/1/curves/0/points/0/ours"), Some(&json!(180.0)));
        let [(name, picture)] = &pictures(&contestants, &placements[0], &curves)[..] else {
            panic!("one picture")
        };
        assert_eq!(name, "posix-am_lat");
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(
            picture.contains("ours bcopy")
                && picture.contains("open bcopy")
                && picture.contains("UCX &lt;1.22&gt;"),
            "{picture}"
        );
    }
}
