//! Which users may have written a file or directory that decides what this process does.
//!
//! For the search for plugins and the search for a configuration file. Built on file metadata and the auxiliary vector.
//!
//! Trusted are the administrator, this process's effective user, and the owner of the program's file, whose code runs here
//! anyway: so root can run a build in another user's directory, and a container may have a checkout of another user.
//! A process with privileges that its caller lacks (set-uid, set-gid, file capabilities) trusts the administrator alone, and
//! then each directory on the way to a file counts, too. Symbolic links on the way count always: each chooses the file.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The administrator.
const ROOT: u32 = 0;

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Of a directory: its files can be removed and renamed by their owners alone.
const STICKY: u32 = 0o1000;

/// Symbolic links that the system follows for one path.
const LINKS: u32 = 40;

/// Whether this process has privileges that its caller lacks, so that nothing of the caller's may steer it: `AT_SECURE`.
pub fn is_privileged() -> bool {
    // SAFETY: a question about the process that takes no pointer.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The users whose files this process takes as its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    users: Vec<u32>,
    is_privileged: bool,
}

/// Why a file or directory is not trusted: the other users that may write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// It belongs to this user.
    Owner(u32),
    /// It belongs to this group, which may write, and is not the private one of its owner.
    Group(u32),
    /// Every user may write.
    Everybody,
}

impl Trust {
    /// That of this process, as it is now.
    pub fn of_process() -> Trust {
        if is_privileged() {
            return Trust { users: vec![ROOT], is_privileged: true };
        }
        let mut users = vec![ROOT, geteuid().as_raw()];
        users.extend(fs::metadata("/proc/self/exe").map(|program| program.uid()));
        Trust { users, is_privileged: false }
    }

    /// This trust, and that in further users.
    #[must_use]
    pub fn and_users(mut self, users: &[u32]) -> Trust {
        self.users.extend(users);
        self
    }

    /// The other users that may write to the file or directory of this metadata; `None` if there are none.
    ///
    /// A group may write if its number is that of the owner, since that is how a user's private group is numbered. A
    /// sticky directory may be everybody's: each file in it is its owner's to replace.
    pub fn objection(&self, metadata: &Metadata) -> Option<Writer> {
        let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
        let is_sticky = metadata.is_dir() && mode & STICKY != 0;
        if !self.knows_owner(metadata) {
            Some(Writer::Owner(owner))
        } else if mode & OTHERS_WRITE != 0 && !is_sticky {
            Some(Writer::Everybody)
        } else if mode & GROUP_WRITES != 0 && group != owner && group != ROOT && !is_sticky {
            Some(Writer::Group(group))
        } else {
            None
        }
    }

    /// Whether a file is a trusted user's.
    fn knows_owner(&self, metadata: &Metadata) -> bool {
        self.users.contains(&metadata.uid())
    }

    /// [`Trust::objection`] to a directory; in a process with privileges also to each directory above it.
    ///
    /// # Errors
    /// The system's, for one of them.
    pub fn objection_to_directory(&self, directory: &Path) -> io::Result<Option<Writer>> {
        if !self.is_privileged {
            return Ok(self.objection(&fs::metadata(directory)?));
        }
        for directory in fs::canonicalize(directory)?.ancestors() {
            if let Some(writer) = self.objection(&fs::metadata(directory)?) {
                return Ok(Some(writer));
            }
        }
        Ok(None)
    }

