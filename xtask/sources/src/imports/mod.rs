//! Which files of a crate import which, so that it can be read from the bottom up: no circle of files, and in a crate with the
//! rooms `proto`, `io` and `link` no import that goes up.
//! Built on `modules`, which reads a crate's files; `check` runs it.

mod modules;

use crate::failure::{Failure, Outcome};
use crate::workspace::Workspace;
use modules::Crate;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each file imports: by file, the files it takes names from, and those names.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The rooms of a transport from the bottom up. One that is listed may import from itself and from those that are named.
const ROOMS: &[(&str, &[&str])] = &[("proto", &[]), ("io", &[]), ("link", &["proto", "io"])];

/// Where the rules hold: below these directories.
const HELD: &[&str] = &["ucs", "transports", "uct-core", "uct-net"];

/// Fails with one paragraph per circle, and one line per import that goes up.
pub fn check(workspace: &Workspace) -> Outcome {
    let mut findings = Vec::new();
    let held = |path: &Path| HELD.iter().any(|it| path.starts_with(workspace.root().join(it)));
    for package in workspace.members().filter(|it| held(it.manifest_path.as_std_path())) {
        let Some(library) =
            package.targets.iter().find(|target| !target.is_test() && !target.is_custom_build())
        else {
            continue;
        };
        let graph = Crate::read(library.src_path.as_std_path())?.graph();
        findings.extend(violations(&graph).iter().map(|text| format!("{}: {text}", package.name)));
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(Failure::new(findings.join("\n")))
}

fn violations(graph: &Graph) -> Vec<String> {
    let circles = circles(graph).into_iter().map(|files| describe(&files, graph));
    circles.chain(ascents(graph)).collect()
}

/// The room that a file lies in, if it is one of those with a rule.
fn room(file: &str) -> Option<&(&'static str, &'static [&'static str])> {
    ROOMS
        .iter()
        .find(|(room, _)| file.strip_prefix(room).is_some_and(|rest| rest.starts_with('/') || rest == ".rs"))
}

/// Imports from a room by one that may not.
fn ascents(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (file, imports) in graph {
        let Some((own, may_use)) = room(file) else { continue };
        for (target, names) in imports {
            let allowed = room(target).is_some_and(|(it, _)| it == own || may_use.contains(it));
            if !allowed {
                let names = list(names);
                found.push(format!("{file} imports {names} of {target}: `{own}` may use {may_use:?} alone"));
            }
        }
    }
    found
}

/// Sets of files that all reach each other.
fn circles(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reached_from(file, graph))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (file, beyond) in &reached {
        if found.iter().any(|circle| circle.contains(file)) {
            continue;
        }
        let circle: BTreeSet<&str> = beyond
            .iter()
            .copied()
            .filter(|other| reached.get(other).is_some_and(|it| it.contains(file)))
            .collect();
        if !circle.is_empty() {
            found.push(circle);
        }
    }
    found
}

fn reached_from<'a>(file: &str, graph: &'a Graph) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead: Vec<&str> = vec![file];
    while let Some(next) = ahead.pop() {
        for target in graph.get(next).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(target.as_str()) {
                ahead.push(target);
            }
        }
    }
    reached
}

fn describe(circle: &BTreeSet<&str>, graph: &Graph) -> String {
    let mut text = format!("{} files import each other in a circle:", circle.len());
    for file in circle {
        for (target, names) in &graph[*file] {
            if circle.contains(target.as_str()) {
                text += &format!("\n    {file} imports {} of {target}", list(names));
            }
        }
    }
    text
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in arrows {
            graph.entry((*to).to_owned()).or_default();
            let names = graph.entry((*from).to_owned()).or_default().entry((*to).to_owned()).or_default();
            names.insert("Name".to_owned());
        }
        graph
    }

    #[test]
    fn a_circle_is_named_with_what_ties_it() {
        let found =
            violations(&graph(&[("a.rs", "b.rs"), ("b.rs", "c.rs"), ("c.rs", "a.rs"), ("d.rs", "a.rs")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("3 files import each other in a circle:"), "{}", found[0]);
        assert!(found[0].contains("b.rs imports Name of c.rs"), "{}", found[0]);
        assert!(!found[0].contains("d.rs"), "{}", found[0]);
        assert!(violations(&graph(&[("a.rs", "b.rs"), ("a.rs", "c.rs"), ("b.rs", "c.rs")])).is_empty());
    }

    #[test]
    fn a_room_imports_only_from_those_below() {
        let down =
            [("link/mod.rs", "proto/wire.rs"), ("link/mod.rs", "io/socket.rs"), ("ep.rs", "link/mod.rs")];
        assert!(violations(&graph(&down)).is_empty());
        for up in
            [("proto/wire.rs", "io/socket.rs"), ("io/socket.rs", "link/mod.rs"), ("link/mod.rs", "ep.rs")]
        {
            let found = violations(&graph(&[up]));
            assert_eq!(found.len(), 1, "{up:?}");
            assert!(found[0].contains("alone"), "{}", found[0]);
        }
    }
}
