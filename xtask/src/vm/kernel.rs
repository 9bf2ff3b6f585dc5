//! The guest's kernel: the stock Debian one, fetched once, its modules indexed, its ELF image extracted.
//! Built on apt-get, dpkg and depmod; used by `vm`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{capture, command, line, output, run};
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The modules that the guest wants, beside what they depend on. No module names crc32_generic as a
/// dependency, but rdma_rxe looks the algorithm up by name when it loads.
const MODULES: &[&str] = &["crc32_generic", "rdma_rxe", "rdma_cm", "rdma_ucm", "veth", "dummy", "sch_netem"];

const LIMIT: Duration = Duration::from_secs(300);

/// Seconds between attempts to get the package, and the time after which none begins.
const PAUSES: [u64; 5] = [2, 5, 10, 20, 40];
const ATTEMPTS_LIMIT: Duration = Duration::from_secs(120);

/// An unpacked kernel.
pub struct Kernel {
    /// What QEMU boots: the ELF image, which starts two seconds sooner than the compressed one.
    pub image: PathBuf,
    /// The root below which lib/modules is.
    root: PathBuf,
    /// The name of its directory in lib/modules.
    version: String,
}

/// A module as the guest loads it.
pub struct Module {
    /// Its file name without compression.
    pub name: String,
    /// Its bytes, decompressed.
    pub contents: Vec<u8>,
}

/// A kernel, or why this machine cannot get one.
pub enum Fetched {
    /// It is unpacked and ready to boot.
    Here(Kernel),
    /// The package archive did not send it, for this reason.
    Unreachable(String),
}

/// Fetches the kernel into `directory` unless it is there. An archive that cannot be reached is asked again for about two minutes. A package
/// that came and cannot be used is a failure.
pub fn fetch(directory: &Path) -> Outcome<Fetched> {
    fetch_with(directory, &Archive { options: &[], pauses: &PAUSES })
}

fn fetch_with(directory: &Path, archive: &Archive) -> Outcome<Fetched> {
    fs::create_dir_all(directory).context(|| format!("cannot make {}", directory.display()))?;
    // Held until the end of the function: another one that starts meanwhile waits, and finds it done.
    let lock = directory.join("lock");
    let lock = fs::File::create(&lock).context(|| format!("cannot write {}", lock.display()))?;
    flock(&lock, FlockOperation::LockExclusive)
        .context(|| "cannot lock the directory of the kernel".to_owned())?;

    let ready = directory.join("version");
    if let Ok(version) = fs::read_to_string(&ready) {
        let kernel = Kernel { image: directory.join("vmlinux"), root: directory.join("kernel"), version };
        return Ok(Fetched::Here(kernel));
    }
    let root = directory.join("kernel");
    if root.exists() {
        fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))?;
    }
    let package = match archive.download(directory) {
        Ok(package) => package,
        Err(failure) => return Ok(Fetched::Unreachable(failure.to_string())),
    };
    let version = package.trim_start_matches("linux-image-").to_owned();
    let archive = downloaded(directory, &package)?;
    run(command("dpkg").arg("-x").arg(&archive).arg(&root), LIMIT)?;
    fs::remove_file(&archive).context(|| format!("cannot remove {}", archive.display()))?;
    run(command("/sbin/depmod").arg("-b").arg(&root).arg(&version), LIMIT)?;
    let image = directory.join("vmlinux");
    extract_elf(&root.join("boot").join(format!("vmlinuz-{version}")), &image)?;
    let kernel = Kernel { image, root, version };
    kernel.drop_others()?;
    fs::write(&ready, &kernel.version).context(|| format!("cannot write {}", ready.display()))?;
    Ok(Fetched::Here(kernel))
}

/// Where packages come from.
struct Archive<'a> {
    /// Options of apt-get and apt-cache beside the usual ones.
    options: &'a [&'a str],
    /// Seconds between attempts.
    pauses: &'a [u64],
}

