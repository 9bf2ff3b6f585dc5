//! Child processes: shown before they start, bounded in time, and never left behind.
//! Built on std and rustix; used by every command that runs something.

use crate::failure::{Context, Failure, Outcome};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a child that is waited for is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// A command without the variables that cargo sets for this program alone: they would make a nested
/// cargo rebuild what is built, and its library path would hide a library that is missing.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text == "LD_LIBRARY_PATH"
            || text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_BIN_")
            || text.starts_with("CARGO_MANIFEST_")
        {
            command.env_remove(&name);
        }
    }
    command
}

static ONCE: OnceLock<()> = OnceLock::new();

/// Has every later [`cargo`], and the ones that test programs start, build without what would make another build after a change
/// sooner, and without the lines of backtraces. It takes less time and space.
pub fn build_for_once() {
    let _ = ONCE.set(());
}

/// The cargo that runs this program.
pub fn cargo() -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    set_profile(&mut cargo);
    cargo
}

/// Has a cargo that this command is, or that it starts, build as every other one does: what one has built, another would build again.
pub(crate) fn set_profile(command: &mut Command) {
    if ONCE.get().is_none() {
        return;
    }
    let settings = [
        ("CARGO_INCREMENTAL", "0"),
        ("CARGO_PROFILE_DEV_DEBUG", "none"),
        ("CARGO_PROFILE_RELEASE_DEBUG", "none"),
    ];
    for (name, value) in settings {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
}

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            line += &format!("{}={} ", name.to_string_lossy(), quote(&value.to_string_lossy()));
        }
    }
    line += &base_name(command);
    for argument in command.get_args() {
        line += " ";
        line += &quote(&argument.to_string_lossy());
    }
    line
}

/// A word as a POSIX shell reads it back unchanged.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Says on standard error what is about to run.
pub fn echo(command: &Command) {
    eprintln!("+ {}", line(command));
}

/// Shows and runs a command to its end; anything but success is a failure that repeats the command.
pub fn run(command: &mut Command, limit: Duration) -> Outcome {
    echo(command);
    let status = wait(&mut spawn(command)?, limit, &line(command))?;
    check(command, status)
}

