//! The system's links, addresses and routes, read once and used until the kernel reports a change of them.
//!
//! `device` and `route` answer from it: on a host with hundreds of devices each reading takes milliseconds, and there is a question for each
//! device and each peer. Built on `interfaces`, `table` and `watch`.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use socket2::{Domain, Protocol, Socket, Type};

use super::interfaces;
use super::link::Link;
use super::table::Table;
use super::watch::Watch;
use crate::sys::SystemError;
use crate::sys::namespace::Namespace;

/// Most routes that are remembered. Peers' addresses are theirs to choose.
const MAX_ROUTES: usize = 4096;

thread_local! {
    /// The last one. A thread may be in a network namespace of its own.
    static LAST: RefCell<Option<Rc<Snapshot>>> = const { RefCell::new(None) };
    static READINGS: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has read the system's list of devices. For tests: a list is read once, not once for each device.
#[doc(hidden)]
pub fn readings() -> u64 {
    READINGS.get()
}

/// What the system reported at one moment.
pub(super) struct Snapshot {
    /// The links, by name.
    pub(super) links: BTreeMap<String, Link>,
    /// The name of the first link that has an address.
    holders: HashMap<IpAddr, String>,
    /// The local addresses that the kernel chose for peers.
    sources: RefCell<HashMap<SocketAddr, Result<SocketAddr, SystemError>>>,
    ipv4: OnceCell<Option<Table>>,
    ipv6: OnceCell<Option<Table>>,
    watch: Option<Watch>,
    namespace: u64,
    process: u32,
}

/// The present state. What has changed before the call is in it.
///
/// It is read anew if the kernel has reported a change of links, addresses, routes or rules since, in another network namespace, after
/// `fork`, and each time where a sandbox forbids to listen for changes.
pub(super) fn current() -> Result<Rc<Snapshot>, SystemError> {
    let known = LAST.try_with(|last| last.borrow().as_ref().filter(|known| known.is_current()).cloned());
    if let Ok(Some(known)) = known {
        return Ok(known);
    }
    // The old watch is closed before there is a new one.
    let _ = LAST.try_with(|last| last.take());
    let snapshot = Rc::new(Snapshot::read()?);
    if snapshot.watch.is_some() {
        let _ = LAST.try_with(|last| last.replace(Some(Rc::clone(&snapshot))));
    }
    Ok(snapshot)
}

impl Snapshot {
    fn read() -> Result<Snapshot, SystemError> {
        READINGS.set(READINGS.get() + 1);
        // A change during the reading is one after it.
        let watch = Watch::new();
        let links = interfaces::links()?;
        let mut holders = HashMap::new();
        for (name, link) in &links {
            for own in &link.addresses {
                holders.entry(own.address).or_insert_with(|| name.clone());
            }
        }
        Ok(Snapshot {
            links,
            holders,
            sources: RefCell::default(),
            ipv4: OnceCell::new(),
            ipv6: OnceCell::new(),
            watch,
            namespace: Namespace::Net.own(),
            process: std::process::id(),
        })
    }

    fn is_current(&self) -> bool {
        self.process == std::process::id()
            && self.namespace == Namespace::Net.own()
            && self.watch.as_ref().is_some_and(Watch::is_quiet)
    }

    /// The name of the device that has an address.
    pub(super) fn holder(&self, address: IpAddr) -> Option<&str> {
        self.holders.get(&address).map(String::as_str)
    }

    /// The local address of packets to `peer`, with port 0. Asks the kernel by connecting a UDP socket, which sends nothing.
    pub(super) fn source_to(&self, mut peer: SocketAddr) -> Result<SocketAddr, SystemError> {
        // Some kernels refuse port 0; the number goes nowhere.
        const DISCARD: u16 = 9;
        peer.set_port(DISCARD);
        if let Some(known) = self.sources.borrow().get(&peer) {
            return known.clone();
        }
        let source =
            ask(peer).map_err(|error| SystemError::new(format!("find a route to {}", peer.ip()), error));
        let mut sources = self.sources.borrow_mut();
        if sources.len() >= MAX_ROUTES {
            sources.clear();
        }
        sources.insert(peer, source.clone());
        source
    }

    /// Whether the main routing table has an entry through `device` that covers `address`. `None` where the table cannot be read.
    pub(super) fn leads_to(&self, device: &str, address: IpAddr) -> Option<bool> {
        let table = if address.is_ipv4() { &self.ipv4 } else { &self.ipv6 };
        let table = table.get_or_init(|| Table::read(address.is_ipv4())).as_ref()?;
        Some(table.leads_to(device, address))
    }
}

fn ask(peer: SocketAddr) -> io::Result<SocketAddr> {
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    socket.connect(&peer.into())?;
    let source = socket.local_addr()?.as_socket();
    let mut source = source.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
    source.set_port(0);
    Ok(source)
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
