//! Which crates may depend on which in this workspace, so that a transport never learns what the core does inside,
//! and an application needs nothing but the core.
//! Built on `cargo metadata`; used by `check`.

use crate::failure::{Failure, Outcome};
use crate::workspace::Workspace;
use cargo_metadata::{Dependency, DependencyKind, Package};

/// Bindings of libibverbs; one crate may name them.
const VERBS_BINDINGS: &[&str] = &["rdma-sys", "rdma-mummy-sys", "ibverbs", "ibverbs-sys", "sideway"];

/// What the core links statically, each as a feature.
const BUILT_IN: &[&str] = &["uct-self", "uct-tcp", "uct-shm", "uct-rc-verbs", "uct-ud-verbs", "uct-rdmacm"];

/// Fails with one line per forbidden dependency.
pub fn check(workspace: &Workspace) -> Outcome {
    let violations: Vec<String> = workspace
        .members()
        .flat_map(|package| {
            let manifest = package.manifest_path.as_std_path();
            let directory = manifest.strip_prefix(workspace.root()).unwrap_or(manifest).to_string_lossy();
            violations(&directory, package)
        })
        .collect();
    if violations.is_empty() {
        return Ok(());
    }
    Err(Failure::new(violations.join("\n")))
}

fn violations(manifest: &str, package: &Package) -> Vec<String> {
    let relations = package.dependencies.iter().map(Relation::of);
    let refused = relations.filter_map(|relation| {
        let reason = refusal(manifest, &package.name, &relation)?;
        Some(format!("{} depends on {}: {reason} ({manifest})", package.name, relation.name))
    });
    refused.collect()
}

/// A dependency as the rules see it.
struct Relation<'a> {
    name: &'a str,
    ours: bool,
    optional: bool,
    for_tests: bool,
}

impl<'a> Relation<'a> {
    fn of(dependency: &'a Dependency) -> Self {
        Relation {
            name: &dependency.name,
            ours: dependency.path.is_some(),
            optional: dependency.optional,
            for_tests: dependency.kind == DependencyKind::Development,
        }
    }
}

