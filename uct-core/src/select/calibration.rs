//! Measured times of operations: the file that `uct_info --calibrate` writes, and what selection finds in it.
//!
//! The file is read with the trust of a configuration file and parsed strictly. If anything in it is wrong, none of it counts.
//! docs/selection.md documents the format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Deserialize;
use toml::Value;
use ucs::config::read_trusted;
use ucs::sys::{host, random};

use super::request::Operation;
use crate::resource::Resource;

const VERSION: u32 = 1;
/// Most interfaces of a file, and most points of an operation: more than any measurement has.
const MAX_IFACES: usize = 1024;
const MAX_POINTS: usize = 64;
/// Times of operations, in nanoseconds: from the least that is written to 1000 seconds.
const MIN_NANOSECONDS: f64 = 0.1;
const MAX_NANOSECONDS: f64 = 1e12;

/// Bytes of an operation, and its time in nanoseconds.
pub type Point = (u64, f64);
/// The times of an interface: for each operation by ascending size.
pub type Times = BTreeMap<Operation, Vec<Point>>;

/// Times of operations that were measured on this machine since it was booted, each interface with itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// By name: `posix/memory`.
    ifaces: BTreeMap<String, Times>,
}

/// Why nothing of a file of measured times counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// It was written before the machine was booted, or by another version of this library. It has no effect until the times are measured
    /// again.
    #[error("{0}")]
    Stale(String),
    /// It is damaged, or another user may have written it.
    #[error("{0}")]
    Unusable(String),
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    boot: String,
    #[serde(default)]
    interfaces: BTreeMap<String, BTreeMap<Operation, Vec<Value>>>,
}

impl Calibration {
    /// Sets the times of an interface in place of those that there are. Operations without a point are left out.
    pub fn set(&mut self, resource: &Resource, mut times: Times) {
        times.retain(|_, points| !points.is_empty());
        self.ifaces.insert(resource.to_string(), times);
    }

    /// Whether an interface was measured.
    pub fn contains(&self, resource: &Resource) -> bool {
        self.ifaces.contains_key(&resource.to_string())
    }

    /// The seconds that an operation of this size takes on an interface: between two sizes that were measured in proportion, above them as
    /// between the last two. `None` if it was not measured.
    pub fn seconds(&self, resource: &Resource, operation: Operation, size: usize) -> Option<f64> {
        if self.ifaces.is_empty() {
            return None;
        }
        let points = self.ifaces.get(&resource.to_string())?.get(&operation)?;
        nanoseconds(points, size as u64).map(|time| time * 1e-9)
    }

    /// Reads a file. One that is not there has no times.
    ///
    /// # Errors
    /// Why nothing of it counts.
    pub fn read(path: &Path) -> Result<Calibration, CalibrationError> {
        match read_trusted(path).map_err(CalibrationError::Unusable)? {
            Some(text) => Calibration::parse(&text, &host::host_id().to_string()),
            None => Ok(Calibration::default()),
        }
    }