/// Runs commands, so many at a time, in their order. What a command prints is shown when it has ended. All of them run, whichever fails.
pub fn run_side_by_side(at_a_time: usize, commands: Vec<Command>, limit: Duration) -> Outcome {
    let waiting = Mutex::new(VecDeque::from(commands));
    let failures = Mutex::new(Vec::new());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let run_all = || {
        while let Some(mut command) = next() {
            let ended = capture(&mut command, limit);
            // Held while output is shown, so that the lines of two commands do not mix.
            let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.extend(show(&command, ended).err());
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(run_all);
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::new(failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

/// Shows a command that has ended, with its output. A failure has the lines that say what failed.
fn show(command: &Command, ended: Outcome<(ExitStatus, String, String)>) -> Outcome {
    echo(command);
    let (status, stdout, stderr) = ended?;
    eprint!("{stderr}");
    print!("{stdout}");
    check(command, status).map_err(|failure| failure.with_lines(telling(&format!("{stdout}\n{stderr}"))))
}

/// Runs tests, whose standard error is shown as it comes. A failure has the lines that say what failed.
pub fn run_tests(command: &mut Command, limit: Duration) -> Outcome {
    echo(command);
    let mut child = spawn(command.stderr(Stdio::piped()))?;
    let shown = child.stderr.take().map(|pipe| thread::spawn(move || show_and_keep(pipe)));
    let status = wait(&mut child, limit, &line(command));
    let printed = shown.and_then(|shown| shown.join().ok()).unwrap_or_default();
    check(command, status?).map_err(|failure| failure.with_lines(telling(&printed)))
}

fn show_and_keep(pipe: impl Read) -> String {
    let mut kept = String::new();
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        eprintln!("{line}");
        kept += &line;
        kept.push('\n');
    }
    kept
}

/// The lines that name the tests that failed, and the places and messages of panics, which the suite's runner has below the names; the
/// first of them, if there are many.
fn telling(printed: &str) -> Vec<&str> {
    const LINES: usize = 40;
    /// With the line of a panic.
    const AFTER_PANIC: usize = 2;
    /// With the line that names a test at the end, where its reason is.
    const AFTER_NAME: usize = 6;
    const ENDINGS: &[&str] = &["FAIL [", "TIMEOUT [", "LEAK-FAIL [", "SIGABRT [", "SIGSEGV ["];
    let mut more = 0;
    let mut told = Vec::new();
    for line in printed.lines() {
        let is_panic = line.contains("panicked at");
        let is_reason = line.starts_with("---- ") && line.ends_with(" ----");
        if is_panic {
            more = AFTER_PANIC + 1;
        } else if is_reason {
            more = AFTER_NAME + 1;
        } else if line == "failures:" {
            more = 0;
        }
        let names = ENDINGS.iter().any(|ending| line.trim_start().starts_with(ending))
            || line.contains(" hangs: not done after ");
        if (more > 0 || names || line.ends_with("... FAILED")) && !line.is_empty() && !told.contains(&line) {
            told.push(line);
        }
        more = more.saturating_sub(1);
    }
    told.truncate(LINES);
    told
}

fn check(command: &Command, status: ExitStatus) -> Outcome {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` failed: {status}", line(command))))
}

/// Runs a command silently and returns its standard output; its standard error is shown if it fails.
pub fn output(command: &mut Command, limit: Duration) -> Outcome<String> {
    let (status, stdout, stderr) = capture(command, limit)?;
    if status.success() {
        return Ok(stdout);
    }
    Err(Failure::new(format!("`{}` failed: {status}\n{stderr}", line(command))))
}

/// Runs a command silently and returns how it ended, its standard output and its standard error.
pub fn capture(command: &mut Command, limit: Duration) -> Outcome<(ExitStatus, String, String)> {
    let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let status = wait(&mut child, limit, &line(command))?;
    Ok((status, stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default()))
}

/// Starts a command. A program that is not there is named.
pub fn spawn(command: &mut Command) -> Outcome<Child> {
    command.spawn().context(|| format!("cannot start `{}`", base_name(command)))
}

/// Waits for a child no longer than `limit`; then it and its descendants are killed by their ids.
pub fn wait(child: &mut Child, limit: Duration, name: &str) -> Outcome<ExitStatus> {
    match wait_until(child, Instant::now() + limit)? {
        Some(status) => Ok(status),
        None => {
            kill_tree(child);
            let seconds = limit.as_secs();
            Err(Failure::with_status(format!("`{name}` was killed: not done after {seconds} s"), 124))
        }
    }
}

/// Waits for a child up to an instant: `None` if it still runs then.
pub fn wait_until(child: &mut Child, deadline: Instant) -> Outcome<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context(|| "cannot wait for a child process".to_owned())? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Kills a child and everything that it started and that has not cut itself loose, by process id.
pub fn kill_tree(child: &mut Child) {
    for id in descendants(child.id()) {
        if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
            // A process that ended meanwhile is what was wanted.
            let _ = kill_process(id, Signal::KILL);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The processes below `root`, found through their parents in /proc.
fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may hold anything; the state and the parent follow it.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(id);
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        found.extend(children.get(&found[next]).into_iter().flatten());
        next += 1;
    }
    found.split_off(1)
}

fn base_name(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    match program.file_name() {
        // A program found by its place in the build is shown by its name alone; `cargo` too.
        Some(name) if program.is_absolute() => name.to_string_lossy().into_owned(),
        _ => program.to_string_lossy().into_owned(),
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_survives_the_shell() {
        for word in ["", "plain", "two words", "it's", "$HOME `x` \"y\"", "a;b&c|d", "new\nline"] {
            let script = format!("printf %s {}", quote(word));
            let printed = output(Command::new("sh").args(["-c", &script]), Duration::from_secs(10)).unwrap();
            assert_eq!(printed, word);
        }
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_with_what_it_started() {
        let mut child =
            spawn(Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()))
                .unwrap();
        let mut text = [0; 16];
        let length = child.stdout.as_mut().unwrap().read(&mut text).unwrap();
        let grandchild: u32 = std::str::from_utf8(&text[..length]).unwrap().trim().parse().unwrap();
        let failure = wait(&mut child, Duration::from_millis(50), "sh").unwrap_err();
        assert_eq!(failure.status(), 124);
        // An orphan that was killed may stay a zombie until init reaps it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read_to_string(format!("/proc/{grandchild}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        {
            assert!(Instant::now() < deadline, "the grandchild still runs");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn commands_run_side_by_side_and_each_failure_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        // Each of the first two ends only once the other has begun.
        let meet = |mine: &str, other: &str| {
            let mut command = Command::new("sh");
            let script = format!("touch {mine}; until [ -e {other} ]; do sleep 0.01; done");
            command.args(["-c", &script]).current_dir(directory.path());
            command
        };
        let fail = |status: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {status}")]);
            command
        };
        let commands = vec![meet("a", "b"), meet("b", "a"), fail("3"), fail("4")];
        let failure = run_side_by_side(2, commands, Duration::from_secs(60)).unwrap_err().to_string();
        assert!(failure.contains("exit status: 3") && failure.contains("exit status: 4"), "{failure}");
        assert_eq!(failure.lines().count(), 2, "{failure}");
    }

    #[test]
    fn a_failure_of_tests_names_them() {
        let printed = "PASS [ 0.1s] a\n  FAIL [ 0.2s] (1/2) uct-net::net_idle asleep\nthread 'x' panicked at a.rs:1:2:\n\
                       left: 1\nright: 2\nnote: more\n  FAIL [ 0.2s] (1/2) uct-net::net_idle asleep\ntest b ... FAILED\n";
        let told = telling(printed).join("|");
        let expected = "  FAIL [ 0.2s] (1/2) uct-net::net_idle asleep|thread 'x' panicked at a.rs:1:2:|left: 1|right: 2|\
                        test b ... FAILED";
        assert_eq!(told, expected);

        let printed = "test tcp/lo[plugin]::a case ... FAILED\n\nfailures:\n\n\
                       ---- tcp/lo[plugin]::a case ----\nassertion failed\n  left: 1 (tests/src/a.rs:1:2)\n\n\n\
                       failures:\n    tcp/lo[plugin]::a case\n\ntest result: FAILED. 0 passed; 1 failed\n\
                       tcp/lo[plugin]::b hangs: not done after 60 s; the run is ended\n";
        let told = telling(printed).join("|");
        let expected = "test tcp/lo[plugin]::a case ... FAILED|---- tcp/lo[plugin]::a case ----|assertion failed|\
                        \x20 left: 1 (tests/src/a.rs:1:2)|tcp/lo[plugin]::b hangs: not done after 60 s; the run is ended";
        assert_eq!(told, expected);

        let mut tests = Command::new("sh");
        tests.args(["-c", "echo '  FAIL [ 0.2s] one' >&2; echo more >&2; exit 100"]);
        let failure = run_tests(&mut tests, Duration::from_secs(10)).unwrap_err().to_string();
        assert!(failure.ends_with("exit status: 100\n  FAIL [ 0.2s] one"), "{failure}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = run(&mut Command::new("no-such-program-here"), Duration::from_secs(1)).unwrap_err();
        assert!(failure.to_string().contains("no-such-program-here"), "{failure}");
    }
}
