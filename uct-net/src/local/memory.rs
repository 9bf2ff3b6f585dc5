//! Memory of a net: any of its connections can use and share it, whatever transport they have.
//!
//! Built on the host's memory for several domains, which registers it with a transport when a connection first needs that.

use ucs::Error as Status;
use uct_host::{Access, DeviceKind, Grant, Memory, MemorySlice, MultiDomainMemory, Refused};

use super::connection::Connection;
use super::net::{Net, NetInner};
use crate::error::{Error, Result, Stage, THIS_PROCESS};

impl Net {
    /// Allocates at least `length` zeroed bytes of memory that any connection of this net can share, put from, get into and send from. It is
    /// registered with the transport of a connection when that first needs it, which takes system calls, and more for a device that
    /// pins pages. It lies in shared memory, if such a transport is open, so that peers on this machine map it. Blocks, and with the key
    /// `populate` (default) until all pages are there: some tenths of a second for a GiB.
    ///
    /// # Errors
    /// No memory, or a limit of the system, which the error names.
    pub fn allocate(&self, length: usize) -> Result<Memory> {
        let allocate = |domain: &uct_host::MemoryDomain| {
            domain.allocate(length, Access::all(), uct_host::MemoryKind::Host)
        };
        self.inner.first_that_allocates(allocate).map(for_all)
    }

    /// For protocols of libraries: as [`Net::allocate`], without the pages. Whether the caller should make them present, which blocks and needs no lock.
    ///
    /// # Errors
    /// As [`Net::allocate`].
    pub fn allocate_absent(&self, length: usize) -> Result<(Memory, bool)> {
        self.inner.allocate_absent(length)
    }
}

impl NetInner {
    /// As [`Net::allocate`], without the pages; whether they are to be made present.
    pub(crate) fn allocate_absent(&self, length: usize) -> Result<(Memory, bool)> {
        let allocate = |domain: &uct_host::MemoryDomain| domain.allocate_absent(length, Access::all());
        self.first_that_allocates(allocate).map(|(memory, populates)| (for_all(memory), populates))
    }

    /// The outcome of the first domain that has one, shared memory first: what it has allocated peers map.
    fn first_that_allocates<T>(
        &self,
        allocate: impl Fn(&uct_host::MemoryDomain) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        self.check_fork().map_err(|forked| Error::forked(Stage::Allocate, THIS_PROCESS, forked))?;
        let mut ifaces: Vec<_> = self.selector.ifaces().iter().collect();
        ifaces.sort_by_key(|iface| iface.resource().kind != DeviceKind::SharedMemory);
        // Refusals that differ in figures are one: what the machine has left changes between two of them.
        let cause = |refused: &Refused| refused.reason.replace(|byte: char| byte.is_ascii_digit(), "");
        let mut all: Vec<Refused> = Vec::new();
        for iface in ifaces {
            match allocate(iface.memory_domain()) {
                Ok(memory) => return Ok(memory),
                Err(refused) if all.iter().any(|other| cause(other) == cause(&refused)) => {}
                Err(refused) => all.push(refused),
            }
        }
        let status = all.last().map_or(Status::NO_MEMORY, |refused| refused.status);
        let reasons: Vec<String> = all.iter().map(ToString::to_string).collect();
        Err(Error::new(Stage::Allocate, THIS_PROCESS, status, reasons.join("; ")))
    }
}

fn for_all(memory: Memory) -> Memory {
    MultiDomainMemory::new(memory).memory().clone()
}

/// Memory, or a part of it, as the transport of a connection has it. Cheap after the first use.
pub(crate) trait OnConnection: Sized {
    /// The same bytes for operations of this connection.
    ///
    /// # Errors
    /// `INVALID_PARAM` for memory of another transport that is no net's; the transport refuses to register it.
    fn on(&self, connection: &Connection) -> Result<Self>;
}

impl OnConnection for Memory {
    fn on(&self, connection: &Connection) -> Result<Memory> {
        let memory = self.for_domain(connection.iface().memory_domain());
        memory.map_err(|refused| unusable(connection, &refused))
    }
}

impl OnConnection for MemorySlice {
    fn on(&self, connection: &Connection) -> Result<MemorySlice> {
        let slice = self.for_domain(connection.iface().memory_domain());
        slice.map_err(|refused| unusable(connection, &refused))
    }
}

/// A key to the part alone.
pub(super) fn grant(slice: &MemorySlice, connection: &Connection) -> Result<Grant> {
    // As for memory as a whole: only a net's is for every transport.
    slice.on(connection)?;
    let grant = slice.grant(connection.iface().memory_domain());
    grant.map_err(|refused| connection.failed(refused.status, refused.to_string()))
}

#[cold]
fn unusable(connection: &Connection, refused: &Refused) -> Error {
    let error = connection.failed(refused.status, refused.to_string());
    match refused.status {
        Status::INVALID_PARAM => {
            error.hint("Net::allocate returns memory for the connections of all transports")
        }
        _ => error,
    }
}
