//! Why a process could not be attached to.

use std::path::PathBuf;
use std::time::Duration;

use ucs::sys::SystemError;
use ucs::sys::peer::Credentials;

/// Why a process could not be attached to.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// It does not exist.
    #[error("there is no process {pid}, or it is in another pid namespace")]
    NoProcess {
        /// The number that was given.
        pid: u32,
    },
    /// It belongs to another user.
    #[error(
        "process {pid} belongs to user {owner}, and this is user {own}: only its own user may attach to it, not even root"
    )]
    OtherUser {
        /// The process.
        pid: u32,
        /// Its effective user.
        owner: u32,
        /// The effective user of this process.
        own: u32,
    },
    /// It has no socket.
    #[error(
        "process {pid} cannot be attached to: start it with UCT_ATTACH=yes (key `attach`) and the same XDG_RUNTIME_DIR; \
         it needs uct-core and an open context. There is no {}", list(.searched)
    )]
    NotEnabled {
        /// The process.
        pid: u32,
        /// Where its socket would be.
        searched: Vec<PathBuf>,
    },
    /// Its socket was left by another process.
    #[error(
        "{path:?} was left by an earlier process {pid}, which has crashed; the present one cannot be attached to: start it with \
         UCT_ATTACH=yes (key `attach`)"
    )]
    Stale {
        /// The process.
        pid: u32,
        /// The socket.
        path: PathBuf,
    },
    /// Another process has its socket.
    #[error("{path:?} belongs to {holder} and not to process {pid}: remove the file")]
    Foreign {
        /// The process.
        pid: u32,
        /// The socket.
        path: PathBuf,
        /// What listens there.
        holder: Credentials,
    },
    /// The directory of the sockets may be another user's.
    #[error("{directory:?} is not trusted: {problem}")]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The process has refused.
    #[error("process {pid} refuses: {reason}")]
    Refused {
        /// The process.
        pid: u32,
        /// Its reason.
        reason: String,
    },
    /// More clients wait than its socket takes.
    #[error("process {pid} serves no client, and others wait already: it is stopped")]
    Busy {
        /// The process.
        pid: u32,
    },
    /// No reply, though its socket is there.
    #[error("process {pid} does not reply within {} s: it is stopped, or its machine is overloaded", .limit.as_secs())]
    NoReply {
        /// The process.
        pid: u32,
        /// How long was waited.
        limit: Duration,
    },
    /// The reply is not understood.
    #[error(
        "the reply of process {pid} is not understood: {problem}; use the uct_info of the version that the process uses"
    )]
    Reply {
        /// The process.
        pid: u32,
        /// What is wrong.
        problem: String,
    },
    /// A system call failed.
    #[error("{0}")]
    System(#[from] SystemError),
}

ucs::debug_as_display!(AttachError);

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and no ")
}
