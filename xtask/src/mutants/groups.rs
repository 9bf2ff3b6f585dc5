//! Which sources belong together when mutants are drawn, and which tests see them.
//! Used by `mutants`.

use crate::failure::{Failure, Outcome};

/// Sources of one concern.
#[derive(Debug)]
pub struct Group {
    /// As the command line takes it.
    pub name: &'static str,
    /// The package whose own tests are run first.
    pub package: &'static str,
    /// Globs of its files, from the top of the workspace.
    pub files: &'static [&'static str],
    /// Whether the suite gets there without a device that this machine may lack.
    pub in_suite: bool,
}

/// All of them.
pub const GROUPS: &[Group] = &[
    group("selection", "uct-host", &["uct-core/host/src/select/**/*.rs"]),
    group("loader", "uct-host", &["uct-core/host/src/loader/**/*.rs"]),
    group("worker", "uct-host", &["uct-core/host/src/worker.rs", "uct-core/host/src/worker/**/*.rs"]),
    group(
        "completion",
        "uct-host",
        &["uct-core/host/src/completion.rs", "uct-core/host/src/completion/**/*.rs"],
    ),
    group("memory", "uct-host", &["uct-core/host/src/md/**/*.rs"]),
    group("remote-access", "uct-plugin", &["uct-core/plugin/src/rma.rs", "uct-core/plugin/src/rma/**/*.rs"]),
    group("configuration", "ucs", &["ucs/src/config/**/*.rs", "ucs/src/units/**/*.rs"]),
    group("data-structures", "ucs", &["ucs/src/datastruct/**/*.rs"]),
    group("async-context", "ucs", &["ucs/src/async_context/**/*.rs"]),
    Group {
        name: "ud-protocol",
        package: "uct-ud-verbs",
        files: &["transports/ud_verbs/src/proto/**/*.rs"],
        in_suite: false,
    },
    group("tcp-connection", "uct-tcp", &["transports/tcp/src/link/connection/**/*.rs"]),
];

const fn group(name: &'static str, package: &'static str, files: &'static [&'static str]) -> Group {
    Group { name, package, files, in_suite: true }
}

/// The groups of these names; all of them if there are none.
pub fn chosen(names: &[String]) -> Outcome<Vec<&'static Group>> {
    let known = |name: &String| {
        GROUPS.iter().find(|group| group.name == name).ok_or_else(|| {
            let all: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
            Failure::new(format!("there is no group {name}, expected one of {}", all.join(", ")))
        })
    };
    if names.is_empty() { Ok(GROUPS.iter().collect()) } else { names.iter().map(known).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_group_has_sources_of_its_package() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for group in GROUPS {
            let found = group.files.iter().any(|glob| root.join(glob.replace("/**/*.rs", "")).exists());
            assert!(found, "{}", group.name);
        }
    }

    #[test]
    fn an_unknown_group_is_refused_with_the_known_ones() {
        let refused = chosen(&["loaders".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("loaders") && refused.contains("loader, worker"), "{refused}");
        assert_eq!(chosen(&[]).unwrap().len(), GROUPS.len());
    }
}
