//! `--calibrate` stores what it measures, and selection uses it, unless the file is one that it cannot use.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use crate::support::process::{Ended, run};
use crate::support::{info, json, list, parse, skip, text};
use serde_json::Value;
use tempfile::TempDir;
use uct_core::system::host;

/// A user without privileges.
const NOBODY: u32 = 65_534;

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
    let passes: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("pass ")).collect();
    assert!(
        passes.len() > 1 && passes.iter().all(|line| line.contains(": posix/memory … ")),
        "{}",
        ended.stderr
    );
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

/// The line of the text of `--explain` about the file; the others that begin with `#` are about peers.
fn line_on_times(explained: &str) -> Option<&str> {
    explained.lines().find(|line| line.contains("measured times"))
}

#[test]
fn a_file_that_cannot_be_used_is_one_line_of_warning_and_the_models_decide() {
    let place = Place::new();
    let file = place.file();
    let remove = || {
        let _ = fs::remove_dir(&file);
        let _ = fs::remove_file(&file);
    };
    type Make<'a> = Box<dyn Fn() + 'a>;
    let mut cases: Vec<(&str, Make<'_>)> = vec![
        ("line 3", Box::new(|| place.write(&boot(), "["))),
        ("not UTF-8", Box::new(|| fs::write(&file, [0xff]).expect("a file"))),
        ("a directory", Box::new(|| fs::create_dir(&file).expect("a directory"))),
        (
            "a FIFO",
            Box::new(|| {
                let made = Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
                assert!(made.success());
            }),
        ),
        (
            "every user may write",
            Box::new(|| {
                place.write(&boot(), TCP);
                fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("its mode");
            }),
        ),
    ];
    if skip::is_root("give a file to another user") {
        let foreign = || {
            place.write(&boot(), TCP);
            chown(&file, Some(NOBODY), None).expect("its owner");
        };
        cases.push(("belongs to user 65534", Box::new(foreign)));
    }
    place.write(&boot(), TCP);
    for (words, make) in cases {
        remove();
        make();
        let ended = place.explained();
        let warning = ended.stderr.clone();
        assert_eq!(warning.lines().count(), 1, "{words}: {warning}");
        let name = file.display().to_string();
        assert!([words, &name].iter().all(|part| warning.contains(part)), "{words}: {warning}");
        let explained = parse(&ended.success());
        assert_eq!(text(&explained, "/explain/chosen"), "posix/memory", "{words}");
        assert_eq!(text(&explained, "/explain/measured_times/state"), "unusable", "{words}");
    }
    remove();
    place.write(&boot(), "[");
    place.run(&["--calibrate", "memory", "-t", "posix"]).success();
    let ended = place.explained();
    assert_eq!(ended.stderr, "");
    assert!(usable(&parse(&ended.success()))["posix/memory"]["is_measured"] == true);
}

#[test]
fn a_file_of_another_boot_is_no_warning_and_the_sections_about_selection_name_it() {
    let place = Place::new();
    place.write("00000000000000000000000000000000", TCP);
    let (reason, remedy) = ("before the machine was booted", "`uct_info --calibrate` measures again");
    let ended = place.explained();
    assert_eq!(ended.stderr, "");
    let explained = parse(&ended.success());
    assert_eq!(text(&explained, "/explain/chosen"), "posix/memory");
    assert_eq!(text(&explained, "/explain/measured_times/state"), "stale");
    let candidates = usable(&explained);
    let origins = ["overhead", "latency"].map(|term| text(&candidates["tcp/lo"], &format!("/{term}/origin")));
    assert_eq!(origins, ["model"; 2], "{explained:#}");
    assert!(candidates.values().all(|it| it["is_measured"] == false), "{explained:#}");

    let printed = place.run(&["--explain", "--set", "tls=posix,tcp"]).success();
    let line = line_on_times(&printed).expect("the line about the file");
    assert!(line.contains(reason) && line.contains(remedy), "{line}");
    let doctor = place.run(&["--doctor", "--set", "tls=self"]).success();
    let mut lines =
        doctor.lines().skip_while(|line| !line.starts_with("LIMIT     selection: measured times of"));
    let (finding, arrow) = (lines.next().expect("a finding"), lines.next().expect("its remedy"));
    assert!(finding.contains(reason) && arrow.contains(remedy), "{finding}\n{arrow}");
    let logged = place.run(&["--explain", "--set", "tls=posix,tcp", "--set", "log_level=debug"]).stderr;
    let lines: Vec<&str> = logged.lines().filter(|line| line.contains(reason)).collect();
    assert!(matches!(lines[..], [line] if line.contains("DEBUG")), "{logged}");
}

#[test]
fn interfaces_that_were_not_measured_are_named() {
    let place = Place::new();
    let explained = |tls: &str| place.run(&["--explain", "--set", &format!("tls={tls}")]).success();
    assert_eq!(line_on_times(&explained("posix,tcp")), None, "there is no file");
    place.write(&boot(), TCP);
    let mixed = explained("posix,tcp");
    let line = line_on_times(&mixed).expect("the line about the file");
    let end = "; the models count for posix/memory (`uct_info --calibrate` measures all)";
    assert!(line.ends_with(end), "{line}");
    let measured = explained("self,tcp");
    let line = line_on_times(&measured).expect("the line about the file");
    assert!(line.ends_with("calibration.toml"), "self is never measured: {line}");
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