impl Archive<'_> {
    /// Downloads the package of the kernel into `directory`, and returns its name.
    fn download(&self, directory: &Path) -> Outcome<String> {
        let begin = Instant::now();
        let mut pauses = self.pauses.iter().map(|seconds| Duration::from_secs(*seconds));
        loop {
            let failure = match self.try_download(directory) {
                Ok(package) => return Ok(package),
                Err(failure) => failure,
            };
            match pauses.next().filter(|pause| begin.elapsed() + *pause < ATTEMPTS_LIMIT) {
                Some(pause) => {
                    eprintln!("xtask: {failure}\nxtask: again in {} s", pause.as_secs());
                    thread::sleep(pause);
                    // The list may name a package that a newer one has replaced. Only root may make a new list.
                    let _ = self.run(&["update"], directory);
                }
                None => return Err(failure),
            }
        }
    }

    fn try_download(&self, directory: &Path) -> Outcome<String> {
        let package = self.package_name()?;
        self.run(&["download", &package], directory)?;
        Ok(package)
    }

    /// The package behind Debian's newest kernel. The cloud kernel has no rdma_rxe.
    fn package_name(&self) -> Outcome<String> {
        let mut cache = command("apt-cache");
        let depends = output(cache.args(self.options).args(["depends", "linux-image-amd64"]), LIMIT)?;
        let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        package.map(str::to_owned).ok_or_else(|| {
            Failure::new(
                "apt knows no package linux-image-amd64: run `apt-get update` on a Debian for x86-64",
            )
        })
    }

    fn run(&self, action: &[&str], directory: &Path) -> Outcome {
        let mut apt = command("apt-get");
        // As root, apt would drop its privileges for a download and complain that it cannot write here.
        apt.args([
            "-q",
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Acquire::Retries=0",
            "-o",
            "Acquire::http::Timeout=15",
        ]);
        apt.args(["-o", "Acquire::https::Timeout=15"]).args(self.options).args(action);
        apt.current_dir(directory).env("LC_ALL", "C");
        let (status, _, stderr) = capture(&mut apt, LIMIT)?;
        if status.success() {
            return Ok(());
        }
        let errors = stderr.lines().filter(|line| line.starts_with("E: ")).collect();
        Err(Failure::new(format!("`{}` failed: {status}", line(&apt))).with_lines(errors))
    }
}

impl Kernel {
    /// The wanted modules and what they depend on, in the order in which they load.
    pub fn modules(&self) -> Outcome<Vec<Module>> {
        self.wanted()?.iter().map(|path| read_module(path)).collect()
    }

    /// Removes all other modules: nine tenths of the package.
    fn drop_others(&self) -> Outcome {
        let wanted = self.wanted()?;
        let mut folders = vec![self.root.join("lib/modules")];
        while let Some(folder) = folders.pop() {
            let context = || format!("cannot clear {}", folder.display());
            for entry in fs::read_dir(&folder).context(context)? {
                let entry = entry.context(context)?;
                let path = entry.path();
                if entry.file_type().context(context)?.is_dir() {
                    folders.push(path);
                } else if entry.file_name().to_string_lossy().contains(".ko") && !wanted.contains(&path) {
                    fs::remove_file(&path).context(context)?;
                }
            }
        }
        Ok(())
    }

    /// The files of the wanted modules and of what they depend on, in the order in which they load.
    fn wanted(&self) -> Outcome<Vec<PathBuf>> {
        let mut order: Vec<PathBuf> = Vec::new();
        for name in MODULES {
            let mut show = command("/sbin/modprobe");
            show.arg("-d").arg(&self.root).args(["-S", &self.version, "--show-depends", name]);
            for line in output(&mut show, LIMIT)?.lines() {
                let path = line.strip_prefix("insmod ").and_then(|rest| rest.split_whitespace().next());
                order.extend(path.map(PathBuf::from).filter(|path| !order.contains(path)));
            }
        }
        Ok(order)
    }
}

fn downloaded(directory: &Path, package: &str) -> Outcome<PathBuf> {
    let entries = fs::read_dir(directory).context(|| format!("cannot read {}", directory.display()))?;
    let archive = entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(package) && name.ends_with(".deb")
    });
    archive.ok_or_else(|| Failure::new(format!("apt-get left no {package}*.deb in {}", directory.display())))
}

fn read_module(path: &Path) -> Outcome<Module> {
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = file_name.split(".ko").next().unwrap_or_default();
    let contents = match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => fs::read(path).context(|| format!("cannot read {}", path.display()))?,
        _ => {
            let compressed = fs::read(path).context(|| format!("cannot read {}", path.display()))?;
            decompress(&compressed, path)?
        }
    };
    Ok(Module { name: format!("{name}.ko"), contents })
}

