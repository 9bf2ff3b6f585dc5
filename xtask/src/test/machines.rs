//! The tests that need verbs devices: each row of tests/vm/tests.toml is one boot.
//! Stands on `vm`; `test` stands on it.

use crate::failure::{Context, Failure, Outcome};
use crate::steps::Steps;
use crate::test::CONFORMANCE;
use crate::vm;
use crate::workspace::{Built, Workspace};
use serde::Deserialize;
use std::fs;
use std::path::Path;

const TABLE: &str = "tests/vm/tests.toml";
/// Where the project's test programs are in the guest.
const GUEST_TESTS: &str = "/usr/lib/uct/tests";
/// The packages whose test programs these are.
const GUEST_PACKAGES: &[&str] = &[CONFORMANCE, "uct-ib", "uct-rc-verbs", "uct-ud-verbs"];
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
    let programs = vm::build(workspace, "dev")?;
    let packages = GUEST_PACKAGES.iter().flat_map(|package| ["--package", package]);
    let tests = workspace.build(&["test", "--no-run"].into_iter().chain(packages).collect::<Vec<_>>())?;
    let files = tests.programs.iter().filter(|path| path.components().any(|part| part.as_os_str() == "deps"));
    let files = files.map(|path| format!("{}:{GUEST_TESTS}/{}", path.display(), test_name(path)));
    let scripts = format!("{}:{GUEST_SCRIPTS}", workspace.root().join(SCRIPTS).display());
    Ok(Contents { programs, files: files.chain([scripts]).collect() })
}

fn parse(text: &str) -> Outcome<Vec<Row>> {
    let table: Table = toml::from_str(text).context(|| TABLE.to_owned())?;
    if let Some(row) = table.test.iter().find(|row| row.netem.is_some() && row.mode != Mode::Pair) {
        return Err(Failure::new(format!("{TABLE}: `{}`: netem needs mode = \"pair\"", row.name)));
    }
    Ok(table.test)
}

/// The name of a test program without the hash that cargo puts behind it.
fn test_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 => name.to_owned(),
        _ => name,
    }
}

fn boot(workspace: &Workspace, contents: &Contents, row: Row) -> Outcome {
    let options = vm::Options {
        pair: row.mode == Mode::Pair,
        netem: row.netem,
        timeout: row.timeout,
        files: contents.files.clone(),
        ..vm::Options::script(row.script)
    };
    match vm::run_with(workspace, &contents.programs, &options)? {
        0 => Ok(()),
        status => {
            Err(Failure::new(format!("the script ended with status {status}; what it printed is above")))
        }
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
    fn netem_without_a_pair_is_refused() {
        let text = "[[test]]\nname = 'x'\nmode = 'single'\nnetem = 'loss 5%'\ntimeout = 1\nscript = ''\n";
        assert!(parse(text).err().unwrap().to_string().contains("pair"));
    }

    #[test]
    fn a_test_program_loses_the_hash_in_its_name() {
        assert_eq!(test_name(Path::new("/t/deps/conformance-0123456789abcdef")), "conformance");
        assert_eq!(test_name(Path::new("/t/deps/rc-verbs")), "rc-verbs");
    }
}
