//! The tests that need verbs devices, and the virtual machines that they share: tests/vm/tests.toml.
//! Built on `vm`; used by `test`.

use crate::failure::{Context, Failure, Outcome};
use crate::install;
use crate::process::quote;
use crate::steps::{Steps, Verdict};
use crate::test::SUITE;
use crate::vm::{self, Fetched, Guest};
use crate::workspace::{Built, CONFORMANCE, EVERYTHING, Workspace};
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

/// How the names of the steps begin.
const STEP: &str = "virtual machine";
const TABLE: &str = "tests/vm/tests.toml";
/// Where the project's test programs are in the guest.
const GUEST_TESTS: &str = "/usr/lib/uct/tests";
/// The packages whose test programs these are.
const GUEST_PACKAGES: &[&str] =
    &[CONFORMANCE, "uct-ib", "uct-rc-verbs", "uct-ud-verbs", "uct-rdmacm", "uct-net", "uct-stacks"];
/// Scripts that rows call, and where they are in the guest.
const SCRIPTS: &str = "tests/vm/scripts";
const GUEST_SCRIPTS: &str = "/usr/lib/uct/scripts";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    machine: Vec<Machine>,
}

/// One boot.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    mode: Mode,
    netem: Option<String>,
    test: Vec<Test>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    name: String,
    timeout: u32,
    #[serde(default)]
    takes_seconds: bool,
    #[serde(default)]
    by_hand: bool,
    part: Option<String>,
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

/// A machine that is ready to boot, and its tests.
pub struct Ready {
    names: Vec<String>,
    guest: Guest,
}

/// The machines with the tests that are chosen. All that takes cargo is done then, so that they run beside what cargo does.
pub fn prepare(workspace: &Workspace, steps: &mut Steps, asked: &Asked) -> Vec<Ready> {
    let machines = chosen(workspace, steps, asked);
    if machines.as_ref().is_ok_and(Vec::is_empty) {
        return Vec::new();
    }
    let mut ready = Vec::new();
    steps.run_needed(&format!("{STEP}: kernel and programs"), || {
        // Like a package that this user cannot install, a kernel that no archive sends is no fault of the tests.
        if let Fetched::Unreachable(reason) = vm::kernel(workspace)? {
            return Ok(Verdict::Impossible(format!("{}\n{reason}", vm::NO_KERNEL)));
        }
        let contents = contents(workspace)?;
        ready = machines?
            .iter()
            .map(|machine| pack(workspace, &contents, machine, asked))
            .collect::<Outcome<_>>()?;
        Ok(Verdict::Passed)
    });
    ready
}

/// Boots machines one after another, and adds a row for each test.
pub fn run(machines: Vec<Ready>, steps: &mut Steps) {
    for Ready { names, guest } in machines {
        let (verdicts, processor) = match guest.boot(steps.output()) {
            Ok(ended) => (verdicts(names.len(), &ended), ended.processor),
            Err(failure) => {
                let failed = |_: &String| (Verdict::Failed(failure.to_string()), Duration::ZERO);
                (names.iter().map(failed).collect(), Duration::ZERO)
            }
        };
        steps.add(names, verdicts, processor);
    }
}

/// The name of a test's step.
fn name(test: &Test) -> String {
    format!("{STEP}: {}", test.name)
}

fn chosen(workspace: &Workspace, steps: &Steps, asked: &Asked) -> Outcome<Vec<Machine>> {
    let mut machines = machines(workspace)?;
    for machine in &mut machines {
        machine.test.retain(|test| steps.is_chosen(&name(test)) && (asked.all || !test.by_hand));
    }
    machines.retain(|machine| !machine.test.is_empty());
    Ok(machines)
}

fn machines(workspace: &Workspace) -> Outcome<Vec<Machine>> {
    let path = workspace.root().join(TABLE);
    let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    parse(&text)
}

