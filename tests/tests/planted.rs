//! The suite can go red: it finds each mistake that is planted in a transport which is right but for it.
//!
//! The transport is `self` under another name, with one slot replaced (`plugins/faulty`). This program is also the suite
//! that runs against it: it starts itself again for each mistake.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use uct_conformance::Config;

/// The mistake that the transport is to have.
const PLANT: &str = "UCT_TEST_PLANT";

/// Each mistake, and the case that is to find it (others may, too).
const FOUND_BY: &[(&str, &str)] = &[
    ("drop", "a burst of the largest short messages arrives"),
    ("swap", "a handler may progress the worker and order is kept"),
    ("duplicate", "a burst of the largest short messages arrives"),
    ("flip", "ten thousand random operations of all kinds do what a model does"),
    ("early", "memory of am_zcopy is the sender's after the completion"),
    ("too long", "am_short of every size arrives whole and in order"),
    ("one beyond", "an address outside of the region is refused and nothing is touched"),
    ("stale", "a stale key is refused and nothing is touched"),
    ("forget", "get_zcopy scatters to vectors and strided blocks"),
    ("deaf", "each message makes an armed descriptor readable and hardly anything else does"),
    ("hidden", "every advertised capability works and every other answers UNSUPPORTED"),
    ("promise", "every advertised capability works and every other answers UNSUPPORTED"),
    ("anybody", "corrupted and random addresses are unreachable with a reason"),
    ("twice", "increments of several senders are neither lost nor seen twice"),
];

fn main() -> ExitCode {
    if std::env::var_os(PLANT).is_some() {
        let config = Config::from_environment().map(|config| Config { built_in: false, ..config });
        return uct_conformance::run(config);
    }
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = FOUND_BY
        .iter()
        .map(|&(plant, case)| {
            Trial::test(format!("the suite finds the planted `{plant}`"), move || found(plant, case))
        })
        .collect();
    trials.push(Trial::test("every mistake has a case that is to find it", all_are_there));
    trials.push(Trial::test("without a mistake the suite passes", nothing));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A directory with the faulty plugin, and the suite on it.
fn suite(plant: &str) -> Result<(tempfile::TempDir, Command), Failed> {
    let program = std::env::current_exe()?;
    let library: PathBuf = program.with_file_name("libfaulty.so");
    let directory = tempfile::tempdir()?;
    std::fs::copy(&library, directory.path().join("libuct_faulty.so"))
        .map_err(|error| format!("{} was not built: {error}", library.display()))?;
    let mut command = Command::new(program);
    command
        .env(PLANT, plant)
        .env("UCT_MODULE_DIR", directory.path())
        .env("UCT_MODULES", "faulty")
        .env("UCT_TEST_TRANSPORTS", "faulty")
        .env("UCT_TEST_SOAK_SECONDS", "1")
        .env_remove("UCT_TEST_REQUIRE");
    Ok((directory, command))
}

fn found(plant: &str, case: &str) -> Result<(), Failed> {
    let (_directory, mut command) = suite(plant)?;
    let output = command.arg(case).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Err(format!("`{case}` passes although `{plant}` is planted:\n{text}").into());
    }
    let name = format!("---- faulty/memory[plugin]::{case} ----");
    if !text.contains(&name) {
        return Err(format!("the suite fails, but not with `{case}`:\n{text}").into());
    }
    Ok(())
}

fn nothing() -> Result<(), Failed> {
    let (_directory, mut command) = suite("nothing")?;
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || text.contains(" 0 passed") {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the suite fails although nothing is planted:\n{text}\n{errors}").into());
    }
    Ok(())
}

fn all_are_there() -> Result<(), Failed> {
    let known: Vec<&str> = FOUND_BY.iter().map(|(plant, _)| *plant).collect();
    if known != faulty::PLANTS {
        return Err(format!("the plugin can do {:?}, the test knows {known:?}", faulty::PLANTS).into());
    }
    Ok(())
}
