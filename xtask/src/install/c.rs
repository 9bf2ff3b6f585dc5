//! The library for programs in C: the shared library under its own name, the link that a linker looks for, the header, what pkg-config prints, and
//! examples with a Makefile. Used by `install`.

use super::{DOC, Tree};
use crate::failure::{Failure, Outcome};
use crate::workspace::{Built, Workspace};

/// The name that programs are linked to, which `uct-net/c/build.rs` gives it.
pub const LIBRARY: &str = "libuct-net.so.0";
/// What a linker looks for.
const LINK: &str = "libuct-net.so";
const SOURCES: &str = "uct-net/c";
/// The programs of the Makefile, and the Makefile.
pub const EXAMPLES: [&str; 5] = ["echo.c", "put_get.c", "blocks.c", "tour.cc", "Makefile"];

/// Writes all of it.
pub fn fill(workspace: &Workspace, built: &Built, tree: &mut Tree) -> Outcome {
    let library = built.c_library.as_deref();
    let library = library.ok_or_else(|| Failure::new("the build made no library for programs in C"))?;
    tree.stripped_as(library, "lib", LIBRARY, &["--strip-unneeded"], 0o644)?;
    tree.link(LIBRARY, "lib", LINK)?;
    let sources = workspace.root().join(SOURCES);
    tree.copy(&sources.join("include/uct.h"), "include", "uct.h")?;
    let about = "Connections by address for programs in C: messages, remote memory, transfers of blocks";
    tree.pkg_config("uct", about, "include", "uct-net", workspace.version())?;
    let directory = format!("{DOC}/examples/c");
    for name in EXAMPLES {
        tree.copy(&sources.join("examples").join(name), &directory, name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_cargo_has_built_is_installed_under_its_own_name_with_a_link() {
        if !Path::new("/usr/bin/strip").exists() {
            return crate::skip::skip("binutils", "there is no strip, of the package binutils");
        }
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join("libuct_net_c.so");
        fs::copy(std::env::current_exe().unwrap(), &library).unwrap();
        let workspace = Workspace::load().unwrap();
        let built = Built { plugins: [library].into(), ..Built::default() };
        let built = workspace.for_people(built);
        assert!(built.plugins.is_empty());
        // The second time over the first.
        for _ in 0..2 {
            let mut tree = Tree::open(Path::new("/opt/uct"), Some(place.path())).unwrap();
            fill(&workspace, &built, &mut tree).unwrap();
        }
        let prefix = place.path().join("opt/uct");
        assert_eq!(fs::read_link(prefix.join("lib").join(LINK)).unwrap(), Path::new(LIBRARY));
        assert!(prefix.join("lib").join(LINK).is_file() && prefix.join("include/uct.h").is_file());
        let package = fs::read_to_string(prefix.join("lib/pkgconfig/uct.pc")).unwrap();
        assert!(package.contains("\nLibs: -L${libdir} -luct-net\n"), "{package}");
        assert!(EXAMPLES.iter().all(|name| prefix.join(DOC).join("examples/c").join(name).is_file()));
    }
}
