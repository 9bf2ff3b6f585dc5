//! The tree of a prefix: directories and files with the modes that the loader of plugins accepts, whatever the umask is.
//! A file is written beside its place and moved there, so that an installation can be repeated while programs run.
//! Built on std and strip; used by `install` and `dist`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{command, output};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of directories and of programs.
const EXECUTABLE: u32 = 0o755;
/// Of all other files.
const PLAIN: u32 = 0o644;
/// Of a file that is not complete, in its directory.
const TEMPORARY: &str = ".uct-install";
/// How long strip may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The directories that have to be writable.
const DIRECTORIES: &[&str] = &["bin", "include", "lib/pkgconfig", super::PLUGINS, "share/man", super::DOC];

/// Where files are written, and what was.
pub struct Tree {
    root: PathBuf,
    /// Names by directory.
    written: BTreeMap<PathBuf, Vec<String>>,
}

impl Tree {
    /// The tree of `prefix`, below `destdir`; makes its directories, so that one that cannot be written is reported at once.
    pub fn open(prefix: &Path, destdir: Option<&Path>) -> Outcome<Self> {
        let Ok(relative) = prefix.strip_prefix("/") else {
            return Err(Failure::new(format!(
                "--prefix {}: expected an absolute path, for example {}",
                prefix.display(),
                std::env::current_dir().unwrap_or_default().join(prefix).display()
            )));
        };
        let root = match destdir {
            Some(destdir) => std::path::absolute(destdir)
                .context(|| format!("--destdir {}", destdir.display()))?
                .join(relative),
            None => prefix.to_owned(),
        };
        let tree = Tree { root, written: BTreeMap::new() };
        for directory in DIRECTORIES {
            let directory = tree.directory(directory)?;
            let probe = directory.join(TEMPORARY);
            fs::write(&probe, "")
                .and_then(|()| fs::remove_file(&probe))
                .map_err(|e| refused(&directory, &e))?;
        }
        Ok(tree)
    }

    /// The prefix as it is on this machine's disk.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Copies a file.
    pub fn copy(&mut self, from: &Path, directory: &str, name: &str) -> Outcome {
        let contents = fs::read(from).context(|| format!("cannot read {}", from.display()))?;
        self.write(directory, name, &contents)
    }

    /// Writes a file.
    pub fn write(&mut self, directory: &str, name: &str, contents: &[u8]) -> Outcome {
        self.place(directory, name, PLAIN, |path| {
            fs::write(path, contents).map_err(|error| refused(path, &error))
        })
    }

    /// Writes the file by which pkg-config finds a library. The prefix is taken from the place of the file, so the tree can be moved.
    pub fn pkg_config(
        &mut self,
        name: &str,
        about: &str,
        headers: &str,
        library: &str,
        version: &str,
    ) -> Outcome {
        let text = format!(
            "prefix=${{pcfiledir}}/../..\n\
             includedir=${{prefix}}/include\n\
             libdir=${{prefix}}/lib\n\n\
             Name: {name}\n\
             Description: {about}\n\
             Version: {version}\n\
             Cflags: -I${{prefix}}/{headers}\n\
             Libs: -L${{libdir}} -l{library}\n"
        );
        self.write("lib/pkgconfig", &format!("{name}.pc"), text.as_bytes())
    }

    /// Copies a program or a library without its symbols.
    pub fn stripped(&mut self, from: &Path, directory: &str, options: &[&str], mode: u32) -> Outcome {
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        self.stripped_as(from, directory, &name, options, mode)
    }

    /// The same, under another name.
    pub fn stripped_as(
        &mut self,
        from: &Path,
        directory: &str,
        name: &str,
        options: &[&str],
        mode: u32,
    ) -> Outcome {
        self.place(directory, name, mode, |path| {
            let mut strip = command("strip");
            output(strip.args(options).arg("-o").arg(path).arg(from), LIMIT).map(drop)
        })
    }

    /// Makes a symbolic link to a file of the same directory.
    pub fn link(&mut self, target: &str, directory: &str, name: &str) -> Outcome {
        let directory = self.directory(directory)?;
        let (temporary, path) = (directory.join(TEMPORARY), directory.join(name));
        symlink(target, &temporary)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|error| refused(&path, &error))?;
        self.written.entry(directory).or_default().push(name.to_owned());
        Ok(())
    }

    /// What is where, a directory a line.
    pub fn listing(&self) -> String {
        let line = |(directory, names): (&PathBuf, &Vec<String>)| {
            format!("{}: {}\n", directory.display(), names.join(" "))
        };
        self.written.iter().map(line).collect()
    }

    fn place(
        &mut self,
        directory: &str,
        name: &str,
        mode: u32,
        make: impl FnOnce(&Path) -> Outcome,
    ) -> Outcome {
        let directory = self.directory(directory)?;
        let (temporary, path) = (directory.join(TEMPORARY), directory.join(name));
        make(&temporary)?;
        let moved = fs::set_permissions(&temporary, Permissions::from_mode(mode))
            .and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = moved {
            // What is left of it is of no use; the first error is the one to tell.
            let _ = fs::remove_file(&temporary);
            return Err(refused(&path, &error));
        }
        self.written.entry(directory).or_default().push(name.to_owned());
        Ok(())
    }

    /// A directory of the tree. One that is made is writable for its owner alone: of others no plugin is loaded.
    fn directory(&self, relative: &str) -> Outcome<PathBuf> {
        let directory = self.root.join(relative);
        let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
        for path in missing.into_iter().rev() {
            DirBuilder::new()
                .mode(EXECUTABLE)
                .create(path)
                .and_then(|()| fs::set_permissions(path, Permissions::from_mode(EXECUTABLE)))
                .map_err(|error| refused(path, &error))?;
        }
        Ok(directory)
    }
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; install as a user that may write there, choose another --prefix such as ~/.local, or collect the files with \
             --destdir DIR"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => {
            "; something else has this name: remove it, or choose another --prefix"
        }
        _ => "",
    };
    Failure::new(format!("cannot write {}: {error}{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_are_replaced_and_no_other_user_can_write_to_what_is_made() {
        let place = tempfile::tempdir().unwrap();
        for round in ["one", "two"] {
            let mut tree = Tree::open(Path::new("/opt/uct"), Some(place.path())).unwrap();
            tree.write("lib/uct", "file", round.as_bytes()).unwrap();
            let directory = place.path().join("opt/uct/lib/uct");
            assert_eq!(tree.listing(), format!("{}: file\n", directory.display()));
            assert_eq!(fs::read_to_string(directory.join("file")).unwrap(), round);
            assert_eq!((mode(&directory), mode(&directory.join("file"))), (0o755, 0o644));
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_with_a_remedy() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("lib"), "").unwrap();
        let failure = |prefix: &Path| Tree::open(prefix, None).err().expect("no tree").to_string();
        let text = failure(place.path());
        let lib = place.path().join("lib/");
        assert!(text.contains(&lib.display().to_string()) && text.contains("remove it"), "{text}");
        let text = failure(Path::new("/proc/uct"));
        assert!(text.contains("cannot write /proc/uct"), "{text}");
        assert!(failure(Path::new("local")).contains("absolute"));
        let denied = refused(Path::new("/x"), &io::ErrorKind::PermissionDenied.into()).to_string();
        assert!(denied.contains("--destdir"), "{denied}");
    }
}