    /// Writes the file in one step: another process reads the old or the new one. Makes its directory.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let directory = match path.parent() {
            Some(directory) if directory != Path::new("") => directory,
            _ => Path::new("."),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let unique = random::secret().map_err(|error| io::Error::other(error.to_string()))?;
        let temporary = directory.join(format!(".calibration-{unique:016x}"));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let text = self.to_toml(&host::host_id().to_string());
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn parse(text: &str, boot: &str) -> Result<Calibration, CalibrationError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let end = error.span().map_or(text.len(), |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count();
            let message = error.message().replace(char::is_control, " ");
            CalibrationError::Unusable(format!("line {line}: {message}"))
        })?;
        if file.version != VERSION {
            let reason = format!("it has version {}, expected {VERSION}", file.version);
            return Err(CalibrationError::Stale(reason));
        }
        if file.boot != boot {
            return Err(CalibrationError::Stale("it was measured before the machine was booted".to_owned()));
        }
        Calibration::of(file.interfaces).map_err(CalibrationError::Unusable)
    }

    fn of(interfaces: BTreeMap<String, BTreeMap<Operation, Vec<Value>>>) -> Result<Calibration, String> {
        if interfaces.len() > MAX_IFACES {
            return Err(format!("{} interfaces, expected at most {MAX_IFACES}", interfaces.len()));
        }
        let mut ifaces = BTreeMap::new();
        for (name, operations) in interfaces {
            let mut times = Times::new();
            for (operation, entries) in operations {
                let points = points(&entries);
                let points =
                    points.map_err(|problem| format!("{name:?}, {}: {problem}", operation.name()))?;
                times.insert(operation, points);
            }
            ifaces.insert(name, times);
        }
        Ok(Calibration { ifaces })
    }

    fn to_toml(&self, boot: &str) -> String {
        let mut text = format!(
            "# Times of operations between two threads of this machine, measured by uct_info --calibrate.\n\
             # Each entry is a size in bytes and a time in nanoseconds.\n\
             version = {VERSION}\nboot = \"{boot}\"\n"
        );
        for (name, times) in &self.ifaces {
            let _ = writeln!(text, "\n[interfaces.{}]", Value::from(name.as_str()));
            for (operation, points) in times {
                let points: Vec<String> =
                    points.iter().map(|(size, time)| format!("[{size}, {time:.1}]")).collect();
                let _ = writeln!(text, "{} = [{}]", operation.name(), points.join(", "));
            }
        }
        text
    }
}

/// The points of an operation, checked.
fn points(entries: &[Value]) -> Result<Vec<Point>, String> {
    if entries.is_empty() || entries.len() > MAX_POINTS {
        return Err(format!("{} entries, expected 1 to {MAX_POINTS}", entries.len()));
    }
    let points = (1..).zip(entries).map(|(number, entry)| {
        point(entry).ok_or_else(|| format!("entry {number}: expected [BYTES, NANOSECONDS]"))
    });
    let points: Vec<Point> = points.collect::<Result<_, _>>()?;
    if let Some(pair) = points.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("size {} follows {}, expected a larger one", pair[1].0, pair[0].0));
    }
    match points.iter().find(|(_, time)| !(MIN_NANOSECONDS..=MAX_NANOSECONDS).contains(time)) {
        Some((_, time)) => {
            Err(format!("{time} nanoseconds, expected {MIN_NANOSECONDS} to {MAX_NANOSECONDS}"))
        }
        None => Ok(points),
    }
}

fn point(entry: &Value) -> Option<Point> {
    let [size, time] = entry.as_array()?.as_slice() else { return None };
    let time = time.as_float().or_else(|| Some(time.as_integer()? as f64))?;
    Some((u64::try_from(size.as_integer()?).ok()?, time))
}

