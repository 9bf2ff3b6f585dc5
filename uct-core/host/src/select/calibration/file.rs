//! The file of measured times. It is read with the trust of a configuration file and parsed strictly. If anything in it is wrong, none of it counts.
//! docs/selection.md documents the format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use toml::Value;
use ucs::config::read_trusted;
use ucs::sys::{host, random};

use super::{Calibration, Operation, Point, Times};

/// Of the file that is written.
const VERSION: u32 = 1;
/// The last version that is read. Versions 2 and 3 also have measurements with peers, which are ignored.
const LAST_VERSION: u32 = 3;
/// Most interfaces of a file, and most points of an operation: more than any measurement has.
pub(super) const MAX_IFACES: usize = 1024;
pub(super) const MAX_POINTS: usize = 64;
/// Times of operations, in nanoseconds: from the least that is written to 1000 seconds.
pub(super) const MIN_NANOSECONDS: f64 = 0.1;
pub(super) const MAX_NANOSECONDS: f64 = 1e12;

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

/// What a file of any version has.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: u32,
    boot: String,
    #[serde(default)]
    interfaces: BTreeMap<String, Operations>,
    /// Of versions 2 and 3.
    #[serde(default, rename = "peers")]
    _peers: IgnoredAny,
}

/// The entries of an interface.
type Operations = BTreeMap<Operation, Vec<Value>>;

impl Calibration {
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

    pub(super) fn parse(text: &str, boot: &str) -> Result<Calibration, CalibrationError> {
        // Another version may have other fields.
        let AnyVersion { version } = deserialize(text)?;
        if !(VERSION..=LAST_VERSION).contains(&version) {
            let reason = format!("it has version {version}, expected {VERSION} to {LAST_VERSION}");
            return Err(CalibrationError::Stale(reason));
        }
        let file: File = deserialize(text)?;
        if file.boot != boot {
            return Err(CalibrationError::Stale("it was measured before the machine was booted".to_owned()));
        }
        Calibration::of(file).map_err(CalibrationError::Unusable)
    }

    fn of(file: File) -> Result<Calibration, String> {
        let count = file.interfaces.len();
        if count > MAX_IFACES {
            return Err(format!("{count} interfaces, expected at most {MAX_IFACES}"));
        }
        let ifaces = file.interfaces.into_iter().map(|(name, operations)| {
            let times = times(&name, operations)?;
            Ok((name, times))
        });
        Ok(Calibration { ifaces: ifaces.collect::<Result<_, String>>()? })
    }

    pub(super) fn to_toml(&self, boot: &str) -> String {
        let mut text = format!(
            "# Times of operations, measured by uct_info --calibrate between two threads of this machine.\n\
             # Each entry is a size in bytes and a time in nanoseconds.\n\
             version = {VERSION}\nboot = \"{boot}\"\n"
        );
        for (name, times) in &self.ifaces {
            let _ = writeln!(text, "\n[interfaces.{}]", Value::from(name.as_str()));
            text += &entries(times);
        }
        text
    }
}

fn deserialize<T: DeserializeOwned>(text: &str) -> Result<T, CalibrationError> {
    toml::from_str(text).map_err(|error| {
        let end = error.span().map_or(text.len(), |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count();
        let message = error.message().replace(char::is_control, " ");
        CalibrationError::Unusable(format!("line {line}: {message}"))
    })
}

/// The lines of an interface. What is written is read again, so a time is within the limits, whatever was measured.
fn entries(times: &Times) -> String {
    let mut text = String::new();
    for (operation, points) in times {
        let point =
            |&(size, time): &Point| format!("[{size}, {:.1}]", time.clamp(MIN_NANOSECONDS, MAX_NANOSECONDS));
        let points: Vec<String> = points.iter().map(point).collect();
        let _ = writeln!(text, "{} = [{}]", operation.name(), points.join(", "));
    }
    text
}

/// The times of an interface, checked.
fn times(iface: &str, operations: Operations) -> Result<Times, String> {
    let checked = |(operation, entries): (Operation, Vec<Value>)| match points(&entries) {
        Ok(points) => Ok((operation, points)),
        Err(problem) => Err(format!("{iface:?}, {}: {problem}", operation.name())),
    };
    operations.into_iter().map(checked).collect()
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