/// Writes the ELF image that a bzImage carries compressed.
fn extract_elf(bzimage: &Path, image: &Path) -> Outcome {
    let bytes = fs::read(bzimage).context(|| format!("cannot read {}", bzimage.display()))?;
    let payload = payload(&bytes).ok_or_else(|| {
        Failure::new(format!("{} is not a bzImage of boot protocol 2.08", bzimage.display()))
    })?;
    let elf = decompress(payload, bzimage)?;
    if !elf.starts_with(b"\x7fELF") {
        return Err(Failure::new(format!("{} holds no ELF image", bzimage.display())));
    }
    fs::write(image, elf).context(|| format!("cannot write {}", image.display()))
}

/// The compressed kernel inside a bzImage, by the fields of the x86 boot protocol.
fn payload(bzimage: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(bzimage.get(at..at + 4)?.try_into().ok()?) as usize);
    if bzimage.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup_sectors = usize::from(*bzimage.get(0x1f1)?);
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    bzimage.get(start..start.checked_add(word(0x24c)?)?)
}

/// Decompresses by what the first bytes say.
fn decompress(compressed: &[u8], of: &Path) -> Outcome<Vec<u8>> {
    // The kernel's build appends the size to what does not carry it: ignored, or cut off where it would be an error.
    let (program, end): (&[&str], usize) = match compressed {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => (&["xz", "-dc", "--single-stream"], 0),
        [0x28, 0xb5, 0x2f, 0xfd, ..] if of.extension().is_some_and(|e| e == "zst") => (&["zstd", "-dcq"], 0),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => (&["zstd", "-dcq"], 4),
        [0x1f, 0x8b, ..] => (&["gzip", "-dc"], 0),
        other => {
            let magic = &other[..other.len().min(6)];
            let path = of.display();
            return Err(Failure::new(format!(
                "{path}: compressed in a way not known here, it begins {magic:02x?}"
            )));
        }
    };
    let mut input = tempfile::NamedTempFile::new().context(|| "cannot make a temporary file".to_owned())?;
    let body = &compressed[..compressed.len() - end];
    std::io::Write::write_all(&mut input, body).context(|| "cannot write a temporary file".to_owned())?;
    let stdin = input.reopen().context(|| "cannot read a temporary file".to_owned())?;
    let result = command(program[0]).args(&program[1..]).stdin(stdin).output();
    let result = result.context(|| format!("cannot start {}", program[0]))?;
    if !result.status.success() {
        let reason = String::from_utf8_lossy(&result.stderr).into_owned();
        return Err(Failure::new(format!("{}: {} failed: {reason}", of.display(), program[0])));
    }
    Ok(result.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// apt-get with a proxy that is not there, so that no archive is reached.
    const NOWHERE: &[&str] =
        &["-o", "Acquire::http::Proxy=http://127.0.0.1:1", "-o", "Acquire::https::Proxy=http://127.0.0.1:1"];

    #[test]
    fn an_archive_that_is_not_reached_is_asked_again_and_is_no_failure() {
        if !Path::new("/usr/bin/apt-get").exists() {
            return crate::skip::skip("apt", "there is no apt-get");
        }
        let directory = tempfile::tempdir().unwrap();
        let begin = Instant::now();
        let fetched = fetch_with(directory.path(), &Archive { options: NOWHERE, pauses: &[1] }).unwrap();
        let Fetched::Unreachable(reason) = fetched else { panic!("a kernel from nowhere") };
        assert!(reason.contains("apt-get") || reason.contains("apt-cache"), "{reason}");
        assert!(begin.elapsed() >= Duration::from_secs(1), "it was not asked again");
        assert!(!directory.path().join("version").exists());
    }

    #[test]
    fn a_kernel_that_is_there_and_broken_is_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("vmlinuz");
        fs::write(&image, [0; 4096]).unwrap();
        let failure = extract_elf(&image, &directory.path().join("vmlinux")).unwrap_err();
        assert!(failure.to_string().contains("is not a bzImage"), "{failure}");
    }

    #[test]
    fn the_payload_is_found_where_the_header_says() {
        let mut image = vec![0u8; 2048];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&4u32.to_le_bytes());
        image[1040..1044].copy_from_slice(b"body");
        assert_eq!(payload(&image), Some(&b"body"[..]));
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&image[..100]), None);
    }
}
