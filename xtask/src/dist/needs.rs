//! What programs and plugins need of the system: libraries, and the version of the C library.
//! Built on readelf; used by `dist` for the dependencies of a package.

use crate::failure::{Failure, Outcome};
use crate::process::{command, output};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// How the symbol versions of the C library begin.
const GLIBC: &str = "GLIBC_";
/// The Debian package of each library.
const LIBRARIES: [(&str, &str); 5] = [
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("ld-linux-aarch64.so.1", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];

/// What a set of files needs.
#[derive(Default)]
pub struct Needs {
    libraries: BTreeSet<String>,
    /// The highest version of the C library's symbols.
    glibc: Vec<u32>,
}

impl Needs {
    /// What those of `files` need that are programs or libraries.
    pub fn of(files: &[PathBuf]) -> Outcome<Self> {
        let is_elf = |file: &&PathBuf| {
            let name = file.to_string_lossy();
            name.ends_with(".so") || name.contains("/bin/")
        };
        let mut readelf = command("readelf");
        readelf.env("LC_ALL", "C").args(["--wide", "--dynamic", "--version-info"]);
        let mut needs = Needs::default();
        output(readelf.args(files.iter().filter(is_elf)), LIMIT)?.lines().for_each(|line| needs.add(line));
        if needs.libraries.is_empty() || needs.glibc.is_empty() {
            return Err(Failure::new("readelf names no library that the programs need"));
        }
        Ok(needs)
    }

    fn add(&mut self, line: &str) {
        if line.contains("(NEEDED)") {
            let name = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            self.libraries.extend(name.map(|(name, _)| name.to_owned()));
        } else if let Some((_, rest)) = line.split_once(&format!("Name: {GLIBC}")) {
            let version = rest.split_whitespace().next().unwrap_or_default();
            // "PRIVATE" and the like are none.
            if let Ok(version) = version.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>() {
                self.glibc = self.glibc.drain(..).collect::<Vec<u32>>().max(version);
            }
        }
    }

    /// The packages, as a control file lists them.
    pub fn debian(&self) -> Outcome<String> {
        let mut packages = BTreeSet::new();
        for library in &self.libraries {
            let Some((_, package)) = LIBRARIES.iter().find(|(name, _)| name == library) else {
                return Err(Failure::new(format!(
                    "programs or plugins are linked to {library}, and no Debian package is known for it: add it to xtask/src/dist/needs.rs"
                )));
            };
            packages.insert(match *package {
                "libc6" => {
                    let version: Vec<String> = self.glibc.iter().map(u32::to_string).collect();
                    format!("libc6 (>= {})", version.join("."))
                }
                other => other.to_owned(),
            });
        }
        Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_become_packages_and_the_highest_version_counts() {
        let mut needs = Needs::default();
        for line in [
            " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]",
            " 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]",
            "  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 9",
            "  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 8",
            "  0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 7",
            "  0x0040:   Name: GLIBC_PRIVATE  Flags: none  Version: 6",
            "  0x0050:   Name: GCC_3.0  Flags: none  Version: 5",
        ] {
            needs.add(line);
        }
        assert_eq!(needs.debian().unwrap(), "libc6 (>= 2.34), libgcc-s1");
        needs.add(" 0x0000000000000001 (NEEDED)             Shared library: [libssl.so.3]");
        assert!(needs.debian().unwrap_err().to_string().contains("libssl.so.3"));
    }
}