/// The time at a size, by the points around it. Above a single point it is unknown.
fn nanoseconds(points: &[Point], size: u64) -> Option<f64> {
    let &(least, time) = points.first()?;
    if size <= least {
        return Some(time);
    }
    let above = points.partition_point(|point| point.0 < size).min(points.len() - 1);
    let (low, high) = (points[above.checked_sub(1)?], points[above]);
    let slope = (high.1 - low.1) / (high.0 - low.0) as f64;
    Some(match size.checked_sub(high.0) {
        Some(beyond) => high.1 + beyond as f64 * slope.max(0.0),
        None => low.1 + (size - low.0) as f64 * slope,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::process::Command;

    use super::*;
    use crate::configuration::Sources;
    use crate::context::Context;

    const BOOT: &str = "00112233445566778899aabbccddeeff";

    fn resource() -> Resource {
        let sources = Sources::default().set("modules", "self");
        let context = Context::builder().sources(sources).build().expect("a context");
        context.find("self", "memory").expect("it is built in")
    }

    fn calibration() -> Calibration {
        let mut calibration = Calibration::default();
        let times = [
            (Operation::AmShort, vec![(8, 50.5), (88, 90.0)]),
            (Operation::PutZcopy, vec![(8, 100.0), (1024, 200.0), (2048, 300.0)]),
            (Operation::GetShort, Vec::new()),
        ];
        calibration.set(&resource(), Times::from(times));
        calibration
    }

    /// A file with these entries of one operation.
    fn with_entries(entries: &str) -> String {
        format!("version = 1\nboot = \"{BOOT}\"\n[interfaces.\"self/memory\"]\nam_short = {entries}\n")
    }

    #[test]
    fn what_is_written_is_read() {
        let text = calibration().to_toml(BOOT);
        assert_eq!(Calibration::parse(&text, BOOT), Ok(calibration()), "{text}");
        let empty = Calibration::default();
        assert_eq!(Calibration::parse(&empty.to_toml(BOOT), BOOT), Ok(empty));
    }

    #[test]
    fn a_time_is_in_proportion_between_two_sizes_and_grows_as_before_above_them() {
        let calibration = calibration();
        let time = |operation, size| {
            let seconds = calibration.seconds(&resource(), operation, size)?;
            Some((seconds * 1e10).round() / 10.0)
        };
        let put = |size| time(Operation::PutZcopy, size);
        assert_eq!(
            [0, 8, 516, 1024, 1536, 2048, 3072].map(put),
            [Some(100.0), Some(100.0), Some(150.0), Some(200.0), Some(250.0), Some(300.0), Some(400.0)]
        );
        assert_eq!(time(Operation::GetShort, 8), None);
        assert_eq!(nanoseconds(&[(8, 50.0)], 8), Some(50.0));
        assert_eq!(nanoseconds(&[(8, 50.0)], 9), None, "one point has no slope");
        assert_eq!(nanoseconds(&[(8, 50.0), (16, 40.0)], 1 << 20), Some(40.0), "no time falls with the size");
        assert_eq!(nanoseconds(&[], 8), None);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_the_place() {
        let reason = |text: &str| Calibration::parse(text, BOOT).expect_err(text).to_string();
        let cases = [
            ("", "line 1: missing field `version`"),
            ("version = 1\n", "missing field `boot`"),
            ("version = 1\nboot = \"\u{1}\"\n", "line 2: "),
            ("version = 1\nboot = \"x\"\nversion = 1\n", "line 3: duplicate key"),
            ("version = 2\nboot = \"x\"\n", "version 2, expected 1"),
            ("version = -1\nboot = \"x\"\n", "line 1: "),
            ("version = 1\nboot = \"x\"\n", "before the machine was booted"),
            ("version = 1\nboot = 1\n", "line 2: invalid type"),
            ("version = 1\nboot = \"x\"\nmore = 1\n", "line 3: unknown field `more`"),
            ("[[[[", "line 1: "),
        ];
        for (text, words) in cases {
            let error = reason(text);
            assert!(error.contains(words) && !error.contains(char::is_control), "{text:?}: {error}");
        }
        let cases = [
            ("[]", "\"self/memory\", am_short: 0 entries, expected 1 to 64"),
            ("[[8, 1.0], [8, 2.0]]", "size 8 follows 8"),
            ("[[8, 1.0], [7, 2.0]]", "size 7 follows 8"),
            ("[[8, 0.0]]", "0 nanoseconds, expected 0.1 to 1000000000000"),
            ("[[8, 0.09]]", "0.09 nanoseconds"),
            ("[[8, -1.0]]", "-1 nanoseconds"),
            ("[[8, nan]]", "NaN nanoseconds"),
            ("[[8, inf]]", "inf nanoseconds"),
            ("[[8, 1e13]]", "10000000000000 nanoseconds"),
            ("[[-8, 1.0]]", "entry 1: expected [BYTES, NANOSECONDS]"),
            ("[[8, 1.0], [16]]", "entry 2: expected"),
            ("[[8, 1.0, 2.0]]", "entry 1: expected"),
            ("[[8.0, 1.0]]", "entry 1: expected"),
            ("[[8, \"1\"]]", "entry 1: expected"),
            ("8", "line 4: invalid type"),
            ("[[8, 1.0]]\nam_shor = [[8, 1.0]]", "line 5: unknown variant `am_shor`"),
        ];
        for (entries, words) in cases {
            let error = reason(&with_entries(entries));
            assert!(error.contains(words) && !error.contains(char::is_control), "{entries}: {error}");
        }
        assert!(Calibration::parse(&with_entries("[[8, 1]]"), BOOT).is_ok(), "a whole number is a time");
    }

    #[test]
    fn a_file_of_another_boot_or_version_is_stale_and_any_other_problem_makes_it_unusable() {
        let is_stale = |text: &str| {
            matches!(Calibration::parse(text, BOOT).expect_err(text), CalibrationError::Stale(_))
        };
        let whole = with_entries("[[8, 1.0]]");
        assert!(is_stale(&whole.replace(BOOT, "another")));
        assert!(is_stale(&whole.replace("version = 1", "version = 2")));
        for damaged in [with_entries("[]"), whole.replace("boot", "boat"), whole.replace('[', "")] {
            assert!(!is_stale(&damaged), "{damaged}");
        }
    }

    #[test]
    fn limits_of_numbers_are_exact() {
        let entries = |count: usize| {
            let entries: Vec<String> = (0..count).map(|size| format!("[{size}, 1.0]")).collect();
            with_entries(&format!("[{}]", entries.join(", ")))
        };
        assert!(Calibration::parse(&entries(MAX_POINTS), BOOT).is_ok());
        assert!(Calibration::parse(&entries(MAX_POINTS + 1), BOOT).is_err());
        let ifaces = |count: usize| {
            let tables = (0..count).map(|number| format!("[interfaces.\"{number}\"]\n"));
            format!("version = 1\nboot = \"{BOOT}\"\n{}", tables.collect::<String>())
        };
        assert!(Calibration::parse(&ifaces(MAX_IFACES), BOOT).is_ok());
        assert!(Calibration::parse(&ifaces(MAX_IFACES + 1), BOOT).is_err());
        assert!(Calibration::parse(&"[".repeat(100_000), BOOT).is_err(), "no depth is followed");
        let nested = with_entries(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)));
        assert!(Calibration::parse(&nested, BOOT).is_err());
    }

    #[test]
    fn cut_and_changed_files_never_panic() {
        let whole = calibration().to_toml(BOOT);
        for length in 0..whole.len() {
            let _ = Calibration::parse(&whole[..length], BOOT);
        }
        for index in 0..whole.len() {
            for byte in ['\0', '[', ']', '"', '=', '\n', '9', '-', 'e'] {
                let mut changed = whole.clone();
                changed.replace_range(index..=index, &byte.to_string());
                let _ = Calibration::parse(&changed, BOOT);
            }
        }
    }

    #[test]
    fn a_file_is_written_with_its_directory_for_its_user_alone_and_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("uct/calibration.toml");
        assert_eq!(Calibration::read(&path), Ok(Calibration::default()), "none is no error");
        for _ in 0..2 {
            calibration().write(&path).expect("it is written");
            assert_eq!(Calibration::read(&path), Ok(calibration()));
        }
        assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        let files = fs::read_dir(directory.path().join("uct")).expect("it is there").count();
        assert_eq!(files, 1, "nothing else is left");
        assert!(calibration().write(&path.join("below/a/file")).is_err());
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_none_is_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = |name: &str| directory.path().join(name);
        let reason = |path: &Path| {
            let error = Calibration::read(path).expect_err("it cannot be used");
            assert!(matches!(error, CalibrationError::Unusable(_)), "{error:?}");
            error.to_string()
        };
        let path = place("calibration.toml");
        calibration().write(&path).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("its mode");
        assert!(reason(&path).contains("every user may write"));
        assert!(reason(directory.path()).contains("a directory"));
        symlink("/dev/null", place("null")).expect("a link");
        assert!(reason(&place("null")).contains("a device"));
        let made = Command::new("mkfifo").arg(place("fifo")).status().expect("mkfifo runs");
        assert!(made.success());
        assert!(reason(&place("fifo")).contains("a FIFO"));
        fs::write(place("large"), vec![b'#'; (1 << 20) + 1]).expect("a file");
        assert!(reason(&place("large")).contains("1 MiB"));
        fs::write(place("bytes"), [0xff]).expect("a file");
        assert!(reason(&place("bytes")).contains("UTF-8"));
    }
}
