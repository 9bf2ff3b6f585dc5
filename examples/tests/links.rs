//! Every link between the pages of this workspace leads to a file that is there.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages = vec![root.join("transports/README.md"), root.join("fuzz/README.md")];
    pages.extend(markdown(root));
    pages.extend(markdown(&root.join("docs")));
    assert!(pages.len() >= 10, "{pages:?}");
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let path = link.split('#').next().unwrap_or_default();
            let is_elsewhere = link.contains("://") || path.is_empty();
            if !is_elsewhere && !page.parent().unwrap().join(path).exists() {
                broken.push(format!("{}: {link}", page.strip_prefix(root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

fn markdown(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The contents of `](…)`, outside of blocks of code.
fn links(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut links = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code {
            links.extend(
                line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link),
            );
        }
    }
    links
}

#[test]
fn links_are_found_in_text_and_not_in_code() {
    let text = "see [a](b.md) and [c](d/e.md#f)\n```rust\nlet x = y[0](1);\n```\n[g](h)";
    assert_eq!(links(text), ["b.md", "d/e.md#f", "h"]);
}
