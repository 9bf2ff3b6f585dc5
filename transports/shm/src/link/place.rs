//! The device address of this process, and the socket names of peers.
//!
//! Built on addresses, sockets, and the system's information about namespaces and directories.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ucs::sys::SystemError;
use ucs::sys::host::host_id;
use ucs::sys::namespace::Namespaces;

use crate::io::socket::Target;
use crate::proto::addr::{DeviceAddress, IfaceAddress, ProcessName, Route};
use crate::proto::kind::Kind;

/// Where a peer is, from its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whereabouts {
    pub(crate) iface: IfaceAddress,
    /// The route to try first, and another one.
    pub(crate) routes: (Route, Option<Route>),
    /// The process, if both are in one pid namespace.
    pub(crate) process: Option<ProcessName>,
}

/// The parts of an address that identify a peer: number and key, which other processes may know and put into addresses of their own, the
/// process, and the routes.
pub(crate) type PeerName = (u64, u64, Option<ProcessName>, (Route, Option<Route>));

impl Whereabouts {
    /// The name by which its connection is found.
    pub(crate) fn name(&self) -> PeerName {
        (self.iface.id, self.iface.key, self.process, self.routes)
    }
}

/// The directory for sockets: the configured one. `auto` is /dev/shm if that is writable.
pub(crate) fn directory(configured: &str) -> Option<PathBuf> {
    match configured {
        "" | "none" => None,
        "auto" => {
            let path = Path::new("/dev/shm");
            let writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
            writable.then(|| path.to_owned())
        }
        path => Some(PathBuf::from(path)),
    }
}

/// The device address of this process.
pub(crate) fn device_address(kind: Kind, directory: Option<&Path>) -> DeviceAddress {
    let found = directory.and_then(|directory| std::fs::metadata(directory).ok());
    let directory = found.map_or((0, 0), |found| (found.dev(), found.ino()));
    DeviceAddress::new(kind, host_id().0, &Namespaces::own(), directory)
}

/// The name of `id` on `route`. `None`: the route needs a directory, and none is configured.
pub(crate) fn target(id: u64, route: Route, directory: Option<&Path>) -> Option<Result<Target, SystemError>> {
    Some(match route {
        Route::Abstract => Target::in_namespace(id),
        Route::Directory => Target::in_directory(directory?, id),
    })
}