fn contents(workspace: &Workspace) -> Outcome<Contents> {
    vm::install()?;
    let built = workspace.build(EVERYTHING)?;
    // The suite runs the verbs transports linked in, too.
    let linked = ["test", "--workspace", "--no-run", "--features", "uct-conformance/verbs", "--test", SUITE];
    let linked = workspace.build(&linked)?;
    let scripts = scripts(workspace)?;
    let tests = workspace
        .tests()
        .filter(|(package, name)| GUEST_PACKAGES.contains(&package.name.as_str()) && is_run(name, &scripts));
    let tests = tests.map(|(package, name)| {
        let test = if name == SUITE { &linked } else { &built }.test(package, name)?;
        Ok(format!("{}:{GUEST_TESTS}/{name}", test.path.display()))
    });
    let directory = format!("{}:{GUEST_SCRIPTS}", workspace.root().join(SCRIPTS).display());
    let mut files = tests.chain([Ok(directory)]).collect::<Outcome<Vec<String>>>()?;
    let mut programs = workspace.for_people(built);
    // The drop-in library, where `softverbs` looks for it.
    let linked = workspace.target().join("vm/softverbs");
    fs::create_dir_all(&linked).context(|| format!("cannot make {}", linked.display()))?;
    for library in install::softverbs_libraries(workspace, &programs, &linked)? {
        let name = library.file_name().unwrap_or_default().display();
        files.push(format!("{}:/usr/{}/{name}", library.display(), install::SOFTVERBS));
    }
    let is_named = |name: &OsStr| vm::words(&scripts).any(|word| name == word);
    programs.programs.retain(|program| program.file_name().is_some_and(is_named));
    Ok(Contents { programs, files })
}

/// All that is run in guests. What it does not name is not in them: their files are in memory.
fn scripts(workspace: &Workspace) -> Outcome<String> {
    let directory = workspace.root().join(SCRIPTS);
    let entries = fs::read_dir(&directory).context(|| format!("cannot read {}", directory.display()))?;
    let files = entries.flatten().map(|entry| entry.path()).chain([workspace.root().join(TABLE)]);
    files
        .map(|path| fs::read_to_string(&path).context(|| format!("cannot read {}", path.display())))
        .collect()
}

/// Whether scripts run the test program of that name.
fn is_run(name: &str, scripts: &str) -> bool {
    let path = format!("{GUEST_TESTS}/");
    scripts.split(&path).skip(1).any(|rest| vm::words(rest).next() == Some(name))
}

fn parse(text: &str) -> Outcome<Vec<Machine>> {
    let table: Table = toml::from_str(text).context(|| TABLE.to_owned())?;
    if let Some(machine) =
        table.machine.iter().find(|machine| machine.netem.is_some() && machine.mode != Mode::Pair)
    {
        let first = machine.test.first().map_or("", |test| &test.name);
        return Err(Failure::new(format!("{TABLE}: the machine of `{first}`: netem needs mode = \"pair\"")));
    }
    Ok(table.machine)
}

/// What the caller asks for.
#[derive(Default)]
pub struct Asked {
    /// All cases of the tests of which a part is run at each commit.
    pub all: bool,
    /// For how long tests with `takes_seconds` go on, beside their time.
    pub seconds: Option<String>,
}

impl Asked {
    /// With the seconds that the environment names.
    pub fn of(all: bool) -> Self {
        Asked { all, seconds: std::env::var(SECONDS).ok() }
    }
}

/// The variable that says for how long a test goes on.
const SECONDS: &str = "UCT_TEST_SECONDS";
/// Where a script in the guest leaves the reason why it failed.
const FAILURE: &str = "/tmp/failure";
/// So many programs of a test take that time, one after another, at most.
const TAKERS: u32 = 4;

