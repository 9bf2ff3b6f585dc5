//! The step with the Python package: a wheel of the library that the workspace's build has made, in an empty environment, and the tests of the package
//! there. They talk over shared memory, TCP, and a verbs device in software.
//! Built on Debian's Python, and on NumPy from PyPI where that can be had; used by `test`.

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::process::{command, output, run};
use crate::steps::Verdict;
use crate::workspace::{EVERYTHING, Workspace};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Debian's Python, which makes environments.
pub const PACKAGES: &[Package] = &[
    Package { name: "python3", brings: "/usr/bin/python3" },
    Package { name: "python3-venv", brings: "/usr/share/doc/python3-venv" },
];
const PYTHON: &str = "/usr/bin/python3";
/// The first version whose stable interface has the buffer protocol.
const LEAST: (u32, u32) = (3, 11);
/// For tests of arrays, which skip themselves without it.
const NUMPY: &str = "numpy>=2,<3";
/// The package's sources.
const PACKAGE: &str = "uct-net/python";
/// What cargo makes of it.
const LIBRARY: &str = "lib_uct.so";

const LIMIT: Duration = Duration::from_secs(600);
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// Installs the wheel and runs the tests; skips where there is no Python that is new enough.
pub fn run_or_skip(workspace: &Workspace, missing: &apt::Missing) -> Outcome<Verdict> {
    if let Some(reason) = missing.reason(PACKAGES) {
        return Ok(Verdict::Impossible(reason));
    }
    if let Some(reason) = too_old()? {
        return Ok(Verdict::Impossible(reason));
    }
    workspace.build(EVERYTHING)?;
    let environment = Environment::new(workspace)?;
    let wheel = environment.wheel(workspace)?;
    environment.install(&[&wheel.to_string_lossy()], &["--no-index", "--force-reinstall", "--no-deps"])?;
    let sources = workspace.root().join(PACKAGE);
    let mut tests = environment.python();
    tests.args(["-m", "unittest", "discover", "--start-directory"]).arg(sources.join("tests"));
    tests.env("UCT_TEST_VERBS_MODULES", workspace.target().join("debug"));
    run(tests.env("UCT_NET_DEVICES", "lo"), LIMIT)?;
    Ok(Verdict::Passed)
}

/// Why this Python cannot load the module.
fn too_old() -> Outcome<Option<String>> {
    let mut ask = command(PYTHON);
    let version = output(ask.args(["-c", "import sys; print(*sys.version_info[:2])"]), LIMIT)?;
    let numbers: Vec<u32> = version.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [major, minor] if (major, minor) < LEAST => {
            Ok(Some(format!("{PYTHON} is {major}.{minor}, and the module needs {}.{}", LEAST.0, LEAST.1)))
        }
        [_, _] => Ok(None),
        _ => Err(Failure::new(format!("{PYTHON} says that it is version {version}"))),
    }
}

/// An environment of Python, in a folder below the target folder that stays.
struct Environment {
    place: PathBuf,
}

impl Environment {
    fn new(workspace: &Workspace) -> Outcome<Environment> {
        let environment = Environment { place: workspace.target().join("foreign/python") };
        let stamp = environment.place.join("installed");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == NUMPY) {
            return Ok(environment);
        }
        run(command(PYTHON).args(["-m", "venv", "--clear"]).arg(&environment.place), INSTALL_LIMIT)?;
        match environment.install(&[NUMPY], &["--only-binary=:all:"]) {
            Ok(()) => {
                fs::write(&stamp, NUMPY).context(|| format!("cannot write {}", stamp.display()))?;
            }
            // Its tests skip themselves, and say so.
            Err(failure) => eprintln!("xtask: without NumPy: {failure}"),
        }
        Ok(environment)
    }

    fn python(&self) -> Command {
        let mut python = command(self.place.join("bin/python"));
        python.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        python
    }

    fn install(&self, packages: &[&str], arguments: &[&str]) -> Outcome {
        let mut pip = self.python();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(pip.args(arguments).args(packages), INSTALL_LIMIT)
    }

    /// The wheel of the library that is built.
    fn wheel(&self, workspace: &Workspace) -> Outcome<PathBuf> {
        let mut pack = self.python();
        pack.arg(workspace.root().join(PACKAGE).join("tests/pack.py"));
        pack.arg(workspace.target().join("debug").join(LIBRARY)).args([workspace.version()]).arg(&self.place);
        Ok(Path::new(output(&mut pack, LIMIT)?.trim()).to_owned())
    }
}
