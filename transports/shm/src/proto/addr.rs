//! Addresses: the location of an interface, and whether this process can reach it.
//!
//! The device address contains the location of the process. The interface address names the socket, and contains the key that a peer must
//! present. Fields are in the machine's byte order, because only processes of this machine can use them.

use ucs::record::Format;
use ucs::sys::namespace::Namespaces;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::kind::Kind;

const MAGIC: u16 = 0x5348;
const VERSION: u8 = 3;
const DEVICE_FORMAT: Format = Format {
    name: "device address of shared memory",
    magic: &MAGIC.to_ne_bytes(),
    version: Some(VERSION),
    length: DEVICE_LENGTH,
};
const IFACE_FORMAT: Format =
    Format { name: "interface address of shared memory", magic: b"", version: None, length: IFACE_LENGTH };
const EP_FORMAT: Format =
    Format { name: "endpoint address of shared memory", magic: b"", version: None, length: EP_LENGTH };

/// Where a process lives: 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DeviceAddress {
    /// 0: [`MAGIC`].
    magic: u16,
    /// 2: [`VERSION`].
    version: u8,
    /// 3: which transport, as [`Kind`].
    kind: u8,
    /// 4: inode of the user namespace, which the kernel keeps in 32 bits.
    user: u32,
    /// 8: the machine and its boot.
    host: [u8; 16],
    /// 24: inode of the network namespace.
    net: u64,
    /// 32: inode of the ipc namespace.
    ipc: u64,
    /// 40: inode of the pid namespace.
    pid: u64,
    /// 48: device of the directory with the socket; 0 without one.
    directory_device: u64,
    /// 56: inode of that directory.
    directory_inode: u64,
}

/// Which interface: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct IfaceAddress {
    /// 0: number of the interface, random; the name of its socket.
    pub(crate) id: u64,
    /// 8: what a peer must show, random.
    pub(crate) key: u64,
    /// 16: effective user of the process, in the user namespace of the device address.
    pub(crate) uid: u32,
    /// 20: the process, in the pid namespace of the device address. Another process is not this interface.
    pub(crate) pid: u32,
}

/// By which of its names a listener is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// The abstract one, which any process in its network namespace may connect to.
    Abstract,
    /// The one in the directory, which is open to the users that the file's mode permits.
    Directory,
}

/// The process of an address, for comparing it with what the kernel reports for a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProcessName {
    /// Its number here.
    pub(crate) pid: u32,
    /// Its user here, if both are in one user namespace: a number that is used again can be that of another user's process.
    pub(crate) uid: Option<u32>,
}

impl ProcessName {
    /// Whether this is the process that the kernel reports, with its user.
    pub(crate) fn is(self, pid: u32, uid: u32) -> bool {
        pid == self.pid && self.uid.is_none_or(|own| own == uid)
    }
}

impl std::fmt::Display for ProcessName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "process {} of user {uid}", self.pid),
            None => write!(f, "process {}", self.pid),
        }
    }
}

/// Bytes of a device address.
pub(crate) const DEVICE_LENGTH: usize = size_of::<DeviceAddress>();
/// Bytes of an interface address.
pub(crate) const IFACE_LENGTH: usize = size_of::<IfaceAddress>();
/// Bytes of an endpoint address: an interface address, and the number of the endpoint, for log messages.
pub(crate) const EP_LENGTH: usize = IFACE_LENGTH + 8;

impl DeviceAddress {
    /// That of a process on this machine, in these namespaces, with its socket in a directory of this device and inode (0 without one).
    pub(crate) fn new(
        kind: Kind,
        host: [u8; 16],
        namespaces: &Namespaces,
        (directory_device, directory_inode): (u64, u64),
    ) -> DeviceAddress {
        DeviceAddress {
            magic: MAGIC,
            version: VERSION,
            kind: kind as u8,
            user: namespaces.user as u32,
            host,
            net: namespaces.net,
            ipc: namespaces.ipc,
            pid: namespaces.pid,
            directory_device,
            directory_inode,
        }
    }

