//! The libraries of an installation, and the variables by which a program's loader finds them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use uct_tools_common::Failure;

/// The drop-in library, under the name that programs are linked to.
const DROP_IN: &str = "libibverbs.so.1";
/// The files that programs look for.
const FILES: &str = "libsoftverbs_files.so";
/// Where both are, from the directory of this program.
const INSTALLED: &str = "../lib/uct/softverbs";

/// A directory with both libraries.
pub(crate) struct Libraries(PathBuf);

impl Libraries {
    /// Those in a directory, or of the installation that this program is of.
    pub fn find(directory: Option<&Path>) -> Result<Libraries, Failure> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => std::env::current_exe()?.parent().unwrap_or(Path::new("/")).join(INSTALLED),
        };
        for name in [DROP_IN, FILES] {
            let file = directory.join(name);
            if !file.is_file() {
                let file = file.display();
                return Err(format!(
                    "there is no {file}: install it with `cargo xtask install`, or name its directory with --libraries"
                )
                .into());
            }
        }
        let directory = directory.canonicalize()?;
        if directory.as_os_str().as_encoded_bytes().iter().any(|byte| b": ;".contains(byte)) {
            let directory = directory.display();
            return Err(format!(
                "{directory}: the loader takes no directory with a blank, `:` or `;` in its name"
            )
            .into());
        }
        Ok(Libraries(directory))
    }

    /// Has the loader of a program find them, in front of what the environment names already.
    pub fn set(&self, command: &mut Command, variable: impl Fn(&str) -> Option<OsString>) {
        let mut put = |name: &str, first: &OsStr| {
            let mut value = first.to_owned();
            if let Some(rest) = variable(name).filter(|rest| !rest.is_empty()) {
                value.push(":");
                value.push(rest);
            }
            command.env(name, value);
        };
        put("LD_LIBRARY_PATH", self.0.as_os_str());
        put("LD_PRELOAD", self.0.join(FILES).as_os_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_in_front_of_what_is_there() {
        let mut command = Command::new("program");
        let variable = |name: &str| (name == "LD_PRELOAD").then(|| "other.so".into());
        Libraries(PathBuf::from("/opt/lib")).set(&mut command, variable);
        let set: Vec<_> = command.get_envs().map(|(name, value)| (name, value.unwrap_or_default())).collect();
        let expected =
            [("LD_LIBRARY_PATH", "/opt/lib"), ("LD_PRELOAD", "/opt/lib/libsoftverbs_files.so:other.so")];
        assert_eq!(set, expected.map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
    }

    #[test]
    fn a_directory_without_them_is_named_with_a_remedy() {
        let failure = Libraries::find(Some(Path::new("/srv/none"))).err().expect("nothing there").to_string();
        assert!(
            failure.contains("/srv/none/libibverbs.so.1") && failure.contains("--libraries"),
            "{failure}"
        );
    }
}
