//! The programs of the workspace, as cargo built them last, or beside the test where there is no cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How variables begin that cargo sets for a test.
const OWN: [&[u8]; 2] = [b"CARGO_MANIFEST_", b"CARGO_PKG_"];

/// Builds programs; returns the directory that they lie in.
pub fn build(names: &[&str]) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    let profile = own.ancestors().nth(2).expect("a test lies in target/PROFILE/deps");
    let target = profile.parent().expect("a profile lies in the target directory");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Of the whole workspace, as all of it was built: another choice would build much of it again.
    build.args(["build", "--quiet", "--workspace", "--target-dir"]).arg(target);
    build.args(names.iter().flat_map(|name| ["--bin", name]));
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    // What describes this test's package. Build scripts read it, so with it some crates would be built again.
    let variables = std::env::vars_os().map(|(name, _)| name);
    for name in variables.filter(|name| OWN.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix)))
    {
        build.env_remove(name);
    }
    match build.status() {
        Ok(status) if status.success() => profile.to_owned(),
        other => panic!("`cargo build --workspace` of {names:?} failed: {other:?}"),
    }
}
