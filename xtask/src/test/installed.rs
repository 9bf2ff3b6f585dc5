//! The steps that install into a directory and use what is there: with an empty environment, with nothing else but the system's
//! libraries, from a program that lives elsewhere, and by the author of a plugin in C.
//! Built on `install`, make, pkg-config and unshare; used by `test`.

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::install::{
    self, C_EXAMPLES, COMPAT_EXAMPLE, DOC, LIBFABRIC, PLUGINS, Profile, SHADOWS, SOFTVERBS, Tree,
};
use crate::man::PROGRAMS;
use crate::process::{capture, command, output, run as run_command, spawn, wait};
use crate::steps::Verdict;
use crate::workspace::Workspace;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Beside what every step needs.
const NEEDED: &[Package] = &[
    Package { name: "binutils", brings: "/usr/bin/strip" },
    Package { name: "make", brings: "/usr/bin/make" },
    Package { name: "pkg-config", brings: "/usr/bin/pkg-config" },
];
/// How long one of the programs may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The prefix, which programs that live elsewhere search as well.
const PREFIX: &str = "/usr/local";

/// A root directory of the system's libraries alone and the directories `$2=$3`, and a program in it that has an empty environment.
const EMPTY_ROOT: &str = r#"set -eu
root=$1 from=$2 to=$3
shift 3
mount -t tmpfs tmpfs "$root"
for directory in /usr/lib /usr/lib64 /lib /lib64 /etc; do
    if [ -L "$directory" ]; then
        cp -P "$directory" "$root$directory"
    elif [ -d "$directory" ]; then
        mkdir -p "$root$directory"
        mount --bind "$directory" "$root$directory"
        mount -o remount,ro,bind "$root$directory"
    fi
done
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root$to"
mount --bind /proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$from" "$root$to"
mount -o remount,ro,bind "$root$to"
exec env -i "$(command -v chroot)" "$root" "$@"
"#;

/// An installation in a directory that goes with this value.
struct Installed {
    place: TempDir,
}

impl Installed {
    fn new(workspace: &Workspace) -> Outcome<Self> {
        let place = tempfile::tempdir().context(|| "cannot make a temporary directory".to_owned())?;
        let built = install::build(workspace, Profile::Dev)?;
        // The second time over the first.
        for _ in 0..2 {
            let mut tree = Tree::open(Path::new(PREFIX), Some(place.path()))?;
            install::fill(workspace, &built, &mut tree)?;
        }
        Ok(Installed { place })
    }

    fn prefix(&self) -> std::path::PathBuf {
        self.place.path().join(&PREFIX[1..])
    }

    /// A program of the installation, without environment.
    fn program(&self, name: &str) -> Command {
        let mut program = command(self.prefix().join("bin").join(name));
        program.env_clear().current_dir("/");
        program
    }
}

/// Fails unless `text` has all of `words`.
fn has(text: &str, words: &[&str]) -> Outcome {
    match words.iter().find(|word| !text.contains(**word)) {
        None => Ok(()),
        Some(word) => Err(Failure::new(format!("expected {word:?} in:\n{text}"))),
    }
}

/// Installs, runs the programs, and builds and uses a plugin in C.
pub fn run(workspace: &Workspace) -> Outcome {
    apt::require(NEEDED)?;
    let installed = Installed::new(workspace)?;
    for program in PROGRAMS {
        output(installed.program(program).arg("--help"), LIMIT)?;
    }
    let seen = output(installed.program("uct_info").arg("-v"), LIMIT)?;
    every_plugin(workspace, &installed.prefix().join(PLUGINS), &seen)?;
    softverbs(&installed)?;
    libfabric(&installed)?;
    programs_in_c(&installed)?;
    vocabulary_of_uct(&installed)?;
    plugin_in_c(&installed)?;
    plugin_in_cxx(&installed)
}

/// Each plugin of the workspace is in the list of `uct_info -v`, from this directory.
fn every_plugin(workspace: &Workspace, directory: &Path, seen: &str) -> Outcome {
    for package in workspace.plugin_packages() {
        for target in package.targets.iter().filter(|target| target.is_cdylib()) {
            let file = directory.join(format!("lib{}.so", target.name));
            has(seen, &[&file.display().to_string()])?;
        }
    }
    if seen.contains("Failed plugin") { Err(Failure::new(seen)) } else { Ok(()) }
}