/// Why a package may not have that dependency; `None` if it may.
fn refusal(manifest: &str, package: &str, on: &Relation) -> Option<&'static str> {
    if package == "uct-abi" {
        return Some("the plugin boundary uses no other crate");
    }
    if VERBS_BINDINGS.contains(&on.name) && package != "uct-ib-abi" {
        return Some("only uct-ib-abi names a verbs binding");
    }
    // What tests use does not reach those who depend on the package.
    if !on.ours || on.for_tests {
        return None;
    }
    let (allowed, reason): (&[&str], _) = match manifest.split('/').next().unwrap_or_default() {
        "ucs" => (&[], "ucs uses no crate of this workspace"),
        // A plugin is its transport, exported.
        "transports" if package.strip_suffix("-plugin") == Some(on.name) => return None,
        "transports" if package.ends_with("-plugin") => {
            (&["uct-plugin"], "a plugin exports its own transport with uct-plugin")
        }
        "transports" if package == "uct-ib-abi" => (&[], "it uses no crate of this workspace"),
        "transports" if package == "uct-ib-soft" => {
            (&["ucs", "uct-ib-abi"], "a provider may use ucs and uct-ib-abi")
        }
        "transports" if package == "uct-ib" => (
            &["ucs", "uct-plugin", "uct-ib-abi", "uct-ib-soft"],
            "it may use ucs, uct-plugin, uct-ib-abi and its own provider",
        ),
        "transports" if package.ends_with("-verbs") || package == "uct-rdmacm" => {
            (&["ucs", "uct-plugin", "uct-ib"], "what works on verbs may use ucs, uct-plugin and uct-ib")
        }
        "transports" => (&["ucs", "uct-plugin"], "a transport may use ucs and uct-plugin"),
        "uct-core" if package == "uct-plugin" => (&["ucs", "uct-abi"], "it may use ucs and uct-abi"),
        "uct-core" if package == "uct-compose" => {
            (&["ucs", "uct-plugin"], "it uses plugins as a transport uses the system")
        }
        "uct-core" if package == "uct-host" => {
            (&["ucs", "uct-abi", "uct-compose"], "the host may use ucs, uct-abi and uct-compose")
        }
        "uct-core" if package == "uct-compat" => {
            (&["ucs", "uct-abi", "uct-core"], "what programs in C load uses uct-core, uct-abi and ucs")
        }
        "uct-core" => {
            if BUILT_IN.contains(&on.name) && on.optional {
                return None;
            }
            let reason = "it may use uct-host, uct-abi and, as features, the crates of transports";
            (&["uct-abi", "uct-host"], reason)
        }
        "uct-net" if ["uct-fi", "uct-net-c", "uct-python"].contains(&package) => {
            (&["ucs", "uct-core", "uct-net"], "what programs load uses uct-core and uct-net, and ucs")
        }
        "uct-net" => {
            // A feature that links its transports in; nothing else of it is used.
            if on.name == "uct-core" && on.optional {
                return None;
            }
            (&["ucs", "uct-host"], "connections are built on uct-host, and use ucs beside it")
        }
        "examples" if package != "uct_hello_world" => {
            (&["uct-core", "uct-net"], "a program uses uct-core and uct-net alone")
        }
        "tools" if package == "uct-tools-common" => {
            (&["ucs", "uct-core"], "it gives the tools what they need of ucs")
        }
        "tools" if package == "softverbs-verbs" => {
            (&["ucs", "uct-ib-abi", "uct-ib-soft"], "it exports the functions of a provider")
        }
        "tools" if package == "softverbs-files" => (&[], "it is loaded into any program, ahead of all else"),
        // Among them uct_hello_world, which is installed as the tools are.
        "examples" | "tools" => (
            &["uct-core", "uct-net", "uct-tools-common"],
            "a tool uses uct-core, uct-net and what tools share",
        ),
        // A transport with planted mistakes wraps a real one.
        "tests" if package == "uct-test-faulty" => {
            (&["ucs", "uct-abi", "uct-plugin", "uct-self"], "it wraps uct-self")
        }
        "tests" if ["uct-measured", "uct-stacks"].contains(&package) => {
            (&["uct-core", "uct-net"], "what is measured is what a program uses")
        }
        "tests" => (&["uct-host", "uct-plugin", "uct-abi", "ucs"], "transports are found at run time"),
        // Parsers are called where they are.
        "fuzz" => return None,
        "xtask" => (&["xtask-common"], "it must build when nothing else does"),
        _ => return Some("there is no rule for this directory in xtask/src/check/dependencies.rs"),
    };
    (!allowed.contains(&on.name)).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(name: &str) -> Relation<'_> {
        Relation { name, ours: true, optional: false, for_tests: false }
    }

    #[test]
    fn a_transport_may_not_use_the_core() {
        let manifest = "transports/tcp/Cargo.toml";
        assert!(refusal(manifest, "uct-tcp", &ours("uct-core")).is_some());
        assert!(refusal(manifest, "uct-tcp", &ours("uct-abi")).is_some());
        assert!(refusal(manifest, "uct-tcp", &ours("uct-ib")).is_some());
        assert!(refusal(manifest, "uct-tcp", &ours("uct-plugin")).is_none());
        assert!(refusal("transports/rc_verbs/Cargo.toml", "uct-rc-verbs", &ours("uct-ib")).is_none());
    }

    #[test]
    fn a_plugin_exports_its_own_transport() {
        let manifest = "transports/tcp/plugin/Cargo.toml";
        assert!(refusal(manifest, "uct-tcp-plugin", &ours("uct-tcp")).is_none());
        assert!(refusal(manifest, "uct-tcp-plugin", &ours("uct-plugin")).is_none());
        assert!(refusal(manifest, "uct-tcp-plugin", &ours("uct-shm")).is_some());
        assert!(refusal(manifest, "uct-tcp-plugin", &ours("ucs")).is_some());
    }

    #[test]
    fn the_core_takes_transports_only_as_features() {
        let manifest = "uct-core/Cargo.toml";
        assert!(refusal(manifest, "uct-core", &ours("uct-tcp")).is_some());
        let host = "uct-core/host/Cargo.toml";
        assert!(refusal(host, "uct-host", &Relation { optional: true, ..ours("uct-tcp") }).is_some());
        assert!(refusal(manifest, "uct-core", &Relation { optional: true, ..ours("uct-tcp") }).is_none());
        assert!(
            refusal(manifest, "uct-core", &Relation { optional: true, ..ours("uct-rc-verbs") }).is_none()
        );
        assert!(
            refusal(manifest, "uct-core", &Relation { optional: true, ..ours("uct-tcp-plugin") }).is_some()
        );
    }

    #[test]
    fn the_plugin_boundary_stands_on_nothing() {
        let third_party = Relation { ours: false, ..ours("libc") };
        assert!(refusal("uct-core/abi/Cargo.toml", "uct-abi", &third_party).is_some());
        assert!(refusal("uct-core/Cargo.toml", "uct-core", &third_party).is_none());
    }

    #[test]
    fn a_verbs_binding_is_named_once() {
        let binding = Relation { ours: false, ..ours("rdma-mummy-sys") };
        assert!(refusal("transports/rc_verbs/Cargo.toml", "uct-rc-verbs", &binding).is_some());
        assert!(refusal("transports/ib/abi/Cargo.toml", "uct-ib-abi", &binding).is_none());
    }

    #[test]
    fn a_directory_without_a_rule_is_refused() {
        assert!(refusal("new/Cargo.toml", "new", &ours("ucs")).is_some());
    }
}
