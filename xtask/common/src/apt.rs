//! Debian packages that a command needs: installed if that is possible here, named if it is not.
//! Built on apt-get; used by the commands that need more than cargo and a C compiler.

use crate::failure::{Failure, Outcome};
use crate::process::{command, run};
use std::path::Path;
use std::time::Duration;

/// A Debian package and a file that shows that it is installed.
#[derive(Clone, Copy)]
pub struct Package {
    /// The package's name.
    pub name: &'static str,
    /// A file of the package. Several, separated by a space: any of them.
    pub brings: &'static str,
}

impl Package {
    fn installed(&self) -> bool {
        self.brings.split(' ').any(|file| Path::new(file).exists())
    }
}

/// Why what is missing cannot be installed here, for those who go on without it.
#[derive(Default)]
pub struct Missing {
    reason: String,
}

impl Missing {
    /// Installing failed for this reason.
    pub fn because(failure: &Failure) -> Self {
        Missing { reason: failure.to_string() }
    }

    /// Which of `packages` are missing, and why; nothing if all are there.
    pub fn reason(&self, packages: &[Package]) -> Option<String> {
        let names: Vec<&str> = packages.iter().filter(|p| !p.installed()).map(|p| p.name).collect();
        (!names.is_empty()).then(|| format!("needs {}\n{}", names.join(" "), self.reason))
    }
}

/// Installs those of `packages` that are missing, or says how to.
pub fn require(packages: &[Package]) -> Outcome {
    let missing: Vec<&str> = packages.iter().filter(|p| !p.installed()).map(|p| p.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install --no-install-recommends {}", missing.join(" "));
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(Failure::new(format!(
            "needs the programs of the Debian packages: {}. This machine has no apt-get: install them its own way",
            missing.join(" ")
        )));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new(format!("needs packages that are not installed. As root: {by_hand}")));
    }
    let mut install = command("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["-o", "DPkg::Lock::Timeout=300", "install", "-y", "-q", "--no-install-recommends"]);
    install.args(&missing).stdout(std::process::Stdio::null());
    if run(&mut install, Duration::from_secs(600)).is_ok() {
        return Ok(());
    }
    // Package lists that are missing or too old are the usual reason.
    run(command("apt-get").args(["update", "-q"]), Duration::from_secs(300))?;
    run(&mut install, Duration::from_secs(600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_reason() {
        let there = Package { name: "base-files", brings: "/no/such/file /" };
        let gone = Package { name: "gone", brings: "/no/such/file" };
        let missing = Missing::because(&Failure::new("As root: apt-get install gone"));
        assert_eq!(missing.reason(&[there]), None);
        assert_eq!(missing.reason(&[there, gone]).unwrap(), "needs gone\nAs root: apt-get install gone");
    }
}
