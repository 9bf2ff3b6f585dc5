//! The file of measured times. It is read with the trust of a configuration file and parsed strictly. If anything in it is wrong, none of it counts.
//! docs/selection.md documents the format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;
use ucs::config::read_trusted;
use ucs::sys::{host, random};

use super::{Calibration, MAX_PEERS, MeasuredPeer, Operation, PeerTimes, Point, Times};

const VERSION: u32 = 3;
/// The first version, which has no peers; the second one has no times of registered memory.
const FIRST_VERSION: u32 = 1;
/// Most interfaces of a file, and most points of an operation: more than any measurement has.
pub(super) const MAX_IFACES: usize = 1024;
pub(super) const MAX_POINTS: usize = 64;
/// Bytes of the longest device address, and of the longest name of a peer.
pub(super) const MAX_ADDRESS: usize = 255;
pub(super) const MAX_NAME: usize = 255;
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
    #[serde(default)]
    peers: Vec<FilePeer>,
}

/// The entries of an interface.
type Operations = BTreeMap<Operation, Vec<Value>>;

/// A measurement with a peer as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePeer {
    interface: String,
    address: String,
    name: String,
    at: u64,
    times: Operations,
    #[serde(default)]
    registered: Operations,
}

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
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            let reason = format!("it has version {version}, expected {VERSION}");
            return Err(CalibrationError::Stale(reason));
        }
        let file: File = deserialize(text)?;
        if file.boot != boot {
            return Err(CalibrationError::Stale("it was measured before the machine was booted".to_owned()));
        }
        Calibration::of(file).map_err(CalibrationError::Unusable)
    }

    fn of(file: File) -> Result<Calibration, String> {
        let check = |count: usize, most: usize, what: &str| match count > most {
            true => Err(format!("{count} {what}, expected at most {most}")),
            false => Ok(()),
        };
        check(file.interfaces.len(), MAX_IFACES, "interfaces")?;
        check(file.peers.len(), MAX_PEERS, "peers")?;
        let mut calibration = Calibration::default();
        for (name, operations) in file.interfaces {
            let times = times(&name, operations)?;
            calibration.ifaces.insert(name, times);
        }
        for peer in file.peers {
            calibration.peers.push(peer.check()?);
        }
        let mut keys: Vec<(&str, &[u8])> =
            calibration.peers.iter().map(|it| (it.iface.as_str(), &*it.device)).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("{:?} has a peer twice", pair[0].0)),
            None => Ok(calibration),
        }
    }

    pub(super) fn to_toml(&self, boot: &str) -> String {
        let mut text = format!(
            "# Times of operations, measured by uct_info --calibrate: between two threads of this machine, and with peers.\n\
             # Each entry is a size in bytes and a time in nanoseconds. Peers are in the order of their measurements.\n\
             version = {VERSION}\nboot = \"{boot}\"\n"
        );
        for (name, times) in &self.ifaces {
            let _ = writeln!(text, "\n[interfaces.{}]", Value::from(name.as_str()));
            text += &entries(times);
        }
        for PeerTimes { iface, device, peer, times, registered } in &self.peers {
            let [iface, name] = [iface, &peer.name].map(|text| Value::from(text.as_str()));
            let address: String = device.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(
                text,
                "\n[[peers]]\ninterface = {iface}\naddress = \"{address}\"\nname = {name}\nat = {}",
                peer.at
            );
            text += "[peers.times]\n";
            text += &entries(times);
            if !registered.is_empty() {
                text += "[peers.registered]\n";
                text += &entries(registered);
            }
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

impl FilePeer {
    fn check(self) -> Result<PeerTimes, String> {
        let FilePeer { interface: iface, address, name, at, times: operations, registered } = self;
        let device = bytes(&address).filter(|device| (1..=MAX_ADDRESS).contains(&device.len()));
        let device = device.ok_or_else(|| {
            format!(
                "{iface:?}: its peer has no device address of 1 to {MAX_ADDRESS} bytes in hexadecimal digits"
            )
        })?;
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            return Err(format!("{iface:?}: the name of its peer: expected 1 to {MAX_NAME} characters"));
        }
        if let Some(message) = registered.keys().find(|operation| operation.is_message()) {
            return Err(format!("{iface:?}, {}: a message has no memory of the peer", message.name()));
        }
        let [times, registered] = [times(&iface, operations)?, times(&iface, registered)?];
        Ok(PeerTimes { iface, device, peer: MeasuredPeer { name, at }, times, registered })
    }
}

/// The bytes that hexadecimal digits stand for.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
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