/// Runs the tests of a machine one after another, and reports the status of each and the guest's time at its end.
fn script(tests: &[Test], asked: &Asked) -> Outcome<(String, u32)> {
    let (mut script, mut timeout) = (String::new(), 0_u32);
    for (index, test) in tests.iter().enumerate() {
        let mut exports = String::new();
        timeout = timeout.saturating_add(test.timeout);
        if let Some(seconds) = asked.seconds.as_ref().filter(|_| test.takes_seconds) {
            let more: u32 =
                seconds.parse().context(|| format!("{SECONDS}={seconds}: not a number of seconds"))?;
            timeout = timeout.saturating_add(more.saturating_mul(TAKERS));
            exports = format!("export {SECONDS}={more}\n");
        }
        if let Some(part) = test.part.as_ref().filter(|_| !asked.all) {
            exports += &format!("export UCT_TEST_PART={part}\n");
        }
        script += &format!(
            "echo; echo {}\nrm -f {FAILURE}\n(\n{exports}{}\n)\n\
             echo \"NOTE {index} $? $(cut -d' ' -f1 /proc/uptime) $(head -c 800 {FAILURE} 2>/dev/null | tr '\\n' ' ')\" >/dev/ttyS2\n",
            quote(&format!("== virtual machine: {}", test.name)),
            test.script,
        );
    }
    Ok((script, timeout))
}

fn pack(workspace: &Workspace, contents: &Contents, machine: &Machine, asked: &Asked) -> Outcome<Ready> {
    let (script, timeout) = script(&machine.test, asked)?;
    let options = vm::Options {
        pair: machine.mode == Mode::Pair,
        netem: machine.netem.clone(),
        timeout,
        files: contents.files.clone(),
        ..vm::Options::script(script)
    };
    let guest = vm::pack(workspace, &contents.programs, &options)?;
    Ok(Ready { names: machine.test.iter().map(name).collect(), guest })
}

/// How each test of a machine ended, and how long it took; the first one has the boot. The fault of a kernel that died is
/// reported by the test that ran then, and by those after it.
fn verdicts(tests: usize, ended: &vm::Ended) -> Vec<(Verdict, Duration)> {
    let notes: Vec<Note> = ended.notes.iter().filter_map(|note| read_note(note)).collect();
    let mut before = 0.0;
    let verdict = |index| {
        let note = notes.iter().find(|note| note.test == index);
        let reason = match note {
            Some(Note { status: 0, .. }) => return (Verdict::Passed, note),
            Some(Note { status, reason: "", .. }) => {
                format!("the script ended with status {status}; what it printed is above")
            }
            Some(note) => note.reason.to_owned(),
            None => format!("the machine ended before this test did, with status {}", ended.status),
        };
        let fault = ended.fault.as_ref().map(|fault| format!("{fault}\n"));
        (Verdict::Failed(fault.unwrap_or_default() + &reason), note)
    };
    let timed = |index| {
        let (verdict, note) = verdict(index);
        let end = note.map_or(before, |note| note.end);
        let time = Duration::try_from_secs_f64(end - before).unwrap_or_default();
        before = end;
        (verdict, time)
    };
    (0..tests).map(timed).collect()
}

/// What the guest reports of a test that has ended.
struct Note<'a> {
    test: usize,
    status: u8,
    /// The guest's seconds since its boot.
    end: f64,
    /// Why it failed, if the script says so.
    reason: &'a str,
}

