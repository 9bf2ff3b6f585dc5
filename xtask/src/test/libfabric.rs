//! The steps that run programs of others over the libfabric provider: fi_info and fi_pingpong, Open MPI and MPICH. Each compares what it sees with
//! what the provider says it has carried, since a program may find a way of its own beside it.
//! Built on Debian's packages, and on Python's packages of MPICH and mpi4py; used by `test`.

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::net::{free_port, is_listening};
use crate::process::{command, kill_tree, output, run, spawn, wait, wait_until};
use crate::steps::{Steps, Verdict};
use crate::workspace::{EVERYTHING, Workspace};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// Debian's programs.
pub const PACKAGES: &[Package] = &[
    Package { name: "libfabric-bin", brings: "/usr/bin/fi_pingpong" },
    Package { name: "openmpi-bin", brings: "/usr/bin/mpirun.openmpi" },
    Package { name: "python3-venv", brings: "/usr/share/doc/python3-venv" },
];
/// Python's packages: MPICH with its own libfabric, and the calls of MPI for programs in Python, which serve both libraries.
const WHEELS: &[&str] = &["mpich==5.0.2", "mpi4py==4.1.2"];
/// The library of Debian's Open MPI.
const OPEN_MPI: &str = "libmpi.so.40";
/// The program whose results are checked.
const OPERATIONS: &str = "uct-net/libfabric/tests/foreign/operations.py";

const LIMIT: Duration = Duration::from_secs(180);
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The names of the steps.
const PINGPONG: &str = "libfabric: fi_pingpong";
const MPICH: &str = "libfabric: MPICH";
const OPEN: &str = "libfabric: Open MPI";

/// Runs those of the steps that are chosen.
pub fn run_steps(workspace: &Workspace, steps: &mut Steps, missing: &apt::Missing) {
    let needs = |name: &str| {
        let packages: Vec<Package> =
            PACKAGES.iter().filter(|package| package.name == name).copied().collect();
        missing.reason(&packages)
    };
    steps.run_or_skip(PINGPONG, || match needs("libfabric-bin") {
        Some(reason) => Ok(Verdict::Impossible(reason)),
        None => pingpong(workspace).map(|()| Verdict::Passed),
    });
    if !steps.is_chosen(MPICH) && !steps.is_chosen(OPEN) {
        return;
    }
    let python = Python::install(workspace).map_err(|failure| failure.to_string());
    steps.run_or_skip(MPICH, || match &python {
        Err(reason) => Ok(Verdict::Impossible(reason.clone())),
        Ok(python) => mpich(workspace, python).map(|()| Verdict::Passed),
    });
    steps.run_or_skip(OPEN, || match (&python, needs("openmpi-bin")) {
        (Err(reason), _) => Ok(Verdict::Impossible(reason.clone())),
        (_, Some(reason)) => Ok(Verdict::Impossible(reason)),
        (Ok(python), None) => open_mpi(workspace, python).map(|()| Verdict::Passed),
    });
}

