//! Crates that can be published: what a registry shows of them is there, and cargo makes their packages.
//! Built on cargo's metadata and `cargo package`, which needs no network: dependencies are those of the lock file; used by `check`.

use crate::failure::{Failure, Outcome};
use crate::process::{cargo, run};
use crate::workspace::Workspace;
use cargo_metadata::Package;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Fails with one line per crate whose manifest lacks something, or where cargo refuses to make a package.
pub fn check(workspace: &Workspace) -> Outcome {
    // `publish = false` is an empty list of registries.
    let is_published =
        |package: &&Package| package.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    let published: Vec<&Package> = workspace.members().filter(is_published).collect();
    let incomplete: Vec<String> = published
        .iter()
        .filter_map(|package| {
            let missing = missing(package);
            (!missing.is_empty()).then(|| {
                format!("{}: lacks {}; or set publish = false", package.manifest_path, missing.join(", "))
            })
        })
        .collect();
    if !incomplete.is_empty() {
        return Err(Failure::new(incomplete.join("\n")));
    }
    // Without a build: `clippy` has compiled the same files.
    let mut package = cargo();
    package.args(["package", "--quiet", "--no-verify", "--offline", "--allow-dirty"]);
    package.args(published.iter().flat_map(|package| ["--package", package.name.as_str()]));
    run(package.current_dir(workspace.root()), LIMIT)
}

/// The fields that a manifest should have and does not.
fn missing(package: &Package) -> Vec<&'static str> {
    let fields = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("keywords", !package.keywords.is_empty()),
        ("categories", !package.categories.is_empty()),
        ("readme", package.readme.is_some()),
        ("rust-version", package.rust_version.is_some()),
        (
            "package.metadata.docs.rs",
            package.metadata.get("docs").is_some_and(|docs| docs.get("rs").is_some()),
        ),
    ];
    fields.into_iter().filter(|(_, is_there)| !is_there).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(more: &str) -> Package {
        let text = format!(
            r#"{{"name": "a", "version": "0.1.0", "id": "a", "source": null, "dependencies": [], "targets": [], "features": {{}},
                "manifest_path": "/a/Cargo.toml", "edition": "2024", "authors": []{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_a_manifest_lacks_is_listed() {
        let bare = missing(&package(""));
        assert_eq!(bare.first(), Some(&"description"));
        assert_eq!(bare.last(), Some(&"package.metadata.docs.rs"));
        let complete = r#", "description": "d", "license": "MIT", "keywords": ["k"], "categories": ["c"], "readme": "README.md",
            "rust_version": "1.88", "metadata": {"docs": {"rs": {"all-features": true}}}"#;
        assert!(missing(&package(complete)).is_empty());
        assert_eq!(missing(&package(&complete.replace(r#""keywords": ["k"], "#, ""))), ["keywords"]);
    }
}