    /// Reads the bytes of a peer's address, which are untrusted. The error describes what is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<DeviceAddress, String> {
        let fields = DEVICE_FORMAT.read(bytes)?;
        DeviceAddress::read_from_bytes(bytes).map_err(|_| fields.damaged("it cannot be read"))
    }

    /// Whether both are of one transport on one machine, so that only namespaces and directories can separate them.
    pub(crate) fn is_beside(&self, peer: &DeviceAddress) -> bool {
        self.kind == peer.kind && self.host == peer.host
    }

    /// The process of a peer's interface, if it has the same number for both.
    pub(crate) fn process_of(&self, peer: &DeviceAddress, iface: &IfaceAddress) -> Option<ProcessName> {
        let uid = same(self.user.into(), peer.user.into()).then_some(iface.uid);
        self.sees_processes_of(peer).then_some(ProcessName { pid: iface.pid, uid })
    }

    /// Whether a process has the same number for both.
    fn sees_processes_of(&self, peer: &DeviceAddress) -> bool {
        same(self.pid, peer.pid)
    }

    /// The routes from `self` to `peer`: the one to try first, and another one. The error describes what is missing.
    ///
    /// The name in the directory comes first, because other users cannot fill the queue of that socket. But a process that may write to the
    /// directory can put another socket there, which is detected only if the peer's process is known. Otherwise the abstract name comes
    /// first, which cannot be taken from a living process.
    pub(crate) fn routes_to(&self, peer: &DeviceAddress) -> Result<(Route, Option<Route>), String> {
        if peer.kind != self.kind {
            return Err("the address is of another shared memory transport".to_owned());
        }
        if peer.host != self.host {
            return Err("the peer runs on another machine, or under another kernel".to_owned());
        }
        if self.kind == Kind::Sysv as u8 && !same(self.ipc, peer.ipc) {
            return Err(format!(
                "System V segments need a common ipc namespace; this process is in ipc:[{}], the peer in ipc:[{}] → \
                 run both in one, or permit posix, which needs none",
                self.ipc, peer.ipc
            ));
        }
        if self.kind == Kind::Cma as u8 && !same(self.pid, peer.pid) {
            return Err(format!(
                "copies between processes need a common pid namespace; this process is in pid:[{}], the peer in \
                 pid:[{}] → run both in one, or permit posix, which needs none",
                self.pid, peer.pid
            ));
        }
        let is_net_common = same(self.net, peer.net);
        let is_directory_common = same(self.directory_inode, peer.directory_inode)
            && self.directory_device == peer.directory_device;
        match (is_net_common, is_directory_common) {
            (true, true) if self.sees_processes_of(peer) => {
                return Ok((Route::Directory, Some(Route::Abstract)));
            }
            (true, true) => return Ok((Route::Abstract, Some(Route::Directory))),
            (true, false) => return Ok((Route::Abstract, None)),
            (false, true) => return Ok((Route::Directory, None)),
            (false, false) => (),
        }
        let has = |address: &DeviceAddress| if address.directory_inode == 0 { "no" } else { "another" };
        Err(format!(
            "the processes share neither a network namespace nor a directory for a socket: this process is in net:[{}], \
             the peer in net:[{}]; the peer has {} directory, this process {} → share a directory and name it in UCT_SHM_DIR",
            self.net,
            peer.net,
            has(peer),
            if self.directory_inode == 0 { "none" } else { "its own" },
        ))
    }
}

impl IfaceAddress {
    /// The bytes of the interface address in those of an endpoint's, which are untrusted.
    pub(crate) fn of_ep(bytes: &[u8]) -> Result<&[u8], String> {
        EP_FORMAT.read(bytes).map(|mut fields| fields.bytes(IFACE_LENGTH))
    }

    /// Reads the bytes of a peer's address, which are untrusted.
    pub(crate) fn parse(bytes: &[u8]) -> Result<IfaceAddress, String> {
        let fields = IFACE_FORMAT.read(bytes)?;
        match IfaceAddress::read_from_bytes(bytes) {
            Ok(address) if address.pid != 0 && address.id != 0 => Ok(address),
            _ => Err(fields.damaged("process and interface have a number")),
        }
    }
}

