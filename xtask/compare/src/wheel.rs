//! The newest UCX: the Python wheel `libucx-cu12` holds ucx_perftest with self, tcp and the transports of shared memory, for any Linux.
//! Built on pip; used by `compare --sweep`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{capture, command};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WHEEL: &str = "libucx-cu12";
/// Time limit for fetching it: 45 MB.
const LIMIT: Duration = Duration::from_secs(600);

/// A program that compares with ours.
#[derive(Debug)]
pub struct Peer {
    /// Its ucx_perftest.
    pub program: PathBuf,
    /// Where its libraries are, if they are beside it.
    pub libraries: Option<PathBuf>,
    /// What it is, for humans.
    pub name: String,
}

impl Peer {
    /// The program of somebody's choice.
    pub fn of(program: &Path) -> Outcome<Peer> {
        let program = program
            .canonicalize()
            .context(|| format!("--ucx {}: expected the path of a ucx_perftest", program.display()))?;
        let libraries = program.parent().and_then(Path::parent).map(|prefix| prefix.join("lib"));
        let libraries = libraries.filter(|libraries| libraries.join("libuct.so.0").exists());
        Ok(Peer { name: program.display().to_string(), program, libraries })
    }

    /// That of the wheel, which is fetched once; to get a newer one, delete `target/ucx`.
    pub fn of_wheel(target: &Path) -> Outcome<Peer> {
        let directory = target.join("ucx");
        if !directory.join("libucx").exists() {
            fetch(&directory)?;
        }
        let mut peer = Peer::of(&directory.join("libucx/bin/ucx_perftest"))?;
        let version = std::fs::read_to_string(directory.join("libucx/UCX_WHEEL_VERSION.txt"));
        peer.name = format!("UCX {} ({WHEEL})", version.unwrap_or_default().trim());
        Ok(peer)
    }
}

fn fetch(directory: &Path) -> Outcome {
    // What an earlier run began is not taken for the whole.
    let partial = directory.with_extension("partial");
    let _ = std::fs::remove_dir_all(&partial);
    let mut pip = command("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]);
    pip.arg("--target").arg(&partial).arg(WHEEL);
    crate::process::echo(&pip);
    let reason = match capture(&mut pip, LIMIT) {
        Ok((status, ..)) if status.success() => {
            let moved = std::fs::rename(&partial, directory);
            return moved.context(|| format!("cannot make {}", directory.display()));
        }
        Ok((_, _, stderr)) => stderr.trim().to_owned(),
        Err(failure) => failure.to_string(),
    };
    Err(Failure::new(format!(
        "cannot get UCX: {reason}\nIt comes from the Python wheel {WHEEL}, by python3 with pip and a network. Without them, \
         --ucx PROGRAM names any other ucx_perftest"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_beside_a_program_are_found_and_a_missing_program_is_named() {
        let prefix = tempfile::tempdir().unwrap();
        for directory in ["bin", "lib"] {
            std::fs::create_dir(prefix.path().join(directory)).unwrap();
        }
        let program = prefix.path().join("bin/ucx_perftest");
        let failure = Peer::of(&program).unwrap_err().to_string();
        assert!(failure.contains("--ucx") && failure.contains("bin/ucx_perftest"), "{failure}");
        std::fs::write(&program, "").unwrap();
        assert!(Peer::of(&program).unwrap().libraries.is_none(), "the system's");
        std::fs::write(prefix.path().join("lib/libuct.so.0"), "").unwrap();
        let libraries = Peer::of(&program).unwrap().libraries.unwrap();
        assert_eq!(libraries, prefix.path().canonicalize().unwrap().join("lib"));
    }
}
