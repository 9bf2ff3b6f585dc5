//! Every link between the pages of this workspace leads to a file that is there, and to a heading of it.

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
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let leads = if heading.is_empty() || target.extension().is_none_or(|it| it != "md") {
                target.exists()
            } else {
                fs::read_to_string(&target).is_ok_and(|text| anchors(&text).iter().any(|it| it == heading))
            };
            if !leads {
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

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code
    })
}

/// The contents of `](…)`.
fn links(text: &str) -> Vec<&str> {
    prose(text)
        .flat_map(|line| {
            line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
        })
        .collect()
}

/// What the headings are called in links: in lower case, with hyphens for blanks, without punctuation.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_are_found_in_text_and_not_in_code() {
    let text = "see [a](b.md) and [c](d/e.md#f)\n```rust\nlet x = y[0](1);\n```\n[g](h)";
    assert_eq!(links(text), ["b.md", "d/e.md#f", "h"]);
}

#[test]
fn a_heading_is_linked_without_its_punctuation() {
    let text = "# Why not UCX?\n```sh\n# a comment\n```\n## The end, `rc_verbs`";
    assert_eq!(anchors(text), ["why-not-ucx", "the-end-rc_verbs"]);
}