/// fi_info lists the provider, and fi_pingpong's messages of every size arrive as they were sent.
fn pingpong(workspace: &Workspace) -> Outcome {
    workspace.build(EVERYTHING)?;
    let mut list = command("/usr/bin/fi_info");
    let listed = output(list.args(["-p", "uct"]).env("FI_PROVIDER_PATH", provider(workspace)), LIMIT)?;
    if !listed.contains("provider: uct\n") {
        return Err(Failure::new(format!("fi_info does not list the provider:\n{listed}")));
    }
    // Without the variable, programs choose among the providers that they had before.
    let others = output(command("/usr/bin/fi_info").args(["-l"]).env_remove("FI_PROVIDER_PATH"), LIMIT)?;
    if others.contains("uct") {
        return Err(Failure::new(format!("the provider is listed where nobody asks for it:\n{others}")));
    }
    for mode in ["msg", "tagged"] {
        let carried = Carried::new()?;
        let side = |arguments: &[&str]| {
            let mut program = command("/usr/bin/fi_pingpong");
            program.args(["-p", "uct", "-e", "rdm", "-c", "-I", "20", "-m", mode]).args(arguments);
            carried.by(&mut program, workspace);
            program.stdout(Stdio::null());
            program
        };
        let port = free_port();
        let mut server = spawn(&mut side(&["-B", &port.to_string()]))?;
        let began = Instant::now();
        while !is_listening(port) {
            if wait_until(&mut server, Instant::now())?.is_some() || began.elapsed() > LIMIT {
                kill_tree(&mut server);
                return Err(Failure::new("fi_pingpong's server does not listen"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let client = run(&mut side(&["-P", &port.to_string(), "127.0.0.1"]), LIMIT);
        if client.is_err() {
            kill_tree(&mut server);
            return client;
        }
        let status = wait(&mut server, LIMIT, "fi_pingpong's server")?;
        if !status.success() {
            return Err(Failure::new(format!("fi_pingpong's server: {status}")));
        }
        // 20 messages of each of its sizes in both directions.
        carried.check(2, 2 * 20 * (64 + 256 + 1024 + 4096 + 65536 + 1_048_576))?;
    }
    Ok(())
}

/// All operations between three ranks, and mpi4py's own programs.
fn mpich(workspace: &Workspace, python: &Python) -> Outcome {
    workspace.build(EVERYTHING)?;
    let start = |ranks: &str| {
        let mut start = command(python.program("mpiexec"));
        start.args(["-n", ranks]).arg(python.program("python"));
        // Ranks of one machine would use memory that they share.
        start.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
        start.env("MPI4PY_LIBMPI", python.place.join("lib/libmpi.so.12"));
        start
    };
    let carried = Carried::new()?;
    let mut operations = start("3");
    operations.arg(workspace.root().join(OPERATIONS));
    run(carried.by(&mut operations, workspace), LIMIT)?;
    carried.check(3, 200_000_000)?;
    for program in ["helloworld", "ringtest"] {
        let mut bench = start("4");
        run(carried.by(bench.args(["-m", "mpi4py.bench", program]), workspace), LIMIT)?;
    }
    Ok(())
}

/// Messages and collective operations between two ranks. Its windows by messages are for one thread only.
fn open_mpi(workspace: &Workspace, python: &Python) -> Outcome {
    workspace.build(EVERYTHING)?;
    let carried = Carried::new()?;
    let mut operations = command("/usr/bin/mpirun.openmpi");
    operations.args(["-n", "2", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
    for (framework, component) in [
        ("pml", "cm"),
        ("mtl", "ofi"),
        ("mtl_ofi_provider_include", "uct"),
        ("btl", "self"),
        ("osc", "pt2pt"),
    ] {
        operations.args(["--mca", framework, component]);
    }
    operations.arg(python.program("python")).arg(workspace.root().join(OPERATIONS));
    operations.env("MPI4PY_LIBMPI", OPEN_MPI).env("OPERATIONS_THREAD_LEVEL", "single");
    // Refused to root otherwise.
    operations.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run(carried.by(&mut operations, workspace), LIMIT)?;
    carried.check(2, 100_000_000)
}

/// The folder with the provider, as `cargo build` leaves it.
fn provider(workspace: &Workspace) -> PathBuf {
    workspace.target().join("debug")
}

/// What the provider says it has carried, in a file to which each process appends a line.
struct Carried {
    file: NamedTempFile,
}

impl Carried {
    fn new() -> Outcome<Carried> {
        let file = NamedTempFile::new().context(|| "cannot make a temporary file".to_owned())?;
        Ok(Carried { file })
    }

    /// Has a program use the provider, and its processes report to this file.
    fn by<'a>(&self, program: &'a mut Command, workspace: &Workspace) -> &'a mut Command {
        program.env("FI_PROVIDER_PATH", provider(workspace)).env("FI_PROVIDER", "uct");
        program
            .env("UCT_FI_STATS", self.file.path())
            .env("UCT_NET_DEVICES", "lo")
            .env("PYTHONDONTWRITEBYTECODE", "1")
    }

    /// Fails unless so many processes have reported, which have sent and written at least so many bytes in all.
    fn check(&self, processes: usize, least: u64) -> Outcome {
        let text =
            fs::read_to_string(self.file.path()).context(|| "cannot read what was carried".to_owned())?;
        let bytes: u64 = text.lines().filter_map(bytes_of).sum();
        if text.lines().count() == processes && bytes >= least {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{processes} processes and {least} bytes were expected, and the provider carried {bytes}:\n{text}"
        )))
    }
}

/// The bytes that a process has sent, and those of reads and writes.
fn bytes_of(line: &str) -> Option<u64> {
    // libfabric, process 7: sent 5 messages 640 bytes, received 5 messages 640 bytes, 1 writes 0 reads 0 atomics 8 bytes
    let amounts: Vec<u64> = line
        .split(' ')
        .zip(line.split(' ').skip(1))
        .filter(|(_, unit)| unit.trim_end_matches(',') == "bytes")
        .filter_map(|(amount, _)| amount.parse().ok())
        .collect();
    match amounts[..] {
        [sent, _received, moved] => Some(sent + moved),
        _ => None,
    }
}

/// Python with MPICH and mpi4py, in a folder below the target folder that stays.
struct Python {
    place: PathBuf,
}

impl Python {
    fn install(workspace: &Workspace) -> Outcome<Python> {
        let python = Python { place: workspace.target().join("foreign/mpi") };
        let stamp = python.place.join("installed");
        let wheels = WHEELS.join(" ");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wheels) {
            return Ok(python);
        }
        run(command("/usr/bin/python3").args(["-m", "venv", "--clear"]).arg(&python.place), INSTALL_LIMIT)?;
        let mut pip = command(python.program("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
        run(pip.args(WHEELS), INSTALL_LIMIT)?;
        fs::write(&stamp, wheels).context(|| format!("cannot write {}", stamp.display()))?;
        Ok(python)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.place.join("bin").join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_process_are_those_sent_and_moved() {
        let line = "libfabric, process 7: sent 5 messages 640 bytes, received 5 messages 1 bytes, 1 writes 0 reads 0 atomics 8 bytes";
        assert_eq!(bytes_of(line), Some(648));
        assert_eq!(bytes_of("libfabric"), None);
    }
}
