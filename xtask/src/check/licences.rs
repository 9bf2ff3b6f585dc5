//! Every package that is linked has a licence that deny.toml allows, comes from where deny.toml allows, and is not
//! one that deny.toml bans. Where cargo-deny is installed, it decides; this is the part of it that is always there.
//! Stands on `cargo metadata` and deny.toml; `check` stands on it.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{cargo, run};
use crate::workspace::Workspace;
use serde::Deserialize;
use std::fs;
use std::time::Duration;

/// What is read of deny.toml.
#[derive(Deserialize)]
struct Policy {
    licenses: Licences,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// Fails with one line per package that the policy refuses.
pub fn check(workspace: &Workspace) -> Outcome {
    let path = workspace.root().join("deny.toml");
    let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    let policy: Policy = toml::from_str(&text).context(|| path.display().to_string())?;
    let mut refused = Vec::new();
    for package in &workspace.metadata().packages {
        let licence = package.license.as_deref();
        let source = package.source.as_ref().map(|source| source.repr.as_str());
        let reasons = policy.refusals(&package.name, licence, source);
        refused.extend(
            reasons.into_iter().map(|reason| format!("{} {}: {reason}", package.name, package.version)),
        );
    }
    if !refused.is_empty() {
        return Err(Failure::new(refused.join("\n")));
    }
    let installed = cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        return Ok(());
    }
    // Advisories need a download, so they are not part of a check that anyone can run anywhere.
    let mut deny = cargo();
    deny.args(["deny", "check", "bans", "licenses", "sources"]).current_dir(workspace.root());
    run(&mut deny, Duration::from_secs(600))
}

impl Policy {
    fn refusals(&self, name: &str, licence: Option<&str>, source: Option<&str>) -> Vec<String> {
        let mut reasons = Vec::new();
        match licence {
            None => reasons.push("names no licence".to_owned()),
            Some(licence) if !allowed(licence, &self.licenses.allow) => {
                reasons.push(format!("licence `{licence}` is not among those that deny.toml allows"));
            }
            Some(_) => {}
        }
        if let Some(ban) = self.bans.deny.iter().find(|ban| ban.name == name) {
            reasons.push(format!("banned by deny.toml: {}", ban.reason));
        }
        // Without a source it is a package of this workspace.
        if let Some(source) = source {
            let known =
                self.sources.allow_registry.iter().any(|registry| source == format!("registry+{registry}"));
            if !known {
                reasons.push(format!("comes from {source}, which deny.toml does not allow"));
            }
        }
        reasons
    }
}

/// Whether an SPDX expression can be met with allowed licences. An `/` is an old way to write OR.
fn allowed(expression: &str, allow: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let met = either(&mut words, allow);
    met && words.is_empty()
}

fn either(words: &mut Vec<&str>, allow: &[String]) -> bool {
    let mut met = both(words, allow);
    while words.last() == Some(&"OR") {
        words.pop();
        // Both sides are read, whatever the first one says.
        met = both(words, allow) || met;
    }
    met
}

fn both(words: &mut Vec<&str>, allow: &[String]) -> bool {
    let mut met = one(words, allow);
    while words.last() == Some(&"AND") {
        words.pop();
        met = one(words, allow) && met;
    }
    met
}

fn one(words: &mut Vec<&str>, allow: &[String]) -> bool {
    match words.pop() {
        Some("(") => {
            let met = either(words, allow);
            words.pop() == Some(")") && met
        }
        Some(name) => {
            let mut licence = name.to_owned();
            if words.last() == Some(&"WITH") {
                words.pop();
                licence += &format!(" WITH {}", words.pop().unwrap_or_default());
            }
            allow.contains(&licence)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATES_IO: &str = "https://github.com/rust-lang/crates.io-index";

    fn policy() -> Policy {
        toml::from_str(&format!(
            "licenses.allow = ['MIT', 'Unicode-3.0', 'Apache-2.0 WITH LLVM-exception']\n\
             bans.deny = [{{ crate = 'openssl-sys', reason = 'not needed' }}]\n\
             sources.allow-registry = ['{CRATES_IO}']\n"
        ))
        .unwrap()
    }

    #[test]
    fn an_expression_is_met_by_what_is_allowed() {
        let allow = policy().licenses.allow;
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(allowed(expression, &allow), "{expression}");
        }
        for expression in
            ["GPL-3.0", "", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR ISC)", "Apache-2.0", "MIT MIT", "(MIT"]
        {
            assert!(!allowed(expression, &allow), "{expression}");
        }
    }

    #[test]
    fn what_is_banned_unlicensed_or_from_elsewhere_is_refused() {
        let policy = policy();
        let registry = format!("registry+{CRATES_IO}");
        assert!(policy.refusals("libc", Some("MIT"), Some(&registry)).is_empty());
        assert!(policy.refusals("ours", Some("MIT"), None).is_empty());
        assert!(policy.refusals("openssl-sys", Some("MIT"), Some(&registry))[0].contains("not needed"));
        assert!(policy.refusals("libc", None, Some(&registry))[0].contains("no licence"));
        assert!(
            policy.refusals("libc", Some("MIT"), Some("git+https://example.org/libc"))[0].contains("git+")
        );
    }
}
