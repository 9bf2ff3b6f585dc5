//! Lookup in measured times, and their file: good, damaged, of another boot, of another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::file::{MAX_IFACES, MAX_POINTS, MIN_NANOSECONDS};
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
        ("version = 4\nboot = \"x\"\n", "version 4, expected 1 to 3"),
        ("version = 0\nboot = \"x\"\n", "version 0, expected 1 to 3"),
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
fn measurements_with_peers_in_files_of_versions_2_and_3_are_ignored() {
    const PEER: &str = "[[peers]]\ninterface = \"tcp/eth0\"\naddress = \"74640200\"\nname = \"node7\"\nat = 1795634602\n\
                        [peers.times]\nam_short = [[8, 9614.0]]\n[peers.registered]\nput_short = [[8, 700.0]]\n";
    for (version, peers) in [(1, ""), (2, PEER), (3, PEER)] {
        let earlier = with_entries("[[8, 1.0]]").replace("version = 1", &format!("version = {version}"));
        let calibration = Calibration::parse(&(earlier + peers), BOOT).expect("it is read");
        assert_eq!(calibration.seconds(&resource(), Operation::AmShort, 8), Some(1e-9));
        assert!(!calibration.to_toml(BOOT).contains("peers"), "they are not written again");
    }
}

#[test]
fn what_no_clock_measures_is_written_within_the_limits_of_a_time() {
    let mut calibration = Calibration::default();
    let times = vec![(8, 0.0), (16, f64::INFINITY)];
    calibration.set(&resource(), Times::from([(Operation::AmShort, times)]));
    let read = Calibration::parse(&calibration.to_toml(BOOT), BOOT).expect("it is read");
    assert_eq!(read.seconds(&resource(), Operation::AmShort, 8), Some(MIN_NANOSECONDS * 1e-9));
}

#[test]
fn a_file_of_another_boot_or_version_is_stale_and_any_other_problem_makes_it_unusable() {
    let is_stale =
        |text: &str| matches!(Calibration::parse(text, BOOT).expect_err(text), CalibrationError::Stale(_));
    let whole = with_entries("[[8, 1.0]]");
    assert!(is_stale(&whole.replace(BOOT, "another")));
    assert!(is_stale(&whole.replace("version = 1", "version = 4")));
    assert!(is_stale("version = 4\nmore = 1\n"), "it has what this version does not know");
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