fn read_note(note: &str) -> Option<Note<'_>> {
    let mut fields = note.splitn(4, ' ');
    Some(Note {
        test: fields.next()?.parse().ok()?,
        status: fields.next()?.parse().ok()?,
        end: fields.next()?.trim_end().parse().ok()?,
        reason: fields.next().unwrap_or_default().trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_valid() {
        assert!(!parse(include_str!("../../../tests/vm/tests.toml")).unwrap().is_empty());
    }

    fn ended(status: u8, notes: &[&str], log: &str) -> vm::Ended {
        vm::Ended {
            status,
            fault: vm::console::KernelFault::find(log),
            timings: Vec::new(),
            processor: Duration::ZERO,
            notes: notes.iter().map(|&note| note.to_owned()).collect(),
        }
    }

    fn reason(verdict: &Verdict) -> &str {
        match verdict {
            Verdict::Failed(reason) => reason,
            _ => "",
        }
    }

    #[test]
    fn each_test_of_a_machine_has_its_own_verdict_and_time() {
        let rows = verdicts(3, &ended(0, &["0 0 10.50", "1 3 12.00 ", "2 0 15.00"], ""));
        let times: Vec<f64> = rows.iter().map(|(_, time)| time.as_secs_f64()).collect();
        assert_eq!(times, [10.5, 1.5, 3.0]);
        assert!(matches!(rows[0].0, Verdict::Passed) && matches!(rows[2].0, Verdict::Passed));
        assert_eq!(reason(&rows[1].0), "the script ended with status 3; what it printed is above");
        let rows = verdicts(1, &ended(0, &["0 1 10.50 the client with -d mlx5_0:1 "], ""));
        assert_eq!(reason(&rows[0].0), "the client with -d mlx5_0:1");
    }

    #[test]
    fn a_guest_whose_kernel_died_is_distinguished_from_a_script_that_failed() {
        let log = "[   48.2] BUG: kernel NULL pointer dereference, address: 0000000000000018\r\n";
        let rows = verdicts(3, &ended(125, &["0 0 10.50"], log));
        assert!(matches!(rows[0].0, Verdict::Passed));
        for (verdict, _) in &rows[1..] {
            let reason = reason(verdict);
            assert!(reason.starts_with("the guest's kernel died: BUG: kernel NULL pointer"), "{reason}");
            assert!(reason.ends_with("the machine ended before this test did, with status 125"), "{reason}");
        }
    }

    #[test]
    fn a_test_that_takes_seconds_gets_them_and_the_time() {
        let machine = |takes: &str| {
            let test = format!("[[machine.test]]\nname = 'x'\ntimeout = 30\n{takes}script = 'true'\n");
            parse(&format!("[[machine]]\nmode = 'single'\n{test}{test}")).unwrap().remove(0)
        };
        let seconds = |takes, asked: Option<&str>| {
            script(&machine(takes).test, &Asked { seconds: asked.map(str::to_owned), ..Asked::default() })
        };
        let (plain, timeout) = seconds("", Some("600")).unwrap();
        assert_eq!((plain.contains(SECONDS), timeout), (false, 60));
        let (taker, timeout) = seconds("takes_seconds = true\n", Some("600")).unwrap();
        assert_eq!((taker.matches("export UCT_TEST_SECONDS=600").count(), timeout), (2, 4860));
        assert_eq!(seconds("takes_seconds = true\n", None).unwrap().1, 60);
        let error = seconds("takes_seconds = true\n", Some("ten")).unwrap_err();
        assert!(error.to_string().contains("UCT_TEST_SECONDS=ten"));
    }

    #[test]
    fn a_test_program_is_run_by_its_whole_name() {
        let scripts = format!("{GUEST_TESTS}/cm_device --test-threads=1\nexec {GUEST_TESTS}/verbs");
        assert!(is_run("cm_device", &scripts) && is_run("verbs", &scripts));
        assert!(!is_run("cm", &scripts) && !is_run("device", &scripts));
    }

    #[test]
    fn a_part_is_run_unless_all_is_asked_for() {
        let test = "[[machine.test]]\nname = 'x'\ntimeout = 30\npart = '1/8'\nscript = 'true'\n";
        let machine = parse(&format!("[[machine]]\nmode = 'single'\n{test}")).unwrap().remove(0);
        let has_part = |all| {
            let (script, _) = script(&machine.test, &Asked { all, ..Asked::default() }).unwrap();
            script.contains("export UCT_TEST_PART=1/8\n")
        };
        assert!(has_part(false) && !has_part(true));
    }

    #[test]
    fn netem_without_a_pair_is_refused() {
        let test = "[[machine.test]]\nname = 'x'\ntimeout = 1\nscript = ''\n";
        let text = format!("[[machine]]\nmode = 'single'\nnetem = 'loss 5%'\n{test}");
        assert!(parse(&text).err().unwrap().to_string().contains("pair"));
    }
}