/// A program finds the installed library by `softverbs run`, and without it what it found before.
fn softverbs(installed: &Installed) -> Outcome {
    let program = "/usr/bin/ibv_devinfo";
    if !Path::new(program).exists() {
        return Ok(());
    }
    let found = output(installed.program("softverbs").args(["run", "/usr/bin/ldd", program]), LIMIT)?;
    has(&found, &[&installed.prefix().join(SOFTVERBS).join("libibverbs.so.1").display().to_string()])?;
    let found = output(command("/usr/bin/ldd").env_clear().arg(program), LIMIT)?;
    if found.contains("softverbs") { Err(Failure::new(found)) } else { Ok(()) }
}

/// libfabric finds the installed provider and its shadow in the folders that a program names.
fn libfabric(installed: &Installed) -> Outcome {
    let program = "/usr/bin/fi_info";
    if !Path::new(program).exists() {
        return Ok(());
    }
    for (directory, name, words) in [(LIBFABRIC, "uct", "version: 0."), (SHADOWS, "tcp", "version: 999.0")] {
        let mut info = command(program);
        info.env_clear().env("FI_PROVIDER_PATH", installed.prefix().join(directory));
        let found = output(info.args(["-p", name, "-t", "FI_EP_RDM"]), LIMIT)?;
        has(&found, &[&format!("provider: {name}\n"), "domain: uct", words])?;
    }
    Ok(())
}

/// As somebody does who has a program for UCX's UCT: with a copy of the installed example, make and pkg-config.
fn vocabulary_of_uct(installed: &Installed) -> Outcome {
    let example = installed.prefix().join(DOC).join(COMPAT_EXAMPLE);
    let work = installed.place.path().join("vocabulary");
    fs::create_dir(&work).context(|| format!("cannot make {}", work.display()))?;
    for file in ["Makefile", "hello_uct.c"] {
        fs::copy(example.join(file), work.join(file)).context(|| format!("cannot copy {file}"))?;
    }
    let mut make = command("make");
    make.env("PKG_CONFIG_PATH", installed.prefix().join("lib/pkgconfig")).current_dir(&work);
    run_command(make.env("CFLAGS", "-O1 -Werror"), LIMIT)?;
    let mut hello = command(work.join("hello_uct"));
    hello.env_clear().env("LD_LIBRARY_PATH", installed.prefix().join("lib"));
    has(&output(hello.args(["-t", "self", "-d", "memory"]), LIMIT)?, &["Received over self/memory: Hello"])
}

/// As a programmer does: with a copy of the installed examples, make and pkg-config. The programs talk to each other.
fn programs_in_c(installed: &Installed) -> Outcome {
    let examples = installed.prefix().join(DOC).join("examples/c");
    let work = installed.place.path().join("programs");
    fs::create_dir(&work).context(|| format!("cannot make {}", work.display()))?;
    for file in C_EXAMPLES {
        fs::copy(examples.join(file), work.join(file)).context(|| format!("cannot copy {file}"))?;
    }
    let mut make = command("make");
    make.env("PKG_CONFIG_PATH", installed.prefix().join("lib/pkgconfig")).current_dir(&work);
    make.env("CFLAGS", "-O1 -Werror -pedantic").env("CXXFLAGS", "-O1 -Werror -pedantic");
    run_command(&mut make, LIMIT)?;
    let socket = format!("unix:{}", work.join("socket").display());
    let program = |arguments: &[&str]| {
        let mut program = command(work.join("blocks"));
        program.env_clear().env("LD_LIBRARY_PATH", installed.prefix().join("lib")).args(arguments);
        program
    };
    let mut owner = spawn(&mut program(&[&socket]))?;
    let deadline = Instant::now() + LIMIT;
    while !work.join("socket").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let printed = output(&mut program(&[&socket, "get"]), LIMIT);
    if printed.is_err() {
        let _ = owner.kill();
    }
    wait(&mut owner, LIMIT, "blocks")?;
    has(&printed?, &["256 blocks, 8388608 bytes"])
}

