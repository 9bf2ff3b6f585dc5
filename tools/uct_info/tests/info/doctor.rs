//! `--doctor` without an address: the machine, as text and as JSON, with and without locked memory.

use crate::support::process::{command, run};
use crate::support::{self, PROGRAM, ended, json, list, text};

const VERDICTS: [&str; 4] = ["OBSTACLE", "LIMIT", "ABSENT", "ok"];

/// The report on a machine without RDMA devices; `None` on one that has some.
fn without_devices() -> bool {
    std::fs::read_dir("/sys/class/infiniband").map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn the_report_is_the_same_as_text_and_as_json() {
    let document = run(&mut support::info(&["--doctor", "--json"]));
    let document: serde_json::Value = serde_json::from_str(&document.stdout).unwrap();
    let printed = run(&mut support::info(&["--doctor"]));
    let findings = list(&document, "/doctor/findings");
    assert!(findings.len() > 8, "{document:#}");
    for finding in findings {
        let verdict = text(finding, "/verdict");
        assert!(VERDICTS.contains(&verdict), "{finding:#}");
        let line = format!("{verdict:8}  {}: ", text(finding, "/subject"));
        assert!(printed.stdout.contains(&line), "{line:?} is missing in\n{}", printed.stdout);
        let needs_remedy = verdict == "LIMIT";
        assert!(!needs_remedy || !finding["remedy"].is_null(), "{finding:#}");
    }
    let obstacles = findings.iter().filter(|finding| finding["verdict"] == "OBSTACLE").count();
    assert_eq!(printed.code, Some(i32::from(obstacles > 0)), "{}", printed.stderr);
}

#[test]
fn a_machine_without_devices_is_not_at_fault_for_that() {
    if !without_devices() {
        return;
    }
    let document = json(&["--doctor", "--json"]);
    let findings = list(&document, "/doctor/findings");
    let absent = |subject: &str| {
        findings.iter().any(|it| it["verdict"] == "ABSENT" && text(it, "/subject").contains(subject))
    };
    assert!(absent("rc_verbs, ud_verbs, rdmacm"), "{document:#}");
    let reports = findings.iter().filter(|it| text(it, "/words").contains("no RDMA device"));
    assert_eq!(reports.count(), 1, "{document:#}");
    let fine =
        |subject: &str| findings.iter().any(|it| it["verdict"] == "ok" && text(it, "/subject") == subject);
    assert!(fine("self") && fine("posix"), "{document:#}");
}

#[test]
fn what_the_configuration_excludes_is_absent() {
    let report = run(support::info(&["--doctor"]).env("UCT_TLS", "self"));
    assert_eq!(report.code, Some(0), "{}{}", report.stdout, report.stderr);
    assert!(report.stdout.lines().any(|line| line.starts_with("ABSENT    tcp: ")), "{}", report.stdout);
}

#[test]
fn no_memory_may_be_locked() {
    // Root may lock memory whatever the limit is, so the program runs without that capability.
    let mut limited = command("prlimit", &["--memlock=0:0", "setpriv"]);
    if rustix::process::geteuid().is_root() {
        limited.args(["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"]);
    } else {
        limited.arg("--no-new-privs");
    }
    limited.args([PROGRAM, "--doctor"]).current_dir("/").env("HOME", "/nonexistent");
    let report = run(&mut limited);
    let line = report.stdout.lines().find(|line| line.contains("0 bytes of memory may be locked"));
    let line = line.unwrap_or_else(|| panic!("{}{}", report.stdout, report.stderr));
    let expected = if without_devices() { "LIMIT" } else { "OBSTACLE" };
    assert!(line.starts_with(expected), "{line}");
    assert!(report.stdout.contains("→ `* - memlock unlimited`"), "{}", report.stdout);
}

#[test]
fn a_connection_manager_needs_an_address() {
    let ended = ended(&["--doctor", "rdmacm"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--doctor rdmacm 10.0.0.1"), "{}", ended.stderr);
}
