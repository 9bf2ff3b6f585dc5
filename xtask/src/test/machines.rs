//! The tests that need verbs devices: each row of tests/vm/tests.toml is one boot.
//! Built on `vm`; used by `test`.

use crate::failure::{Context, Failure, Outcome};
use crate::steps::Steps;
use crate::test::CONFORMANCE;
use crate::vm;
use crate::workspace::{Built, Workspace};
use serde::Deserialize;
use std::fs;

const TABLE: &str = "tests/vm/tests.toml";
/// Where the project's test programs are in the guest.
const GUEST_TESTS: &str = "/usr/lib/uct/tests";
/// The packages whose test programs these are.
const GUEST_PACKAGES: &[&str] = &[CONFORMANCE, "uct-ib", "uct-rc-verbs", "uct-ud-verbs", "uct-net"];
/// Scripts that rows call, and where they are in the guest.
const SCRIPTS: &str = "tests/vm/scripts";
const GUEST_SCRIPTS: &str = "/usr/lib/uct/scripts";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    test: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    mode: Mode,
    netem: Option<String>,
    timeout: u32,
    #[serde(default)]
    takes_seconds: bool,
    script: String,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Single,
    Pair,
}

/// What is in the guest beside its own tools.
struct Contents {
    programs: Built,
    files: Vec<String>,
}

/// A step for each row. The first one that runs builds what all of them take along.
pub fn run(workspace: &Workspace, steps: &mut Steps) {
    let rows = match rows(workspace) {
        Ok(rows) => rows,
        Err(failure) => return steps.run("virtual machine", || Err(failure)),
    };
    let mut contents = None;
    for row in rows {
        steps.run(&format!("virtual machine: {}", row.name), || {
            match contents.get_or_insert_with(|| prepare(workspace)) {
                Ok(contents) => boot(workspace, contents, row),
                Err(failure) => Err(Failure::new(failure.to_string())),
            }
        });
    }
}

fn rows(workspace: &Workspace) -> Outcome<Vec<Row>> {
    let path = workspace.root().join(TABLE);
    let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    parse(&text)
}

fn prepare(workspace: &Workspace) -> Outcome<Contents> {
    vm::install()?;
    let built = workspace.build(&["test", "--workspace", "--no-run"])?;
    let tests = GUEST_PACKAGES.iter().flat_map(|package| workspace.tests(package));
    let tests = tests.map(|name| Ok(format!("{}:{GUEST_TESTS}/{name}", built.test_program(name)?.display())));
    let scripts = format!("{}:{GUEST_SCRIPTS}", workspace.root().join(SCRIPTS).display());
    let files = tests.chain([Ok(scripts)]).collect::<Outcome<_>>()?;
    Ok(Contents { programs: workspace.for_people(built), files })
}

fn parse(text: &str) -> Outcome<Vec<Row>> {
    let table: Table = toml::from_str(text).context(|| TABLE.to_owned())?;
    if let Some(row) = table.test.iter().find(|row| row.netem.is_some() && row.mode != Mode::Pair) {
        return Err(Failure::new(format!("{TABLE}: `{}`: netem needs mode = \"pair\"", row.name)));
    }
    Ok(table.test)
}

/// The variable that says for how long a test goes on.
const SECONDS: &str = "UCT_TEST_SECONDS";
/// So many tests of a row take that time, one after another, at most.
const TAKERS: u32 = 4;

/// What a row that takes seconds is given of those that were asked for: a variable of the guest, and time.
fn seconds(row: &Row, asked: Option<&str>) -> Outcome<(Vec<String>, u32)> {
    let Some(asked) = asked.filter(|_| row.takes_seconds) else { return Ok((Vec::new(), row.timeout)) };
    let seconds: u32 = asked.parse().context(|| format!("{SECONDS}={asked}: not a number of seconds"))?;
    let timeout = row.timeout.saturating_add(seconds.saturating_mul(TAKERS));
    Ok((vec![format!("{SECONDS}={seconds}")], timeout))
}

fn boot(workspace: &Workspace, contents: &Contents, row: Row) -> Outcome {
    let asked = std::env::var(SECONDS).ok();
    let (environment, timeout) = seconds(&row, asked.as_deref())?;
    let options = vm::Options {
        pair: row.mode == Mode::Pair,
        netem: row.netem,
        timeout,
        environment,
        files: contents.files.clone(),
        ..vm::Options::script(row.script)
    };
    verdict(&vm::run_with(workspace, &contents.programs, &options)?)
}

/// A kernel that died is named first: what the script did after that says nothing of this project.
fn verdict(ended: &vm::Ended) -> Outcome {
    let status = ended.status;
    let script = format!("the script ended with status {status}; what it printed is above");
    match &ended.fault {
        _ if status == 0 => Ok(()),
        Some(fault) => Err(Failure::new(format!("{fault}\n{script}"))),
        None => Err(Failure::new(script)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_valid() {
        assert!(!parse(include_str!("../../../tests/vm/tests.toml")).unwrap().is_empty());
    }

    #[test]
    fn a_guest_whose_kernel_died_is_told_apart_from_a_script_that_failed() {
        let ended = |status, log| vm::Ended {
            status,
            fault: vm::console::KernelFault::find(log),
            timings: Vec::new(),
        };
        let said = |ended| verdict(&ended).unwrap_err().to_string();
        let log = "[   48.2] BUG: kernel NULL pointer dereference, address: 0000000000000018\r\n";
        assert!(said(ended(125, log)).starts_with("the guest's kernel died: BUG: kernel NULL pointer"));
        assert_eq!(said(ended(3, "")), "the script ended with status 3; what it printed is above");
        assert!(verdict(&ended(0, "")).is_ok());
    }

    #[test]
    fn a_row_that_takes_seconds_is_given_them_and_the_time() {
        let row = |takes: &str| {
            let text = format!("[[test]]\nname = 'x'\nmode = 'single'\ntimeout = 30\n{takes}script = ''\n");
            parse(&text).unwrap().remove(0)
        };
        let (plain, taker) = (row(""), row("takes_seconds = true\n"));
        assert_eq!(seconds(&plain, Some("600")).unwrap(), (vec![], 30));
        assert_eq!(seconds(&taker, None).unwrap(), (vec![], 30));
        assert_eq!(seconds(&taker, Some("600")).unwrap(), (vec!["UCT_TEST_SECONDS=600".to_owned()], 2430));
        assert!(seconds(&taker, Some("ten")).unwrap_err().to_string().contains("UCT_TEST_SECONDS=ten"));
    }

    #[test]
    fn netem_without_a_pair_is_refused() {
        let text = "[[test]]\nname = 'x'\nmode = 'single'\nnetem = 'loss 5%'\ntimeout = 1\nscript = ''\n";
        assert!(parse(text).err().unwrap().to_string().contains("pair"));
    }
}
