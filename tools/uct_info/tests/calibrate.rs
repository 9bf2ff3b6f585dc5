//! `--calibrate` stores what it measures, and selection uses it, unless the file is one that it cannot use.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use support::process::{Ended, run};
use support::{info, json, list, parse, text};
use tempfile::TempDir;
use uct_core::system::host;

/// A directory with a place for the file.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().expect("a directory") }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("uct/calibration.toml")
    }

    /// Writes a file of this boot with these interfaces.
    fn write(&self, boot: &str, interfaces: &str) {
        fs::create_dir_all(self.directory.path().join("uct")).expect("a directory");
        fs::write(self.file(), format!("version = 1\nboot = \"{boot}\"\n{interfaces}")).expect("a file");
    }

    /// The program with a cache directory of its own.
    fn run(&self, arguments: &[&str]) -> Ended {
        run(info(arguments).env("XDG_CACHE_HOME", self.directory.path()).env("UCT_NET_DEVICES", "lo"))
    }

    fn explained(&self) -> Ended {
        self.run(&["--explain", "--json", "--set", "tls=posix,tcp"])
    }
}

fn boot() -> String {
    host::host_id().to_string()
}

/// The candidates that can be chosen, by their names.
fn usable(explained: &Value) -> BTreeMap<String, Value> {
    let candidates = list(explained, "/explain/candidates").iter();
    let usable = candidates.filter(|candidate| candidate["total"].is_number());
    usable.map(|it| (format!("{}/{}", text(it, "/transport"), text(it, "/device")), it.clone())).collect()
}

/// Makes tcp cheaper than anything else can be.
const TCP: &str = "[interfaces.\"tcp/lo\"]\nam_short = [[8, 1.0]]\n";

#[test]
fn what_is_measured_is_stored_for_its_interface_and_used() {
    let place = Place::new();
    place.write(&boot(), TCP);
    let ended = place.run(&["--calibrate", "-t", "posix", "--json"]);
    assert!(ended.stderr.contains("measuring posix/memory"), "{}", ended.stderr);
    let calibrated = parse(&ended.success());
    assert_eq!(text(&calibrated, "/calibrate/file"), place.file().display().to_string());
    let [posix] = list(&calibrated, "/calibrate/interfaces") else { panic!("{calibrated:#}") };
    let rows = list(posix, "/rows");
    for operation in ["am_short", "am_bcopy", "am_zcopy", "put_short", "put_zcopy", "get_bcopy"] {
        let of_operation = rows.iter().filter(|row| row["operation"] == operation && row["what"] == "time");
        let times: Vec<f64> = of_operation.map(|row| row["measured"].as_f64().expect("seconds")).collect();
        assert!(!times.is_empty() && times.iter().all(|&time| time > 0.0), "{operation}: {times:?}");
    }
    assert!(
        rows.iter().any(|row| row["what"] == "overhead") && rows.iter().any(|row| row["what"] == "bandwidth")
    );

    let candidates = usable(&parse(&place.explained().success()));
    let stored = fs::read_to_string(place.file()).expect("it is written");
    assert!(stored.contains("posix/memory"), "{stored}");
    assert_eq!(candidates["tcp/lo"]["total"], 1e-9, "it was there before");
    let posix = &candidates["posix/memory"];
    assert_eq!(posix["is_measured"], true, "{posix:#}");
    assert!(posix["model"].as_f64().expect("the model's seconds") > 0.0);
}

#[test]
fn a_measured_time_decides_unless_the_key_is_off() {
    let place = Place::new();
    place.write(&boot(), TCP);
    let chosen = |arguments: &[&str]| {
        let arguments = [&["--explain", "--json", "--set", "tls=posix,tcp"], arguments].concat();
        text(&parse(&place.run(&arguments).success()), "/explain/chosen").to_owned()
    };
    assert_eq!(chosen(&[]), "tcp/lo");
    assert_eq!(chosen(&["--op", "am_bcopy"]), "posix/memory", "it was not measured");
    assert_eq!(chosen(&["--set", "calibration=off"]), "posix/memory");
    let elsewhere = place.directory.path().join("elsewhere.toml");
    let elsewhere = format!("calibration={}", elsewhere.display());
    assert_eq!(chosen(&["--set", &elsewhere]), "posix/memory", "it is another file, and not there");
    let explained = place.run(&["--explain", "--set", "tls=tcp"]).success();
    assert!(explained.contains("1 ns measured; the model has "), "{explained}");
}

#[test]
fn a_file_that_cannot_be_used_is_one_line_of_warning_and_replaced() {
    let place = Place::new();
    let cases = [
        ("00000000000000000000000000000000", TCP, "before the machine was booted"),
        (&boot(), "[", "line 3"),
    ];
    for (boot, interfaces, words) in cases {
        place.write(boot, interfaces);
        let ended = place.explained();
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        let file = place.file().display().to_string();
        assert!([words, &file].iter().all(|part| ended.stderr.contains(part)), "{}", ended.stderr);
        assert_eq!(text(&parse(&ended.success()), "/explain/chosen"), "posix/memory");
    }
    place.run(&["--calibrate", "memory", "-t", "posix"]).success();
    let ended = place.explained();
    assert_eq!(ended.stderr, "");
    assert!(usable(&parse(&ended.success()))["posix/memory"]["is_measured"] == true);
}

#[test]
fn without_a_file_nothing_is_stored_and_what_cannot_be_measured_is_an_error() {
    let stored =
        &json(&["--calibrate", "-t", "posix", "--set", "calibration=off", "--json"])["calibrate"]["file"];
    assert!(stored.is_null(), "{stored}");
    let place = Place::new();
    for arguments in [&["--calibrate", "nowhere"][..], &["--calibrate", "-t", "self"]] {
        let failure = place.run(arguments).failure();
        assert!(failure.contains("no interface to measure"), "{failure}");
    }
    assert!(!place.file().exists());
}
