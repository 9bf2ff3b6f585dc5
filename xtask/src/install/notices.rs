//! The licences of the crates that are linked into programs and plugins.
//! Built on cargo's metadata and the files in the crates' sources; used by `install`.

use crate::failure::{Context, Outcome};
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::fs;

/// How the names of files with a licence begin.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// The list of crates, then each text once with the crates that have it.
pub fn text(workspace: &Workspace) -> Outcome<String> {
    let mut list = String::from(
        "Crates that the programs and plugins of UCT are built from, some on other systems only, and their licences.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in workspace.linked_crates() {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see its text");
        list += &format!("{name}: {licence}\n");
        let Some(directory) = package.manifest_path.parent() else { continue };
        let entries = fs::read_dir(directory).context(|| format!("cannot read {directory}"))?;
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            let is_licence = file.file_name().is_some_and(|name| {
                FILES.iter().any(|it| name.to_string_lossy().to_uppercase().starts_with(it))
            });
            if is_licence {
                let text = fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
                let crates = texts.entry(text.trim().to_owned()).or_default();
                if crates.last() != Some(&name) {
                    crates.push(name.clone());
                }
            }
        }
    }
    for (text, crates) in texts {
        list += &format!("\n{}\n{}\n\n{text}\n", "-".repeat(80), crates.join(", "));
    }
    Ok(list)
}
