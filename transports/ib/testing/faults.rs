//! Processes whose device in software has faults. The tests of the verbs transports include this file, beside `library.rs` and `support.rs`; it is part of no library.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

/// The test, and the faults, that a process is for.
const VARIABLE: &str = "UCT_TEST_FAULTS";
/// A process that has not ended by then hangs.
const LONGEST: Duration = Duration::from_secs(90);

/// Whether this process is for the calling test with these faults. If not, the test runs in a process of its own that has them, and
/// `false` says that it has passed there, or is skipped.
///
/// # Panics
/// If the test fails there, or hangs.
#[track_caller]
pub fn has_faults(faults: &str) -> bool {
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test has its name");
    let own = format!("{test} {faults}");
    if let Ok(meant) = std::env::var(VARIABLE) {
        if meant == own {
            std::thread::spawn(move || {
                std::thread::sleep(LONGEST);
                let _ = writeln!(std::io::stderr(), "{own}: hangs");
                std::process::abort();
            });
            return true;
        }
        return false;
    }
    if crate::library::library() != "soft" {
        // Past the capture of a test that passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: these faults are of the device in software");
        return false;
    }
    // Without a device the reason is said here, and there it would be the faults.
    if crate::support::devices().is_none() {
        return false;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args([test, "--exact", "--nocapture"])
        .env(VARIABLE, &own)
        .env("UCT_IB_LIBRARY", "soft")
        .env("UCT_TEST_REQUIRE", "verbs")
        .env("SOFTVERBS_FAULTS", faults)
        .output()
        .expect("this program starts");
    let [printed, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{printed}");
    eprintln!("{errors}");
    let has_passed = output.status.success() && printed.contains("1 passed");
    assert!(has_passed, "{own}, in a process of its own: {}", output.status);
    false
}
