//! What a user writes: configuration files, variables, and values with units.
//!
//! For the list of parsers. Built on the configuration of `ucs` and on the schema of the core with what is linked in.

use std::cell::RefCell;
use std::io::{Seek, SeekFrom, Write};
use std::sync::OnceLock;

use tempfile::NamedTempFile;
use ucs::config::{Config, ConfigError, Schema, Sources};
use ucs::units::{Bandwidth, Count, MemSize, NameList, Range, Ternary, Time, parse_bool};
use uct_core::Context;

/// All keys that are linked in.
fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let sources = Sources::default().set("modules", "self,tcp,shm");
        Context::builder().sources(sources).build().expect("the defaults are good").schema().clone()
    })
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

pub(crate) fn file(bytes: &[u8]) {
    thread_local! {
        static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a file"));
    }
    FILE.with_borrow_mut(|file| {
        file.as_file().set_len(0).expect("it can be cut");
        file.seek(SeekFrom::Start(0)).expect("it can be rewound");
        file.write_all(bytes).expect("it can be written");
        check(Config::load(schema(), &Sources::default().file(file.path())));
    });
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    let all = schema().to_toml();
    // With the marks of comments removed every key is set.
    let set = all.replace("\n#", "\n");
    let short = "tls = \"tcp,self\"\nrequire = [\"tcp\"]\n[tcp]\ntx_seg_size = 8192\nnodelay = true\n";
    [all, set, short.to_owned()].map(String::into_bytes).to_vec()
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
