//! An address that several processes of one user share: each has a slot, which is part of the numbers of its queue pairs.
//!
//! For `udp`. The kernel hands a packet to any of the sockets on the address; a process that gets one of another slot passes it on, over a
//! Unix socket in a directory that only this user may use. A slot is a locked file, so that a process that dies leaves it free.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::engine::wire::{BTH_LENGTH, LARGEST_HEADERS, destination_qp};
use crate::engine::{from_gid, to_gid};

/// Bits of a queue pair's number behind those of the slot.
pub const NUMBER_BITS: u32 = 14;
/// Slots of an address.
const SLOTS: u32 = 1 << (24 - NUMBER_BITS);
/// The sender's address ahead of a packet that is passed on.
const HEAD: usize = 16;
/// Bytes of a packet that is passed on, with its head, at most.
pub const LARGEST_PASSED: usize = HEAD + LARGEST_HEADERS + 4096;

/// One process's part of an address.
pub struct Slot {
    number: u32,
    directory: PathBuf,
    socket: UnixDatagram,
    _lock: File,
}

impl Slot {
    /// Takes a free slot of this address.
    ///
    /// # Errors
    /// There is none, or the directory is not this user's alone.
    pub fn take(address: IpAddr) -> io::Result<Slot> {
        let base = PathBuf::from(format!("/dev/shm/softverbs-{}", rustix::process::geteuid().as_raw()));
        let directory = base.join(address.to_string());
        for path in [&base, &directory] {
            private_directory(path)?;
        }
        for number in 0..SLOTS {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            let lock = options.open(directory.join(format!("{number}.lock")))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let path = directory.join(number.to_string());
            // That of a process that was killed.
            let _ = std::fs::remove_file(&path);
            let socket = UnixDatagram::bind(&path)?;
            socket.set_nonblocking(true)?;
            return Ok(Slot { number, directory, socket, _lock: lock });
        }
        Err(io::Error::other(format!("{SLOTS} processes share {address} already")))
    }

    /// The first number of its queue pairs.
    pub fn first_qp(&self) -> u32 {
        self.number << NUMBER_BITS
    }

    /// Whether a packet is for this slot, and not to be passed on.
    pub fn owns(&self, packet: &[u8]) -> bool {
        destination_qp(packet).is_none_or(|number| number >> NUMBER_BITS == self.number)
    }

    /// Passes a packet on to the slot that it is for. It is lost if that is taken by nobody, or does not keep up.
    pub fn pass_on(&self, source: IpAddr, packet: &[u8]) {
        let Some(number) = destination_qp(packet) else { return };
        let mut bytes = Vec::with_capacity(HEAD + packet.len());
        bytes.extend_from_slice(&to_gid(source));
        bytes.extend_from_slice(packet);
        let _ = self.socket.send_to(&bytes, self.directory.join((number >> NUMBER_BITS).to_string()));
    }

    /// A packet that another process passed on, and its sender.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(IpAddr, &'a [u8])> {
        let length = self.socket.recv(buffer).ok()?;
        let (head, packet) = buffer[..length].split_first_chunk::<HEAD>()?;
        (packet.len() >= BTH_LENGTH).then_some((from_gid(*head), packet))
    }
}

impl AsFd for Slot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.directory.join(self.number.to_string()));
    }
}

/// Makes a directory of this user alone, or finds it so.
fn private_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(path)?;
    let is_private =
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if is_private {
        Ok(())
    } else {
        let reason = format!("{} is not a directory of this user alone", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Psn;
    use crate::engine::wire::{Headers, Kind, Part};
    use std::net::Ipv4Addr;

    fn packet(number: u32) -> Vec<u8> {
        let headers = Headers::new(Kind::Acknowledge, Part::Only, number, Psn::new(1));
        headers.encode(0, |_| Ok::<(), std::convert::Infallible>(())).unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_directory_that_cannot_be_made_says_why() {
        // Nobody makes directories in the kernel's own file system.
        let error = private_directory(Path::new("/sys/softverbs")).expect_err("it cannot be made");
        assert_ne!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[test]
    fn slots_are_taken_once_and_packets_are_passed_on() {
        // Of no other test: nothing is bound to it.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, 160 + high % 32, middle, low));
        let (a, b) = (Slot::take(address).expect("free"), Slot::take(address).expect("free"));
        assert_ne!(a.first_qp(), b.first_qp());
        let for_b = packet(b.first_qp() + 5);
        assert!(!a.owns(&for_b) && b.owns(&for_b));
        let source = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
        a.pass_on(source, &for_b);
        let mut buffer = [0; 64];
        assert_eq!(b.receive(&mut buffer), Some((source, &for_b[..])));
        assert_eq!(b.receive(&mut [0; 64]), None);
        // Nobody has the slot.
        a.pass_on(source, &packet(0x00ff_ffff));
        let was = b.first_qp();
        drop(b);
        let again = Slot::take(address).expect("free again");
        assert_eq!(again.first_qp(), was);
        std::fs::remove_dir_all(&again.directory).expect("it was this test's");
    }
}
