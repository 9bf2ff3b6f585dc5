//! The namespaces a process lives in: what separates containers on one machine.
//!
//! For deciding whether shared memory, descriptors or addresses reach a peer, and saying why not. Built on
//! /proc.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use super::SystemError;

/// A kind of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// Process numbers.
    Pid,
    /// System V and POSIX message objects.
    Ipc,
    /// Network devices, addresses and abstract sockets.
    Net,
    /// Users and what they may do.
    User,
    /// The file tree.
    Mnt,
    /// The host name.
    Uts,
}

/// The namespaces of one process. Two processes share one exactly if its numbers are equal on the same
/// machine. 0 is one that the kernel does not have or does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespaces {
    /// Inode of the pid namespace.
    pub pid: u64,
    /// Inode of the ipc namespace.
    pub ipc: u64,
    /// Inode of the network namespace.
    pub net: u64,
    /// Inode of the user namespace.
    pub user: u64,
    /// Inode of the mount namespace.
    pub mnt: u64,
    /// Inode of the uts namespace.
    pub uts: u64,
}

impl Namespace {
    /// Every kind.
    pub const ALL: [Namespace; 6] =
        [Namespace::Pid, Namespace::Ipc, Namespace::Net, Namespace::User, Namespace::Mnt, Namespace::Uts];

    /// Its name in /proc: "pid".
    pub const fn name(self) -> &'static str {
        match self {
            Namespace::Pid => "pid",
            Namespace::Ipc => "ipc",
            Namespace::Net => "net",
            Namespace::User => "user",
            Namespace::Mnt => "mnt",
            Namespace::Uts => "uts",
        }
    }

    /// The inode of the one that the calling thread is in; 0 if /proc does not show it.
    pub fn own(self) -> u64 {
        self.read("thread-self")
    }

    fn read(self, process: &str) -> u64 {
        std::fs::metadata(format!("/proc/{process}/ns/{self}")).map_or(0, |entry| entry.ino())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Namespaces {
    /// Those of the calling thread.
    pub fn own() -> Namespaces {
        Namespaces::read("thread-self")
    }

    /// Those of another process. Fails if it is gone, or if the caller may not trace it.
    pub fn of(pid: u32) -> Result<Namespaces, SystemError> {
        // The kernel shows the directory of a process that it does not let us look into: ask for one link
        // first.
        let answer = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        answer.map_err(|error| SystemError::new(format!("read the namespaces of process {pid}"), error))?;
        Ok(Namespaces::read(&pid.to_string()))
    }

    fn read(process: &str) -> Namespaces {
        Namespaces {
            pid: Namespace::Pid.read(process),
            ipc: Namespace::Ipc.read(process),
            net: Namespace::Net.read(process),
            user: Namespace::User.read(process),
            mnt: Namespace::Mnt.read(process),
            uts: Namespace::Uts.read(process),
        }
    }

    /// The inode of one kind.
    pub const fn id(&self, namespace: Namespace) -> u64 {
        match namespace {
            Namespace::Pid => self.pid,
            Namespace::Ipc => self.ipc,
            Namespace::Net => self.net,
            Namespace::User => self.user,
            Namespace::Mnt => self.mnt,
            Namespace::Uts => self.uts,
        }
    }

    /// Whether both have this namespace in common. One that is not shown is not known to be shared.
    pub const fn shares(&self, other: &Namespaces, namespace: Namespace) -> bool {
        self.id(namespace) != 0 && self.id(namespace) == other.id(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shares_all_namespaces_with_itself() {
        let own = Namespaces::own();
        assert_eq!(Namespaces::of(std::process::id()).unwrap(), own);
        for namespace in Namespace::ALL {
            assert!(own.shares(&own, namespace), "{namespace}");
            assert!(!own.shares(&Namespaces::default(), namespace));
        }
        assert!(!Namespaces::default().shares(&Namespaces::default(), Namespace::Pid));
    }

    #[test]
    fn a_thread_that_leaves_a_namespace_is_seen_to() {
        let own = Namespaces::own();
        let thread = std::thread::spawn(|| {
            // SAFETY: changes the namespace of this thread, which ends right after.
            let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            (answer == 0).then(Namespaces::own)
        });
        // Needs privileges; without them there is nothing to see.
        if let Some(elsewhere) = thread.join().unwrap() {
            assert!(!own.shares(&elsewhere, Namespace::Net));
            assert!(own.shares(&elsewhere, Namespace::Ipc));
        }
        assert_eq!(Namespaces::own(), own);
    }

    #[test]
    fn a_process_that_does_not_exist_is_named() {
        let error = Namespaces::of(u32::MAX).unwrap_err();
        assert!(error.to_string().contains("4294967295"), "{error}");
    }
}
