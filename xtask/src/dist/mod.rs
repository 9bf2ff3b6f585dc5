//! `cargo xtask dist`: a tarball and a Debian package of what `install` installs.
//! Built on `install`, tar, dpkg-shlibdeps and dpkg-deb.

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::install::{self, C_LIBRARY, COMPAT_LIBRARY, DOC, Tree};
use crate::process::{command, output, run as run_command};
use crate::workspace::Workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NEEDED: &[Package] = &[
    Package { name: "binutils", brings: "/usr/bin/strip" },
    Package { name: "dpkg", brings: "/usr/bin/dpkg-deb" },
    Package { name: "dpkg-dev", brings: "/usr/bin/dpkg-shlibdeps" },
    Package { name: "gzip", brings: "/bin/gzip /usr/bin/gzip" },
    Package { name: "tar", brings: "/bin/tar /usr/bin/tar" },
];
/// How long a packer may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Writes both into target/dist.
pub fn run(workspace: &Workspace) -> Outcome {
    apt::require(NEEDED)?;
    let built = install::build(workspace, install::Profile::Release)?;
    let directory = workspace.target().join("dist");
    let name = format!("uct-{}-{}-linux", workspace.version(), std::env::consts::ARCH);
    let time = time_of_commit(workspace);

    // The tarball can be unpacked anywhere: programs find `../lib/uct`, and pkg-config's files their own prefix.
    let mut tree = Tree::open(Path::new("/"), Some(&emptied(directory.join(&name))?))?;
    install::fill(workspace, &built, &mut tree)?;
    let tarball = directory.join(format!("{name}.tar.gz"));
    let mut tar = command("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &format!("--mtime=@{time}")]);
    tar.args(["--use-compress-program=gzip -n", "-cf"]).arg(&tarball).arg("-C").arg(&directory).arg(&name);
    run_command(&mut tar, LIMIT)?;

    let root = emptied(directory.join("deb"))?;
    let mut tree = Tree::open(Path::new("/usr"), Some(&root))?;
    install::fill(workspace, &built, &mut tree)?;
    let package = debian(workspace, &directory, &root, &mut tree, &time)?;
    println!("{}\n{}", tarball.display(), package.display());
    Ok(())
}

/// Makes a Debian package of the tree below `root`.
fn debian(
    workspace: &Workspace,
    directory: &Path,
    root: &Path,
    tree: &mut Tree,
    time: &str,
) -> Outcome<PathBuf> {
    let architecture = output(command("dpkg").arg("--print-architecture"), LIMIT)?.trim().to_owned();
    tree.write(DOC, "copyright", copyright(workspace)?.as_bytes())?;
    let manual = tree.root().join("share/man");
    let pages = files(&manual)?;
    run_command(command("gzip").args(["--best", "--no-name", "--force"]).args(pages), LIMIT)?;

    let payload = files(&root.join("usr"))?;
    let depends = depends(directory, &payload)?;
    let size: u64 =
        payload.iter().filter_map(|file| file.metadata().ok()).map(|it| it.len().div_ceil(1024)).sum();
    let version = workspace.version();
    let control = format!(
        "Package: uct\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The UCT developers <uct@localhost>\n\
         Installed-Size: {size}\n\
         Depends: {depends}\n\
         Recommends: ibverbs-providers\n\
         Suggests: librdmacm1t64 | librdmacm1\n\
         Section: net\n\
         Priority: optional\n\
         Description: transports for programs that move data between processes\n \
         Programs, transport plugins and the C library of UCT: active messages, put,\n \
         get and atomic operations over shared memory, TCP, InfiniBand and RoCE.\n"
    );
    let about = root.join("DEBIAN");
    fs::create_dir(&about).context(|| format!("cannot make {}", about.display()))?;
    // The loader finds the library for programs in C by its cache.
    let triggers = about.join("triggers");
    fs::write(&triggers, "activate-noawait ldconfig\n")
        .context(|| format!("cannot write {}", triggers.display()))?;
    let about = about.join("control");
    fs::write(&about, control).context(|| format!("cannot write {}", about.display()))?;
    let package = directory.join(format!("uct_{version}_{architecture}.deb"));
    let mut pack: Command = command("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", time).args(["--root-owner-group", "--build"]).arg(root).arg(&package);
    run_command(&mut pack, LIMIT)?;
    Ok(package)
}

/// The packages whose libraries the programs and plugins are linked to, as a control file lists them.
fn depends(directory: &Path, files: &[PathBuf]) -> Outcome<String> {
    let sources = directory.join("debian");
    fs::create_dir_all(&sources).context(|| format!("cannot make {}", sources.display()))?;
    // dpkg-shlibdeps runs in a tree of Debian sources only.
    let control = sources.join("control");
    fs::write(&control, "Source: uct\n\nPackage: uct\nArchitecture: any\n")
        .context(|| format!("cannot write {}", control.display()))?;
    let linked = |file: &&PathBuf| {
        let libraries = [C_LIBRARY, COMPAT_LIBRARY];
        let is_named = libraries.iter().any(|name| file.ends_with(name));
        let is_library = is_named || file.extension().is_some_and(|it| it == "so");
        !file.is_symlink() && is_library || file.parent().is_some_and(|it| it.ends_with("bin"))
    };
    let mut shlibdeps = command("dpkg-shlibdeps");
    shlibdeps.arg("-O").args(files.iter().filter(linked)).current_dir(directory);
    let printed = output(&mut shlibdeps, LIMIT)?;
    let packages = printed.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    packages
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(format!("dpkg-shlibdeps named no package:\n{printed}")))
}