    /// Follows the symbolic links of a path, in its directories and at its end, one at a time, and returns the first that another
    /// user may have made: the link itself if it belongs to another user, its directory if others may replace the link.
    ///
    /// # Errors
    /// The system's, for one of them: `NotFound` for a link that leads to nothing.
    pub fn objection_to_links(&self, path: &Path) -> io::Result<Option<(PathBuf, Writer)>> {
        let components = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|component| component.as_os_str().to_owned()).collect()
        };
        let mut ahead = components(path);
        // What was followed already: without links, so that `..` means the directory above.
        let mut resolved = PathBuf::new();
        let mut links = 0;
        while let Some(component) = ahead.pop() {
            resolved.push(component);
            let metadata = fs::symlink_metadata(&resolved)?;
            if !metadata.is_symlink() {
                continue;
            }
            if !self.knows_owner(&metadata) {
                return Ok(Some((resolved, Writer::Owner(metadata.uid()))));
            }
            let target = fs::read_link(&resolved)?;
            resolved.pop();
            let directory = if resolved.as_os_str().is_empty() { Path::new(".") } else { &resolved };
            if let Some(writer) = self.objection_to_directory(directory)? {
                return Ok(Some((directory.to_owned(), writer)));
            }
            links += 1;
            if links > LINKS {
                return Err(io::Error::from_raw_os_error(libc::ELOOP));
            }
            ahead.extend(components(&target));
        }
        Ok(None)
    }

    /// Whether this is a process with privileges that its caller lacks.
    pub fn is_privileged(&self) -> bool {
        self.is_privileged
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writer::Owner(user) => write!(f, "it belongs to user {user}, who is not trusted here"),
            Writer::Group(group) => write!(f, "all of group {group} may write to it (chmod g-w)"),
            Writer::Everybody => f.write_str("every user may write to it (chmod o-w)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use tempfile::TempDir;

    use super::*;
    use crate::skip;

    const NOBODY: u32 = 65_534;

    /// Whether this process trusts a file or directory with this mode.
    fn objection(path: &Path, mode: u32) -> Option<Writer> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
        Trust::of_process().objection(&fs::metadata(path).expect("it is there"))
    }

    fn file(directory: &TempDir) -> std::path::PathBuf {
        let path = directory.path().join("file");
        fs::write(&path, "").expect("a file");
        path
    }

    #[test]
    fn what_this_user_alone_may_write_is_trusted() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(objection(&file(&directory), 0o644), None);
        assert_eq!(objection(directory.path(), 0o755), None);
        assert_eq!(Trust::of_process().objection_to_directory(directory.path()).expect("it is there"), None);
    }

    #[test]
    fn what_everybody_may_write_is_not_unless_it_is_a_sticky_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(objection(&file(&directory), 0o646), Some(Writer::Everybody));
        assert_eq!(objection(&file(&directory), 0o1646), Some(Writer::Everybody), "a file is never sticky");
        assert_eq!(objection(directory.path(), 0o777), Some(Writer::Everybody));
        assert_eq!(objection(directory.path(), 0o1777), None);
    }

    #[test]
    fn a_group_may_write_if_it_is_its_owners_private_one() {
        if !skip::is_root("give a file to another group") {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = file(&directory);
        chown(&path, None, Some(NOBODY)).expect("its group");
        assert_eq!(objection(&path, 0o664), Some(Writer::Group(NOBODY)));
        assert_eq!(objection(&path, 0o644), None);
        chown(&path, None, Some(ROOT)).expect("its group");
        assert_eq!(objection(&path, 0o664), None);
        let own = Trust { users: vec![NOBODY], is_privileged: false };
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("its owner");
        assert_eq!(own.objection(&fs::metadata(&path).expect("it is there")), None);
    }

    #[test]
    fn what_belongs_to_another_user_is_not_trusted() {
        if !skip::is_root("give a file to another user") {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = file(&directory);
        chown(&path, Some(NOBODY), None).expect("its owner");
        assert_eq!(objection(&path, 0o600), Some(Writer::Owner(NOBODY)));
    }

    #[test]
    fn links_are_followed_as_the_system_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let trust = Trust::of_process();
        fs::create_dir_all(path("a/b")).expect("directories");
        fs::write(path("a/file"), "").expect("a file");
        symlink("a/b", path("link")).expect("a link");
        symlink("../link/../file", path("a/up")).expect("a link");
        for good in ["a/up", "link/../up", "./link"] {
            assert_eq!(trust.objection_to_links(&path(good)).expect("it is there"), None, "{good}");
        }
        // The directory of a link in the middle of the path, and not of the links before it.
        fs::set_permissions(path("a"), fs::Permissions::from_mode(0o777)).expect("its mode");
        let objection = trust.objection_to_links(&path("link/../up")).expect("it is there");
        assert_eq!(objection, Some((path("a/b/.."), Writer::Everybody)));
        assert_eq!(trust.objection_to_links(&path("link")).expect("it is there"), None);
        symlink("circle", path("circle")).expect("a link");
        let error = trust.objection_to_links(&path("circle")).expect_err("it leads nowhere");
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        symlink("nothing", path("dangling")).expect("a link");
        let error = trust.objection_to_links(&path("dangling")).expect_err("it leads to nothing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn with_privileges_each_directory_above_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).expect("a directory");
        assert_eq!(objection(&inner, 0o755), None);
        assert_eq!(objection(directory.path(), 0o777), Some(Writer::Everybody));
        let above = |is_privileged| {
            let trust = Trust { is_privileged, ..Trust::of_process() };
            trust.objection_to_directory(&inner).expect("they are there")
        };
        assert_eq!((above(false), above(true)), (None, Some(Writer::Everybody)));
    }
}