/// As an author does: with a copy of the installed example, make and pkg-config.
fn plugin_in_c(installed: &Installed) -> Outcome {
    let example = installed.prefix().join(DOC).join("examples/cmsg");
    let work = installed.place.path().join("work");
    fs::create_dir(&work).context(|| format!("cannot make {}", work.display()))?;
    for file in ["Makefile", "plugin.c"] {
        fs::copy(example.join(file), work.join(file)).context(|| format!("cannot copy {file}"))?;
    }
    let make = |packages: &Path| {
        let mut make = command("make");
        make.env("PKG_CONFIG_PATH", packages).env("CFLAGS", "-O1 -Werror -pedantic").current_dir(&work);
        make
    };
    let (status, _, stderr) = capture(make(&work).arg("install"), LIMIT)?;
    if status.success() {
        return Err(Failure::new("the example was built without an installation"));
    }
    has(&stderr, &["PKG_CONFIG_PATH"])?;
    run_command(make(&installed.prefix().join("lib/pkgconfig")).arg("install"), LIMIT)?;
    let seen = output(installed.program("uct_info").arg("-v"), LIMIT)?;
    has(&seen, &["Plugin: cmsg"])?;
    let measure = ["-l", "-x", "cmsg", "-t", "am_lat", "-s", "8", "-n", "100"];
    output(installed.program("uct_perftest").args(measure), LIMIT).map(drop)
}

/// The header in C++: the host finds the symbol, and refuses the table for what is wrong with it.
fn plugin_in_cxx(installed: &Installed) -> Outcome {
    if !Path::new("/usr/bin/c++").exists() {
        return Ok(());
    }
    let source = installed.place.path().join("work/plugin.cc");
    let text = "#include <uct_abi.h>\nstatic const UctPlugin plugin = {};\nUCT_PLUGIN_ENTRY(cxx) { return &plugin; }\n";
    fs::write(&source, text).context(|| format!("cannot write {}", source.display()))?;
    let library = installed.prefix().join(PLUGINS).join("libuct_cxx.so");
    let mut compile = command("c++");
    compile.args(["-std=c++11", "-Wall", "-Werror", "-fvisibility=hidden", "-fPIC", "-shared", "-I"]);
    compile.arg(installed.prefix().join("include")).arg("-o").arg(&library).arg(&source);
    run_command(&mut compile, LIMIT)?;
    let seen = output(installed.program("uct_info").arg("-v"), LIMIT)?;
    has(&seen, &["libuct_cxx.so: handshake: does not begin with the magic"])
}

/// Runs what is installed where there is nothing else: in its place, and with programs and plugins apart.
pub fn run_in_empty_root(workspace: &Workspace) -> Outcome<Verdict> {
    if !super::is_root() {
        let reason =
            "this user is not root, or root without its capabilities, so it makes no mount namespace";
        return Ok(Verdict::Impossible(reason.to_owned()));
    }
    apt::require(NEEDED)?;
    let installed = Installed::new(workspace)?;
    let root = installed.place.path().join("root");
    fs::create_dir(&root).context(|| format!("cannot make {}", root.display()))?;
    let inside = |from: &Path, to: &str, arguments: &[&str]| {
        let mut inside = command("unshare");
        inside.args(["--mount", "--propagation", "private", "sh", "-c", EMPTY_ROOT, "sh"]);
        inside.arg(&root).arg(from).arg(to).args(arguments).current_dir("/");
        inside
    };

    let in_place = &mut inside(&installed.prefix(), PREFIX, &["/usr/local/bin/uct_info", "-v", "-d"]);
    every_plugin(workspace, &Path::new(PREFIX).join(PLUGINS), &output(in_place, LIMIT)?)?;

    // Programs elsewhere, so that `../lib/uct` is not there, with the plugins in a usual prefix.
    let program = installed.prefix().join("bin/uct_info");
    let apart = installed.prefix().join("share/elsewhere");
    fs::create_dir(&apart).context(|| format!("cannot make {}", apart.display()))?;
    fs::copy(&program, apart.join("uct_info")).context(|| "cannot copy uct_info".to_owned())?;
    let elsewhere = &mut inside(&installed.prefix(), PREFIX, &["/usr/local/share/elsewhere/uct_info", "-v"]);
    every_plugin(workspace, &Path::new(PREFIX).join(PLUGINS), &output(elsewhere, LIMIT)?)?;

    // And without any: the message names each place.
    let alone = &mut inside(&apart, "/srv/bin", &["/srv/bin/uct_info", "-d", "-t", "rc_verbs"]);
    let (status, _, stderr) = capture(alone, LIMIT)?;
    if status.success() {
        return Err(Failure::new("a transport was found where there is no plugin"));
    }
    let places = [
        "/srv/bin (0 plugins)",
        "/srv/lib/uct (not there)",
        "/usr/local/lib/uct (not there)",
        "/usr/lib/uct",
    ];
    has(&stderr, &places)?;
    Ok(Verdict::Passed)
}
