//! UCT's vocabulary for C: the shared library under its own name, the link that a linker looks for, the headers in a folder of their own, what
//! pkg-config prints, and an example with a Makefile. Used by `install`.

use super::{DOC, Tree};
use crate::failure::{Context, Failure, Outcome};
use crate::workspace::{Built, Workspace};
use std::fs;
use std::path::Path;

/// The name that programs are linked to, which `uct-core/c/build.rs` gives it.
pub const COMPAT_LIBRARY: &str = "libuct-compat.so.0";
/// What a linker looks for.
const LINK: &str = "libuct-compat.so";
/// Where the example goes, below the documentation.
pub const COMPAT_EXAMPLE: &str = "examples/uct-compat";
const SOURCES: &str = "uct-core/c";
const HEADERS: &str = "include/uct-compat";

/// Writes all of it.
pub fn fill(workspace: &Workspace, built: &Built, tree: &mut Tree) -> Outcome {
    let library = built.compat.as_deref();
    let library = library.ok_or_else(|| Failure::new("the build made no library of UCT's vocabulary"))?;
    tree.stripped_as(library, "lib", COMPAT_LIBRARY, &["--strip-unneeded"], 0o644)?;
    tree.link(COMPAT_LIBRARY, "lib", LINK)?;
    let sources = workspace.root().join(SOURCES);
    headers(&sources.join(HEADERS), HEADERS, tree)?;
    let about = "UCT's vocabulary for C: programs written for UCX's UCT";
    tree.pkg_config("uct-compat", about, "include/uct-compat", "uct-compat", workspace.version())?;
    for file in ["Makefile", "hello_uct.c"] {
        tree.copy(&sources.join("examples").join(file), &format!("{DOC}/{COMPAT_EXAMPLE}"), file)?;
    }
    Ok(())
}

/// Copies a folder of headers with those inside.
fn headers(from: &Path, to: &str, tree: &mut Tree) -> Outcome {
    let unread = || format!("cannot read {}", from.display());
    for entry in fs::read_dir(from).context(unread)? {
        let path = entry.context(unread)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            headers(&path, &format!("{to}/{name}"), tree)?;
        } else {
            tree.copy(&path, to, &name)?;
        }
    }
    Ok(())
}
