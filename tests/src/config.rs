//! What a run of the suite is asked to do.
//!
//! For the runner. Built on the environment: every variable begins with `UCT_TEST_`, which the configuration of the
//! framework leaves alone.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::random::Random;
use uct_host::units::NameList;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Transports to run (`UCT_TEST_TRANSPORTS`); others are not even listed.
    pub transports: NameList,
    /// Network devices to run on (`UCT_TEST_DEVICES`); the loopback ones unless set.
    pub devices: NameList,
    /// The device of far ends (`UCT_TEST_FAR_DEVICE`); the same as of near ends unless set.
    pub far_device: Option<String>,
    /// Whether the worker of a case has all other interfaces open, too (`UCT_TEST_OPEN=all`).
    pub open_all: bool,
    /// Transports whose absence is a failure (`UCT_TEST_REQUIRE`). `shm` means `posix` and `sysv`.
    pub require: Vec<String>,
    /// Directories with plugins, ahead of those of `UCT_MODULE_DIR` or, if that is not set, of the test's own.
    pub module_dirs: Vec<PathBuf>,
    /// Order of the cases, and their random choices (`UCT_TEST_SEED`).
    pub seed: u64,
    /// Which of the cases (`UCT_TEST_PART`): `2/3` is every third one, from the second on. So processes share them.
    pub part: Part,
    /// How long a soak takes (`UCT_TEST_SOAK_SECONDS`).
    pub soak: Duration,
    /// Longest time for one case; afterwards it hangs.
    pub case_limit: Duration,
    /// Whether transports that are linked statically are tested, too.
    pub built_in: bool,
}

/// One of several parts of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// All there is.
    pub const WHOLE: Part = Part { number: 1, of: 1 };

    /// Leaves what belongs to this part.
    pub(crate) fn take<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

impl Config {
    /// What the environment asks for.
    ///
    /// # Errors
    /// A variable and what was expected of it.
    pub fn from_environment() -> Result<Config, String> {
        let soak = number("UCT_TEST_SOAK_SECONDS")?.unwrap_or(2);
        Ok(Config {
            transports: names("UCT_TEST_TRANSPORTS", "all")?,
            devices: names("UCT_TEST_DEVICES", "lo")?,
            far_device: words("UCT_TEST_FAR_DEVICE").pop(),
            open_all: open_all("UCT_TEST_OPEN")?,
            require: words("UCT_TEST_REQUIRE"),
            module_dirs: Vec::new(),
            seed: number("UCT_TEST_SEED")?.unwrap_or_else(Random::fresh_seed),
            part: part("UCT_TEST_PART")?,
            soak: Duration::from_secs(soak),
            case_limit: Duration::from_secs(300 + soak),
            built_in: true,
        })
    }
}

fn words(variable: &str) -> Vec<String> {
    let value = env::var(variable).unwrap_or_default();
    value.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn names(variable: &str, default: &str) -> Result<NameList, String> {
    let value = env::var(variable).ok().filter(|value| !value.is_empty());
    let value = value.as_deref().unwrap_or(default);
    value.parse().map_err(|error| format!("{variable}={value}: {error}; expected names, as tcp,self"))
}

fn open_all(variable: &str) -> Result<bool, String> {
    match env::var(variable).as_deref() {
        Ok("all") => Ok(true),
        Ok("one" | "") | Err(_) => Ok(false),
        Ok(value) => Err(format!("{variable}={value}: expected one or all")),
    }
}

fn part(variable: &str) -> Result<Part, String> {
    let Ok(value) = env::var(variable) else { return Ok(Part::WHOLE) };
    let read = || {
        let (number, of) = value.split_once('/')?;
        let (number, of) = (number.parse().ok()?, of.parse().ok()?);
        (1..=of).contains(&number).then_some(Part { number, of })
    };
    read().ok_or_else(|| format!("{variable}={value}: expected a part of all, such as 1/2 or 2/2"))
}

fn number(variable: &str) -> Result<Option<u64>, String> {
    let Ok(value) = env::var(variable) else { return Ok(None) };
    let parsed = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    parsed.map(Some).ok_or_else(|| format!("{variable}={value}: expected a number, such as 17 or 0x11"))
}
