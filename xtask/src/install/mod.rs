//! `cargo xtask install`: programs, plugins, the C header and what belongs to them, in the tree of a prefix.
//! Built on cargo, on `man`, and on strip; used by `dist` and `test`.

mod c;
mod libfabric;
mod notices;
mod softverbs;
mod tree;
mod uct_compat;

pub use c::{EXAMPLES as C_EXAMPLES, LIBRARY as C_LIBRARY};
pub use libfabric::{LIBFABRIC, SHADOWS};
pub use softverbs::{SOFTVERBS, libraries as softverbs_libraries};
pub use tree::Tree;
pub use uct_compat::{COMPAT_EXAMPLE, COMPAT_LIBRARY};

use crate::apt::{self, Package};
use crate::failure::{Context, Failure, Outcome};
use crate::man;
use crate::process::{cargo, command, output};
use crate::workspace::{Built, EVERYTHING, Workspace};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the plugins go, below the prefix. The library searches it as `../lib/uct` of a program and below the usual prefixes.
pub const PLUGINS: &str = "lib/uct";
/// Where documentation goes, below the prefix.
pub const DOC: &str = "share/doc/uct";
/// A plugin in C, as a beginning for others.
const SKELETON: &str = "tests/plugins/cmsg";
/// The shells that have a directory for completions below a prefix, and how the file of a program is called there.
const SHELLS: [(&str, &str, &str, &str); 3] = [
    ("share/bash-completion/completions", "", ".bash", ""),
    ("share/zsh/site-functions", "_", "", "_"),
    ("share/fish/vendor_completions.d", "", ".fish", ""),
];

const NEEDED: &[Package] = &[Package { name: "binutils", brings: "/usr/bin/strip" }];

/// Where to install.
#[derive(Args, Debug)]
pub struct Options {
    /// The directory of bin, lib, include and share
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,

    /// Write below this directory (DESTDIR/PREFIX/bin), as for a package
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

/// Builds and installs, and prints what is where.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    apt::require(NEEDED)?;
    // Ahead of a build of minutes.
    let mut tree = Tree::open(&options.prefix, options.destdir.as_deref())?;
    let built = build(workspace, Profile::Release)?;
    fill(workspace, &built, &mut tree)?;
    print!("{}", tree.listing());
    Ok(())
}

/// How what is installed is built.
#[derive(Clone, Copy, PartialEq)]
pub enum Profile {
    /// For people.
    Release,
    /// For tests of the installation, which have these programs already.
    Dev,
}

/// The programs and plugins, which are what the workspace builds by default.
pub fn build(workspace: &Workspace, profile: Profile) -> Outcome<Built> {
    let built = match profile {
        Profile::Release => {
            let mut build = cargo();
            build.args(["build", "--release"]);
            // `uct_info -b` prints it. Sources without git have none.
            if let Some(commit) = commit(workspace) {
                build.env("UCT_COMMIT", commit);
            }
            workspace.run_build(&mut build)?
        }
        Profile::Dev => workspace.build(EVERYTHING)?,
    };
    Ok(workspace.for_people(built))
}

/// The commit of the sources, with a mark if they were changed since.
fn commit(workspace: &Workspace) -> Option<String> {
    let mut git = command("git");
    git.args(["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]).current_dir(workspace.root());
    let commit = output(&mut git, Duration::from_secs(60)).ok()?;
    Some(commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// Writes all that is installed.
pub fn fill(workspace: &Workspace, built: &Built, tree: &mut Tree) -> Outcome {
    for program in man::PROGRAMS {
        tree.stripped(built.program(program)?, "bin", &["--strip-all"], 0o755)?;
    }
    if built.plugins.is_empty() {
        return Err(Failure::new("the build made no plugins"));
    }
    for plugin in &built.plugins {
        tree.stripped(plugin, PLUGINS, &["--strip-unneeded"], 0o644)?;
    }
    softverbs::fill(workspace, built, tree)?;
    libfabric::fill(built, tree)?;
    uct_compat::fill(workspace, built, tree)?;
    tree.copy(&workspace.root().join("uct-core/abi/include/uct_abi.h"), "include", "uct_abi.h")?;
    c::fill(workspace, built, tree)?;
    tree.write("lib/pkgconfig", "uct-plugin.pc", pkg_config(workspace.version()).as_bytes())?;
    pages(workspace, built, tree)?;
    tree.copy(&workspace.root().join("config/uct.toml"), DOC, "uct.toml")?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        tree.copy(&workspace.root().join(licence), DOC, licence)?;
    }
    tree.write(DOC, "THIRD-PARTY", notices::text(workspace)?.as_bytes())?;
    for file in ["Makefile", "plugin.c"] {
        let directory = format!("{DOC}/examples/{}", SKELETON.rsplit('/').next().unwrap_or_default());
        tree.copy(&workspace.root().join(SKELETON).join(file), &directory, file)?;
    }
    Ok(())
}

/// Manual pages by section, and completions by shell.
fn pages(workspace: &Workspace, built: &Built, tree: &mut Tree) -> Outcome {
    let staged = tempfile::tempdir().context(|| "cannot make a temporary directory".to_owned())?;
    let (manual, completions) = (staged.path().join("man"), staged.path().join("completions"));
    man::write(workspace, built, &manual, &completions)?;
    for name in names(&manual)? {
        let section = name.rsplit('.').next().unwrap_or_default();
        tree.copy(&manual.join(&name), &format!("share/man/man{section}"), &name)?;
    }
    for program in man::PROGRAMS {
        for (directory, prefix, made, installed) in SHELLS {
            // bash looks for a file with the program's name.
            let suffix = if made == ".bash" { "" } else { made };
            let from = completions.join(format!("{prefix}{program}{made}"));
            tree.copy(&from, directory, &format!("{installed}{program}{suffix}"))?;
        }
    }
    Ok(())
}

/// The file names in a directory, sorted.
fn names(directory: &Path) -> Outcome<Vec<String>> {
    let entries = fs::read_dir(directory).context(|| format!("cannot read {}", directory.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// For authors of plugins. The prefix is taken from the place of the file, so the tree can be moved.
fn pkg_config(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         includedir=${{prefix}}/include\n\
         # Where the plugins of this installation are, libuct_NAME.so.\n\
         plugindir=${{prefix}}/{PLUGINS}\n\n\
         Name: uct-plugin\n\
         Description: The plugin boundary of UCT, for transports written in C\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n"
    )
}
