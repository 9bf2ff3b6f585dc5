//! The libraries of `softverbs`: a drop-in libibverbs.so.1, and the files that programs look for.
//! Built on a C compiler, which links the library from an archive with versions of its names; used by `install`.

use super::Tree;
use crate::failure::{Context, Failure, Outcome};
use crate::process::{command, run};
use crate::workspace::{Built, Workspace};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where they go, below the prefix: in a directory that no loader searches by itself.
pub const SOFTVERBS: &str = "lib/uct/softverbs";
/// The script that links the library, and what from.
const LINK: &str = "tools/softverbs/verbs/link";
const ARCHIVE: &str = "libsoftverbs_verbs.a";
/// The name that programs are linked to.
const LIBRARY: &str = "libibverbs.so.1";
const LIMIT: Duration = Duration::from_secs(600);

/// Links and writes them.
pub fn fill(workspace: &Workspace, built: &Built, tree: &mut Tree) -> Outcome {
    let staged = tempfile::tempdir().context(|| "cannot make a temporary directory".to_owned())?;
    for library in libraries(workspace, built, staged.path())? {
        tree.stripped(&library, SOFTVERBS, &["--strip-unneeded"], 0o644)?;
    }
    Ok(())
}

/// Links the drop-in library into a directory, with the other libraries of an optimized build.
pub fn libraries(workspace: &Workspace, built: &Built, directory: &Path) -> Outcome<Vec<PathBuf>> {
    let library = directory.join(LIBRARY);
    let mut link = command(workspace.root().join(LINK));
    run(link.arg(built.archive(ARCHIVE)?).arg(&library), LIMIT)?;
    if built.libraries.is_empty() {
        return Err(Failure::new("the build made no library of a tool"));
    }
    Ok([library].into_iter().chain(built.libraries.iter().cloned()).collect())
}
