//! `cargo xtask dist`: a tarball and a Debian package of what `install` installs.
//! Built on `install`, tar and dpkg-deb.

mod needs;

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::install::{self, DOC, Tree};
use crate::process::{command, output, run as run_command};
use crate::workspace::Workspace;
use needs::Needs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NEEDED: &[Package] = &[
    Package { name: "binutils", brings: "/usr/bin/strip" },
    Package { name: "dpkg", brings: "/usr/bin/dpkg-deb" },
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

    // The tarball can be unpacked anywhere: programs find `../lib/uct`, and uct.pc its own prefix.
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
    let needs = Needs::of(&payload)?;
    let size: u64 =
        payload.iter().filter_map(|file| file.metadata().ok()).map(|it| it.len().div_ceil(1024)).sum();
    let version = workspace.version();
    let control = format!(
        "Package: uct\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The UCT developers <uct@localhost>\n\
         Installed-Size: {size}\n\
         Depends: {}\n\
         Recommends: ibverbs-providers\n\
         Suggests: librdmacm1t64 | librdmacm1\n\
         Section: net\n\
         Priority: optional\n\
         Description: transports for programs that move data between processes\n \
         Programs, transport plugins and the C header of UCT: active messages, put,\n \
         get and atomic operations over shared memory, TCP, InfiniBand and RoCE.\n",
        needs.debian()?
    );
    let about = root.join("DEBIAN");
    fs::create_dir(&about).context(|| format!("cannot make {}", about.display()))?;
    let sums = output(command("md5sum").args(relative(root, &payload)).current_dir(root), LIMIT)?;
    for (name, text) in [("control", control), ("md5sums", sums)] {
        fs::write(about.join(name), text)
            .context(|| format!("cannot write {}", about.join(name).display()))?;
    }
    let package = directory.join(format!("uct_{version}_{architecture}.deb"));
    let mut pack: Command = command("dpkg-deb");
    pack.env("SOURCE_DATE_EPOCH", time).args(["--root-owner-group", "--build"]).arg(root).arg(&package);
    run_command(&mut pack, LIMIT)?;
    Ok(package)
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

fn relative<'a>(root: &'a Path, files: &'a [PathBuf]) -> impl Iterator<Item = &'a Path> {
    files.iter().filter_map(move |file| file.strip_prefix(root).ok())
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
