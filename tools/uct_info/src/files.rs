//! Files of the kernel, below a root that tests replace.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Where /proc, /sys and /dev are.
pub(crate) struct Files {
    root: PathBuf,
}

impl Files {
    pub(crate) fn below(root: impl Into<PathBuf>) -> Files {
        Files { root: root.into() }
    }

    /// The text of a file without the white space around it; `None` if it cannot be read or is empty.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The names in a directory, sorted; none if it cannot be listed.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Whether this process may open a file to read and write.
    pub(crate) fn open(&self, path: &str) -> io::Result<()> {
        OpenOptions::new().read(true).write(true).open(self.path(path)).map(drop)
    }

    /// The path below the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path).strip_prefix("/").unwrap_or(Path::new(path)))
    }

    /// Whether this process has a capability, by its number.
    pub(crate) fn has_capability(&self, number: u32) -> bool {
        let status = self.text("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        effective
            .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
            .is_some_and(|bits| bits >> number & 1 == 1)
    }
}