/// The file that Debian has for the licences.
fn copyright(workspace: &Workspace) -> Outcome<String> {
    let path = workspace.root().join("LICENSE-MIT");
    let mit = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    Ok(format!(
        "UCT is licensed under the MIT licence, below, or under the Apache License 2.0, which is in\n\
         /usr/share/common-licenses/Apache-2.0, at your option.\n\
         The licences of crates that are linked in are in /usr/{DOC}/THIRD-PARTY.\n\n{mit}"
    ))
}

/// All files below a directory, sorted.
fn files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut next = vec![directory.to_owned()];
    while let Some(directory) = next.pop() {
        let entries = fs::read_dir(&directory).context(|| format!("cannot read {}", directory.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() { next.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// The directory, with nothing in it: what an earlier version installed is not part of this one.
fn emptied(directory: PathBuf) -> Outcome<PathBuf> {
    if directory.exists() {
        fs::remove_dir_all(&directory).context(|| format!("cannot empty {}", directory.display()))?;
    }
    Ok(directory)
}

/// The time that files of a package bear, in seconds since 1970: that of the commit, so that two runs make the same package.
fn time_of_commit(workspace: &Workspace) -> String {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time;
    }
    let mut log = command("git");
    log.args(["log", "-1", "--format=%ct"]).current_dir(workspace.root());
    output(&mut log, LIMIT).map_or_else(|_: Failure| "0".to_owned(), |time| time.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_depends_on_the_c_library_and_what_is_no_program_is_refused() {
        if !Path::new("/usr/bin/dpkg-shlibdeps").exists() {
            return crate::skip::skip("dpkg-dev", "there is no dpkg-shlibdeps, of the package dpkg-dev");
        }
        let place = tempfile::tempdir().unwrap();
        let bin = place.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let program = bin.join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let page = place.path().join("page.1");
        let packages = depends(place.path(), &[page.clone(), program]).unwrap();
        assert!(packages.contains("libc6 (>= "), "{packages}");

        assert!(depends(place.path(), &[page]).is_err());
        let text = bin.join("text");
        fs::write(&text, "no program").unwrap();
        let failure = depends(place.path(), &[text]).unwrap_err().to_string();
        assert!(failure.contains("named no package"), "{failure}");
    }
}
