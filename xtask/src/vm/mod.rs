//! `cargo xtask vm`: one command in a small virtual machine that has real InfiniBand verbs without hardware
//! (the kernel's Soft-RoCE), with this project's programs and plugins in it.
//! Built on QEMU's software emulation and a stock Debian kernel; used by the tests of the verbs transports.

pub mod console;
mod contents;
mod initramfs;
mod kernel;
mod qemu;

use crate::apt::{self, Package};
use crate::failure::{Failure, Outcome};
use crate::process::quote;
use crate::workspace::{Built, Workspace};
use clap::Args;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use kernel::Fetched;
pub use qemu::{Ended, Guest};

/// Why there is no machine, where the archive did not send its kernel.
pub const NO_KERNEL: &str = "the guest's kernel cannot be fetched";

/// A test program of a package that depends on all plugins: cargo, which builds no library by its name, builds them with it.
const WITH_PLUGINS: &str = "connection_managers";

/// Where plugins are in the guest; `UCT_MODULE_DIR` there.
const GUEST_MODULES: &str = "/usr/lib/uct";

/// What it needs beside cargo.
pub const PACKAGES: &[Package] = &[
    Package { name: "qemu-system-x86", brings: "/usr/bin/qemu-system-x86_64" },
    Package { name: "busybox-static", brings: "/bin/busybox" },
    Package { name: "binutils", brings: "/usr/bin/strip" },
    Package { name: "kmod", brings: "/sbin/depmod" },
    Package { name: "xz-utils", brings: "/usr/bin/xz" },
    Package { name: "zstd", brings: "/usr/bin/zstd" },
    Package { name: "iproute2", brings: "/usr/bin/rdma /bin/rdma" },
    Package { name: "ibverbs-utils", brings: "/usr/bin/ibv_devinfo" },
    Package { name: "ibverbs-providers", brings: "/etc/libibverbs.d/rxe.driver" },
    Package { name: "rdmacm-utils", brings: "/usr/bin/rping" },
    Package { name: "perftest", brings: "/usr/bin/ib_send_lat" },
    Package { name: "ucx-utils", brings: "/usr/bin/ucx_perftest" },
];

/// One boot and one command.
#[derive(Args, Debug)]
pub struct Options {
    /// Two devices, mlx5_0 (10.7.0.1) and mlx5_1 (10.7.0.2), whose packets really cross; otherwise one, mlx5_0
    #[arg(long)]
    pub pair: bool,

    /// What tc-netem does to the packets between the pair, for example 'loss 5% delay 1ms'; not 'corrupt', which
    /// rdma_rxe of Debian's kernel dies of
    #[arg(long, value_name = "ARGUMENTS", requires = "pair")]
    pub netem: Option<String>,

    /// Virtual CPUs; two programs that poll want a CPU each and one to spare
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub cpus: u8,

    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB", default_value_t = 3072, value_parser = clap::value_parser!(u32).range(256..))]
    pub memory: u32,

    /// Seconds that the command may take, counted in the guest
    #[arg(long, value_name = "S", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: u32,

    /// A file or directory that the command needs, at the same place in the guest or at GUEST, with its libraries
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    pub files: Vec<String>,

    /// A variable for the command's environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<String>,

    /// Build programs and plugins with optimisation; otherwise they are built as for the tests
    #[arg(long)]
    pub release: bool,

    /// Build this package (repeatable), in place of the plugins and the programs that the command names
    #[arg(long = "package", short, value_name = "NAME", conflicts_with = "no_programs")]
    pub packages: Vec<String>,

    /// Build nothing: only the verbs tools of this machine are in the guest
    #[arg(long)]
    pub no_programs: bool,

    /// Say how long each part took
    #[arg(long, short)]
    pub verbose: bool,

