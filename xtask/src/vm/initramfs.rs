//! The guest's first file system, as the cpio archive ("newc") that a kernel unpacks at boot.
//! Built on no other module; `contents` fills it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

const DIRECTORY: u32 = 0o040755;
const LINK: u32 = 0o120777;
const FILE: u32 = 0o100755;

/// Files, directories and links by their path in the guest.
#[derive(Default)]
pub struct Initramfs {
    entries: BTreeMap<PathBuf, Entry>,
}

struct Entry {
    mode: u32,
    contents: Vec<u8>,
}

impl Initramfs {
    /// Whether something is at `path`.
    pub fn contains(&self, path: &Path) -> bool {
        self.entries.contains_key(&inside(path))
    }

    /// Puts an executable file at `path`, in the place of what is there.
    pub fn file(&mut self, path: impl AsRef<Path>, contents: impl Into<Vec<u8>>) {
        self.insert(path.as_ref(), FILE, contents.into());
    }

    /// Makes a directory and those above it.
    pub fn directory(&mut self, path: impl AsRef<Path>) {
        self.insert(path.as_ref(), DIRECTORY, Vec::new());
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, path: impl AsRef<Path>, target: &str) {
        self.insert(path.as_ref(), LINK, target.as_bytes().to_vec());
    }

    /// The archive. Directories come ahead of what is in them, since paths sort that way.
    pub fn pack(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            append(&mut archive, number, &path.to_string_lossy(), entry.mode, &entry.contents);
        }
        append(&mut archive, 0, "TRAILER!!!", 0, &[]);
        archive
    }

    fn insert(&mut self, path: &Path, mode: u32, contents: Vec<u8>) {
        let path = inside(path);
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            let directory = || Entry { mode: DIRECTORY, contents: Vec::new() };
            self.entries.entry(above.to_owned()).or_insert_with(directory);
        }
        self.entries.insert(path, Entry { mode, contents });
    }
}

/// The path as the archive has it: relative to the root, and with the directories that are links to
/// their namesakes in /usr resolved, since a file cannot be unpacked below two names of one directory.
fn inside(path: &Path) -> PathBuf {
    let relative: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let merged = ["bin", "sbin", "lib", "lib64"];
    match relative.components().next() {
        Some(Component::Normal(top))
            if merged.iter().any(|name| top == *name) && relative != Path::new(top) =>
        {
            Path::new("usr").join(relative)
        }
        _ => relative,
    }
}

fn append(archive: &mut Vec<u8>, inode: u32, name: &str, mode: u32, contents: &[u8]) {
    // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name size, checksum
    let fields = [inode, mode, 0, 0, 1, 0, contents.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08X}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(contents);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_newc_has_it() {
        let mut image = Initramfs::default();
        image.file("/a", "xyz");
        let archive = image.pack();
        let header = "070701000000010000 81ED".replace(' ', "");
        assert!(archive.starts_with(header.as_bytes()), "{}", String::from_utf8_lossy(&archive));
        assert_eq!(&archive[110..112], b"a\0");
        assert_eq!(&archive[112..116], b"xyz\0");
        assert_eq!(archive.len() % 4, 0);
        assert!(archive.windows(10).any(|window| window == b"TRAILER!!!"));
    }

    #[test]
    fn directories_come_before_their_files_and_merged_ones_are_below_usr() {
        let mut image = Initramfs::default();
        image.file("/lib/x86_64-linux-gnu/libc.so.6", "");
        image.link("/lib", "usr/lib");
        let names: Vec<_> = image.entries.keys().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(
            names,
            ["lib", "usr", "usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/libc.so.6"]
        );
        assert!(image.contains(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6")));
    }
}
