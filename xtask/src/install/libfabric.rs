//! The provider for libfabric: in a folder of its own, which programs name in FI_PROVIDER_PATH, since in libfabric's own folder it would change what
//! every program chooses. Used by `install`.

use super::Tree;
use crate::failure::{Failure, Outcome};
use crate::workspace::Built;

/// Where it goes, below the prefix.
pub const LIBFABRIC: &str = "lib/uct/libfabric";
/// Where copies go that have the name of another provider, for programs with a fixed table of names.
pub const SHADOWS: &str = "lib/uct/libfabric/shadow";
/// libfabric's form of the name of a provider's file.
const NAME: &str = "libuct-fi.so";
/// The library takes the name of its provider from that of its file, of which it knows these. A link would not do: a process loads a file once.
const SHADOW: &str = "libtcp-fi.so";

/// Writes both.
pub fn fill(built: &Built, tree: &mut Tree) -> Outcome {
    let provider =
        built.provider.as_deref().ok_or_else(|| Failure::new("the build made no provider for libfabric"))?;
    for (directory, name) in [(LIBFABRIC, NAME), (SHADOWS, SHADOW)] {
        tree.stripped_as(provider, directory, name, &["--strip-unneeded"], 0o644)?;
    }
    Ok(())
}