    /// The command; a single word is a shell script
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Options {
    /// One script with everything else as it is without options.
    pub fn script(script: String) -> Self {
        Options {
            pair: false,
            netem: None,
            cpus: 4,
            memory: 3072,
            timeout: 120,
            files: Vec::new(),
            environment: Vec::new(),
            release: false,
            packages: Vec::new(),
            no_programs: false,
            verbose: false,
            command: vec![script],
        }
    }
}

/// Boots, runs, and returns the command's status: 124 if it had to be stopped, 125 if the guest died.
pub fn run(options: &Options) -> Outcome<u8> {
    install()?;
    let workspace = Workspace::load()?;
    let profile = if options.release { "release" } else { "dev" };
    let built = match options.packages.as_slice() {
        _ if options.no_programs => Built::default(),
        [] => build_named(&workspace, profile, &scripts(options))?,
        packages => workspace.build_packages(profile, packages.iter().map(String::as_str))?,
    };
    let start = Instant::now();
    let guest = pack(&workspace, &built, options)?;
    let packed = Instant::now();
    let ended = guest.boot(&mut io::stdout())?;
    if options.verbose {
        let (packing, running) = (packed - start, packed.elapsed());
        let size = guest.initramfs.len() >> 10;
        eprintln!("[vm] initramfs of {size} KiB packed in {packing:.1?}, guest ran {running:.1?}");
        for line in &ended.timings {
            eprintln!("[vm] guest's seconds since its boot: {line}");
        }
    }
    Ok(ended.status)
}

/// The command, and files for the guest that may be scripts: what programs they name is in the guest.
fn scripts(options: &Options) -> String {
    let files = options.files.iter().filter_map(|file| std::fs::read_to_string(host_and_guest(file).0).ok());
    options.command.iter().cloned().chain(files).collect::<Vec<_>>().join("\n")
}

/// Builds the programs that scripts name, and the plugins, with the features that the whole workspace has.
fn build_named(workspace: &Workspace, profile: &str, scripts: &str) -> Outcome<Built> {
    let mut arguments = vec!["build", "--workspace", "--profile", profile, "--test", WITH_PLUGINS];
    let programs = workspace.programs().filter(|program| words(scripts).any(|word| word == *program));
    arguments.extend(programs.flat_map(|program| ["--bin", program]));
    Ok(workspace.for_people(workspace.build(&arguments)?))
}

/// The words of a script that may be names of programs.
pub fn words(script: &str) -> impl Iterator<Item = &str> {
    script.split(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))
}

/// Installs what the machine is made of.
pub fn install() -> Outcome {
    apt::require(PACKAGES)
}

/// The guest's kernel, fetched if it is not there, or why this machine cannot get it.
pub fn kernel(workspace: &Workspace) -> Outcome<Fetched> {
    kernel::fetch(&workspace.target().join("vm"))
}

/// A machine for one run, with programs and plugins that are built already.
pub fn pack(workspace: &Workspace, built: &Built, options: &Options) -> Outcome<Guest> {
    let kernel = match kernel(workspace)? {
        Fetched::Here(kernel) => kernel,
        Fetched::Unreachable(reason) => return Err(Failure::new(format!("{NO_KERNEL}: {reason}"))),
    };
    let image = contents::gather(&kernel, built, &options.files, &settings(options)?)?;
    Ok(Guest {
        kernel: kernel.image,
        initramfs: image.pack(),
        cpus: options.cpus,
        memory_mib: options.memory,
        limit: Duration::from_secs(u64::from(options.timeout)),
    })
}

/// What tests/vm/init reads: shell assignments, and the command.
fn settings(options: &Options) -> Outcome<contents::Settings> {
    let mode = if options.pair { "pair" } else { "single" };
    let netem = options.netem.as_deref().unwrap_or_default();
    let mut environment = format!("export UCT_MODULE_DIR={GUEST_MODULES}\n");
    for assignment in &options.environment {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(Failure::new(format!("--env {assignment}: expected NAME=VALUE")));
        };
        environment += &format!("export {name}={}\n", quote(value));
    }
    let command = match options.command.as_slice() {
        [script] => script.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    };
    Ok(contents::Settings {
        configuration: format!("MODE={mode}\nNETEM={}\nTIMEOUT={}\n", quote(netem), options.timeout),
        command: format!("{environment}{command}\n"),
    })
}

/// A guest path for a host path `HOST[:GUEST]`.
fn host_and_guest(file: &str) -> (PathBuf, PathBuf) {
    match file.split_once(':') {
        Some((host, guest)) => (host.into(), guest.into()),
        None => (file.into(), file.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_programs_that_it_names() {
        let options = Options::script("timeout 9 uct_hello_world -n ::1; ls /usr/bin/put_get".to_owned());
        let workspace = Workspace::load().unwrap();
        let named = |options: &Options| {
            let scripts = scripts(options);
            let mut named: Vec<_> =
                workspace.programs().filter(|name| words(&scripts).any(|word| word == *name)).collect();
            named.sort_unstable();
            named.join(" ")
        };
        assert_eq!(named(&options), "put_get uct_hello_world");
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(script.path(), "exec uct_info -d # not listens\n").unwrap();
        let files = vec![format!("{}:/script", script.path().display())];
        let options = Options { files, ..Options::script("bash /script".to_owned()) };
        assert_eq!(named(&options), "uct_info");
    }

    #[test]
    fn the_test_program_that_brings_the_plugins_depends_on_all_of_them() {
        let workspace = Workspace::load().unwrap();
        let (package, _) = workspace.tests().find(|(_, name)| *name == WITH_PLUGINS).unwrap();
        for plugin in workspace.plugin_packages() {
            assert!(package.dependencies.iter().any(|it| it.name == *plugin.name), "{}", plugin.name);
        }
    }
}