/// Whether two inodes are one; 0 is one that is not known.
fn same(left: u64, right: u64) -> bool {
    left != 0 && left == right
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn own(kind: Kind) -> DeviceAddress {
        let namespaces = Namespaces { pid: 11, ipc: 12, net: 13, user: 14, ..Namespaces::default() };
        DeviceAddress::new(kind, [15; 16], &namespaces, (16, 17))
    }

    #[test]
    fn an_address_survives_its_bytes_and_others_do_not() {
        let address = own(Kind::Posix);
        assert_eq!(DeviceAddress::parse(address.as_bytes()), Ok(address));
        assert!(DeviceAddress::parse(&address.as_bytes()[1..]).unwrap_err().contains("63 bytes"));
        assert!(DeviceAddress::parse(&[0; DEVICE_LENGTH]).unwrap_err().contains("no device address"));
        let next = DeviceAddress { version: 4, ..address };
        assert!(DeviceAddress::parse(next.as_bytes()).unwrap_err().contains("version 4"));
        assert!(IfaceAddress::parse(&[0; IFACE_LENGTH]).is_err());
        assert!(IfaceAddress::parse(&[1; IFACE_LENGTH + 1]).is_err());
        let iface = IfaceAddress { id: 1, key: 2, uid: 4, pid: 3 };
        assert_eq!(IfaceAddress::parse(iface.as_bytes()), Ok(iface));
        assert!(IfaceAddress::parse(IfaceAddress { pid: 0, ..iface }.as_bytes()).is_err());
        assert!(IfaceAddress::parse(IfaceAddress { id: 0, ..iface }.as_bytes()).is_err());
    }

    #[test]
    fn a_process_is_compared_as_far_as_both_see_its_number_and_its_user() {
        let posix = own(Kind::Posix);
        let iface = IfaceAddress { id: 1, key: 2, uid: 4, pid: 3 };
        let process = posix.process_of(&posix, &iface).unwrap();
        assert!(process.is(3, 4));
        assert!(!process.is(3, 5), "the number was used again");
        assert!(!process.is(2, 4));
        assert_eq!(process.to_string(), "process 3 of user 4");
        let process = posix.process_of(&DeviceAddress { user: 7, ..posix }, &iface).unwrap();
        assert!(process.is(3, 5), "the user has another number here");
        assert_eq!(posix.process_of(&DeviceAddress { pid: 7, ..posix }, &iface), None);
    }

    #[test]
    fn each_missing_namespace_is_named() {
        let posix = own(Kind::Posix);
        assert_eq!(posix.routes_to(&posix), Ok((Route::Directory, Some(Route::Abstract))));
        let other_net = DeviceAddress { net: 7, ..posix };
        assert_eq!(posix.routes_to(&other_net), Ok((Route::Directory, None)));
        for other in
            [DeviceAddress { directory_inode: 7, ..posix }, DeviceAddress { directory_device: 7, ..posix }]
        {
            assert_eq!(posix.routes_to(&other), Ok((Route::Abstract, None)), "another directory");
        }
        let other_pid = DeviceAddress { pid: 7, ..posix };
        let routes = (Route::Abstract, Some(Route::Directory));
        assert_eq!(posix.routes_to(&other_pid), Ok(routes), "a socket in the directory could be anybody's");
        let nothing = DeviceAddress { net: 7, directory_inode: 8, ..posix };
        let reason = posix.routes_to(&nothing).unwrap_err();
        assert!(reason.contains("net:[7]") && reason.contains("UCT_SHM_DIR"), "{reason}");
        let other_ipc = DeviceAddress { ipc: 7, ..posix };
        assert!(posix.routes_to(&other_ipc).is_ok(), "posix needs no ipc namespace");
        let sysv = own(Kind::Sysv);
        assert!(sysv.routes_to(&DeviceAddress { ipc: 7, ..sysv }).unwrap_err().contains("ipc:[7]"));
        let cma = own(Kind::Cma);
        assert!(cma.routes_to(&DeviceAddress { pid: 7, ..cma }).unwrap_err().contains("pid:[7]"));
        assert!(posix.routes_to(&sysv).unwrap_err().contains("another shared memory transport"));
        assert!(posix.routes_to(&DeviceAddress { host: [1; 16], ..posix }).unwrap_err().contains("machine"));
        assert!(posix.routes_to(&DeviceAddress { pid: 7, ..posix }).is_ok(), "posix needs no pid namespace");
    }

    #[test]
    fn an_endpoint_address_begins_with_that_of_its_interface() {
        let bytes: Vec<u8> = (0..EP_LENGTH as u8).collect();
        assert_eq!(IfaceAddress::of_ep(&bytes), Ok(&bytes[..IFACE_LENGTH]));
        assert!(IfaceAddress::of_ep(&bytes[1..]).is_err());
    }

    #[test]
    fn a_directory_is_common_if_device_and_inode_are() {
        let posix = own(Kind::Posix);
        let common = Ok((Route::Directory, Some(Route::Abstract)));
        assert_eq!(posix.routes_to(&posix), common);
        for other in
            [DeviceAddress { directory_device: 7, ..posix }, DeviceAddress { directory_inode: 7, ..posix }]
        {
            assert_eq!(posix.routes_to(&other), Ok((Route::Abstract, None)));
        }
    }

    #[test]
    fn what_separates_two_interfaces_of_one_kind_and_machine_can_be_removed() {
        let posix = own(Kind::Posix);
        assert!(posix.is_beside(&DeviceAddress { net: 7, directory_inode: 8, ..posix }));
        assert!(!posix.is_beside(&own(Kind::Sysv)));
        assert!(!posix.is_beside(&DeviceAddress { host: [1; 16], ..posix }));
    }
}
