//! What a user writes: configuration files, variables, and values with units; and the file of measured times.
//!
//! For the list of parsers. Built on the configuration of `ucs`, and on the schema and the selection of the core with what is linked in.

use std::cell::RefCell;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::OnceLock;

use tempfile::{NamedTempFile, TempDir};
use ucs::config::{Config, ConfigError, Schema, Sources};
use ucs::units::{Bandwidth, Count, MemSize, NameList, Range, Ternary, Time, parse_bool};
use uct_core::select::{Calibration, Operation, Times};
use uct_core::{Context, Resource};

/// A context of the defaults.
fn context() -> Context {
    let sources = Sources::default().set("modules", "self,tcp,shm");
    Context::builder().sources(sources).build().expect("the defaults are good")
}

/// All keys that are linked in.
fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| context().schema().clone())
}

/// The interface whose times the seeds have.
fn resource() -> &'static Resource {
    static RESOURCE: OnceLock<Resource> = OnceLock::new();
    RESOURCE.get_or_init(|| context().find("posix", "memory").expect("it is linked in"))
}

/// Errors are human-readable, one for each problem.
fn check(result: Result<ucs::config::Loaded, ConfigError>) {
    match result {
        Ok(loaded) => {
            assert_eq!(loaded.config.iter().count(), schema().keys().count(), "every key has a value")
        }
        Err(error) => {
            assert!(!error.problems().is_empty());
            assert!(error.problems().iter().all(|problem| !problem.to_string().is_empty()));
        }
    }
}

/// Reads a file with these bytes.
fn with_file<T>(bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a file"));
    }
    FILE.with_borrow_mut(|file| {
        file.as_file().set_len(0).expect("it can be cut");
        file.seek(SeekFrom::Start(0)).expect("it can be rewound");
        file.write_all(bytes).expect("it can be written");
        read(file.path())
    })
}

pub(crate) fn file(bytes: &[u8]) {
    check(with_file(bytes, |path| Config::load(schema(), &Sources::default().file(path))));
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let all = schema().to_toml();
    // With the marks of comments removed every key is set.
    let set = all.replace("\n#", "\n");
    let short = "tls = \"tcp,self\"\nrequire = [\"tcp\"]\n[tcp]\ntx_seg_size = 8192\nnodelay = true\n";
    [all, set, short.to_owned()].map(String::into_bytes).to_vec()
}

/// Times that are read are possible ones, and are read again as they are written.
pub(crate) fn calibration(bytes: &[u8]) {
    let calibration = match with_file(bytes, Calibration::read) {
        Ok(calibration) => calibration,
        Err(error) => {
            let reason = error.to_string();
            assert!(!reason.is_empty() && !reason.contains(char::is_control), "{reason:?}");
            return;
        }
    };
    for operation in Operation::ALL {
        let sizes = [0, 1, 8, 1000, 1 << 20, usize::MAX];
        let times = sizes.map(|size| calibration.seconds(resource(), operation, size));
        assert!(times.iter().flatten().all(|time| *time > 0.0 && time.is_finite()), "{times:?}");
    }
    let written = file_of(&calibration);
    let again = with_file(&written, Calibration::read).expect("what is written is read");
    assert_eq!(file_of(&again).escape_ascii().to_string(), written.escape_ascii().to_string());
}

/// The bytes of the file with these times.
fn file_of(calibration: &Calibration) -> Vec<u8> {
    thread_local! {
        static DIRECTORY: TempDir = tempfile::tempdir().expect("a directory");
    }
    DIRECTORY.with(|directory| {
        let path = directory.path().join("calibration.toml");
        calibration.write(&path).expect("it is written");
        fs::read(&path).expect("it is there")
    })
}

pub(crate) fn calibration_seeds() -> Vec<Vec<u8>> {
    let mut calibration = Calibration::default();
    let empty = file_of(&calibration);
    let points = vec![(8, 69.3), (1024, 83.0), (1 << 20, 31_000.5)];
    calibration.set(resource(), Times::from([(Operation::AmShort, vec![(8, 50.0)])]));
    let short = file_of(&calibration);
    calibration.set(resource(), Operation::ALL.map(|operation| (operation, points.clone())).into());
    let whole = file_of(&calibration);
    // Of an earlier version, which has measurements with peers.
    let peers = b"[[peers]]\ninterface = \"tcp/lo\"\naddress = \"ab\"\nname = \"n\"\nat = 7\n[peers.times]\nput_zcopy = [[8, 9000.5]]\n";
    let earlier = [&whole[..], peers].concat();
    vec![empty, short, whole, earlier]
}

/// The first line is a variable and its value, the second a key and its value.
pub(crate) fn values(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(2, '\n');
    let mut sources = Sources::default();
    if let Some((name, value)) = lines.next().and_then(|line| line.split_once('=')) {
        sources = sources.env([(name, value)]);
    }
    if let Some((key, value)) = lines.next().and_then(|line| line.split_once('=')) {
        sources = sources.set(key, value);
    }
    check(Config::load(schema(), &sources));
}

pub(crate) fn value_seeds() -> Vec<Vec<u8>> {
    let seeds = schema().keys().map(|(section, field)| {
        let variable = ucs::config::env_name(&section.name, &field.name);
        let key = ucs::config::key_name(&section.name, &field.name);
        format!("{variable}={}\n{key}={}", field.default, field.default).into_bytes()
    });
    seeds.collect()
}

/// A value that is read is read again from what it is written as.
macro_rules! round_trip {
    ($text:ident, $($unit:ty),*) => {
        $(if let Ok(value) = $text.parse::<$unit>() {
            let written = value.to_string();
            assert_eq!(written.parse::<$unit>().as_ref(), Ok(&value), "{:?} is written as {written:?}", $text);
        })*
    };
}

pub(crate) fn units(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    round_trip!(text, MemSize, Count, Range, Ternary, NameList);
    // These are written in rounded form.
    if let Ok(time) = text.parse::<Time>() {
        assert!(time.seconds() >= 0.0);
        assert!(time.to_string().parse::<Time>().is_ok());
    }
    if let Ok(bandwidth) = text.parse::<Bandwidth>() {
        assert!(bandwidth.is_auto() || bandwidth.bytes_per_second() >= 0.0);
        assert!(bandwidth.to_string().parse::<Bandwidth>().is_ok());
    }
    let _ = parse_bool(text);
}

pub(crate) fn unit_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        "8192",
        "64k",
        "18446744073709551615",
        "16E",
        "inf",
        "auto",
        "1.5ms",
        "0.000001us",
        "10Gbps",
        "100MB/s",
        "8-64",
        "mlx5_0:1,eth*",
        "^tcp,self",
        "all",
        "try",
        "yes",
        "1e400s",
    ];
    seeds.map(|seed| seed.as_bytes().to_vec()).to_vec()
}
