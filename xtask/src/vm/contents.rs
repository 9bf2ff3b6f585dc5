//! What goes into the guest: the kernel's modules, a shell, the verbs tools and libraries of this machine,
//! this project's programs and plugins, and every shared library that they name.
//! Built on ldd, strip and `initramfs`; used by `vm`.

use super::initramfs::Initramfs;
use super::kernel::Kernel;
use super::{GUEST_MODULES, host_and_guest};
use crate::failure::{Context, Failure, Outcome};
use crate::process::{capture, command, output};
use crate::workspace::Built;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes above which a program is stripped: those of the system have no debug information.
const LARGE: usize = 4 << 20;
/// How long that may take.
const STRIP_LIMIT: Duration = Duration::from_secs(60);

const INIT: &str = include_str!("../../../tests/vm/init");

/// Without these nothing works. libgcc_s is loaded by glibc itself when a thread is cancelled.
const NEEDED: &[&str] = &[
    "/bin/bash",
    "/bin/busybox",
    "/sbin/ip",
    "/sbin/tc",
    "/usr/bin/rdma",
    "/lib/x86_64-linux-gnu/libgcc_s.so.1",
    // Loaded at run time, so no program names them.
    "/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/lib/x86_64-linux-gnu/librdmacm.so.1",
    "/etc/libibverbs.d/rxe.driver",
];

/// Welcome in the guest where this machine has them.
const TOOLS: &[&str] = &[
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_ud_pingpong",
    "ibv_uc_pingpong",
    "ibv_srq_pingpong",
    "rping",
    "ucmatose",
    "udaddy",
    "rdma_client",
    "rdma_server",
    "rstream",
    "ib_send_lat",
    "ib_write_lat",
    "ib_read_lat",
    "ib_atomic_lat",
    "ib_send_bw",
    "ib_write_bw",
    "ib_read_bw",
    "ib_atomic_bw",
    "ucx_info",
    "ucx_perftest",
    "strace",
    "stdbuf",
    // What stdbuf preloads.
    "/usr/libexec/coreutils/libstdbuf.so",
];

/// Directories of plugins that libraries load by themselves, and how the wanted ones begin.
const PLUGINS: &[(&str, &str)] =
    &[("/usr/lib/x86_64-linux-gnu/libibverbs", "librxe"), ("/usr/lib/x86_64-linux-gnu/ucx", "lib")];

/// What tests/vm/init reads in the guest.
pub struct Settings {
    /// Shell assignments: MODE, NETEM, TIMEOUT.
    pub configuration: String,
    /// The script that it runs.
    pub command: String,
}

/// Collects all of it.
pub fn gather(kernel: &Kernel, built: &Built, files: &[String], settings: &Settings) -> Outcome<Initramfs> {
    let mut image = skeleton(settings);
    for (number, module) in (0..).zip(kernel.modules()?) {
        image.file(format!("/modules/{number:02}-{}", module.name), module.contents);
    }
    for path in wanted(built, files)? {
        add(&mut image, &path.host, &path.guest)?;
    }
    Ok(image)
}

/// The memory of the guest has room for the programs without their debug information, which is half of them.
fn without_debug_information(program: &Path) -> Outcome<Vec<u8>> {
    let stripped = tempfile::NamedTempFile::new().context(|| "cannot make a temporary file".to_owned())?;
    let mut strip = command("strip");
    output(strip.arg("--strip-debug").arg("-o").arg(stripped.path()).arg(program), STRIP_LIMIT)?;
    fs::read(stripped.path()).context(|| format!("cannot read {}", stripped.path().display()))
}

struct Wanted {
    host: PathBuf,
    guest: PathBuf,
}

fn skeleton(settings: &Settings) -> Initramfs {
    let mut image = Initramfs::default();
    for directory in
        ["dev", "proc", "sys", "tmp", "run", "root", "var/tmp", "usr/bin", "usr/sbin", "usr/lib64"]
    {
        image.directory(directory);
    }
    for merged in ["bin", "sbin", "lib", "lib64"] {
        image.link(merged, &format!("usr/{merged}"));
    }
    image.directory(GUEST_MODULES);
    image.link("/usr/bin/sh", "bash");
    image.file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    image.file("/etc/group", "root:x:0:\n");
    image.file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
    image.file("/etc/nsswitch.conf", "hosts: files\n");
    image.file("/init", INIT);
    image.file("/vm/configuration", settings.configuration.as_str());
    image.file("/vm/command", settings.command.as_str());
    image
}

fn wanted(built: &Built, files: &[String]) -> Outcome<Vec<Wanted>> {
    let same = |path: PathBuf| Wanted { guest: path.clone(), host: path };
    let named = |directory: &str, host: &Path| {
        let guest = Path::new(directory).join(host.file_name().unwrap_or_default());
        Wanted { host: host.to_owned(), guest }
    };
    let mut wanted: Vec<Wanted> = NEEDED.iter().map(|path| same(PathBuf::from(path))).collect();
    wanted.extend(TOOLS.iter().map(|tool| Path::new("/usr/bin").join(tool)).filter(|p| p.exists()).map(same));
    for (directory, prefix) in PLUGINS {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let begins =
            |path: &PathBuf| path.file_name().is_some_and(|f| f.to_string_lossy().starts_with(prefix));
        wanted.extend(entries.map(|entry| entry.path()).filter(begins).map(same));
    }
    wanted.extend(built.programs.iter().map(|program| named("/usr/bin", program)));
    wanted.extend(built.plugins.iter().map(|plugin| named(GUEST_MODULES, plugin)));
    for file in files {
        let (host, guest) = host_and_guest(file);
        let host = host.canonicalize().map_err(|error| Failure::new(format!("--file {file}: {error}")))?;
        let guest = if guest.is_absolute() { guest } else { host.clone() };
        wanted.push(Wanted { host, guest });
    }
    Ok(wanted)
}

/// Adds a file with its libraries, or a directory with all that is in it.
fn add(image: &mut Initramfs, host: &Path, guest: &Path) -> Outcome {
    if image.contains(guest) && !host.is_dir() {
        return Ok(());
    }
    if host.is_dir() {
        image.directory(guest);
        let entries = fs::read_dir(host).context(|| format!("cannot read {}", host.display()))?;
        for entry in entries.flatten() {
            add(image, &entry.path(), &guest.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let mut contents = fs::read(host).context(|| format!("cannot read {}", host.display()))?;
    let is_elf = contents.starts_with(b"\x7fELF");
    if is_elf && contents.len() > LARGE {
        contents = without_debug_information(host)?;
    }
    image.file(guest, contents);
    if is_elf {
        // The list is whole: it names what those libraries load too.
        for library in libraries(host)?.into_iter() {
            if image.contains(&library) {
                continue;
            }
            let contents = fs::read(&library).context(|| format!("cannot read {}", library.display()))?;
            image.file(library, contents);
        }
    }
    Ok(())
}

/// The shared libraries that an ELF file loads at its start, by the paths where the loader found them.
fn libraries(file: &Path) -> Outcome<Vec<PathBuf>> {
    // It fails on a statically linked program, which has none.
    let (_, listing, _) = capture(command("ldd").arg(file), Duration::from_secs(300))?;
    if let Some(missing) = listing.lines().find(|line| line.ends_with("not found")) {
        return Err(Failure::new(format!("{}: {}", file.display(), missing.trim())));
    }
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(listing.lines().filter(|line| line.starts_with('\t')).filter_map(path).collect())
}
