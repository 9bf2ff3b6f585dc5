//! An open device.
//!
//! For every other object, which holds its context. Built on the table and on a device of the list.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::abi::*;
use super::{Device, Verbs, VerbsTable, errno};
use crate::error::IbError;

/// An open device. Held by everything made on it; closed when the last of them is gone.
pub struct Context {
    table: &'static VerbsTable,
    is_software: bool,
    raw: *mut ibv_context,
    name: String,
    attr: ibv_device_attr,
}

/// An entry of a port's GID table that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedGid {
    /// Its index.
    pub index: u32,
    /// The address.
    pub gid: [u8; 16],
    /// What else is known of it, if the library can list the table.
    pub attributes: Option<GidAttributes>,
}

/// What the table of a port has of an entry beside the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidAttributes {
    /// `IBV_GID_TYPE_*`.
    pub kind: u32,
    /// The interface index of its network device; 0 is none.
    pub netdev: u32,
}

impl UsedGid {
    fn of(entry: &ibv_gid_entry) -> Self {
        let attributes = GidAttributes { kind: entry.gid_type, netdev: entry.ndev_ifindex };
        Self { index: entry.gid_index, gid: entry.gid.raw, attributes: Some(attributes) }
    }
}

// SAFETY: libibverbs documents that its functions may be called from any thread, also at the same time.
unsafe impl Send for Context {}
// SAFETY: as for Send. The fields of this structure do not change after `open`.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the device and asks for its attributes. The descriptor of its asynchronous events becomes non-blocking.
    ///
    /// # Errors
    /// [`IbError::NoPermission`] and [`IbError::NoDeviceFile`] name the file; otherwise the failed verb.
    pub fn open(device: &Device) -> Result<Arc<Self>, IbError> {
        let verbs = device.verbs();
        let table = verbs.table();
        let name = device.name();
        // SAFETY: the device lives as long as the list that `device` holds.
        let raw = unsafe { (table.open_device)(device.as_ptr()) };
        if raw.is_null() {
            return Err(Self::open_error(device, verbs, errno()));
        }
        let is_software = verbs.is_software();
        let mut context = Self { table, is_software, raw, name, attr: zeroed_device_attr() };
        // SAFETY: `raw` is open, and `attr` is a valid place for the attributes.
        let failed = unsafe { (table.query_device)(raw, &mut context.attr) };
        if failed != 0 {
            return Err(context.error("ibv_query_device", failed, ""));
        }
        let fd = context.async_fd();
        let nonblocking = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK));
        if let Err(error) = nonblocking {
            return Err(context.error("fcntl(O_NONBLOCK) of the event descriptor", error.raw_os_error(), ""));
        }
        Ok(Arc::new(context))
    }

    fn open_error(device: &Device, verbs: Verbs, errno: i32) -> IbError {
        use std::io::ErrorKind::{NotFound, PermissionDenied};
        let (device, uverbs) = (device.name(), device.uverbs_name());
        if verbs.is_software() {
            return IbError::verb("ibv_open_device", &device, errno, 0, String::new());
        }
        // The library tries several ways and keeps the errno of the last: so the file is checked here.
        let file = format!("/dev/infiniband/{uverbs}");
        match std::fs::File::options().read(true).write(true).open(file).map_err(|error| error.kind()) {
            Err(PermissionDenied) => IbError::NoPermission { device, uverbs },
            Err(NotFound) => IbError::NoDeviceFile { device, uverbs },
            _ => IbError::verb("ibv_open_device", &device, errno, 0, String::new()),
        }
    }

    /// The table that the context calls.
    pub fn table(&self) -> &'static VerbsTable {
        self.table
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.raw
    }

    /// The operations of the data path.
    #[inline]
    pub(super) fn ops(&self) -> &ibv_context_ops {
        // SAFETY: the context is open as long as `self` lives, and providers do not change the table after opening.
        unsafe { &(*self.raw).ops }
    }

    /// Name of the device.
    pub fn device_name(&self) -> &str {
        &self.name
    }

    /// The device's attributes as they were when it was opened.
    pub fn attr(&self) -> &ibv_device_attr {
        &self.attr
    }

    /// Whether the device is made of software inside this process ([`Verbs::is_software`]).
    pub fn is_software(&self) -> bool {
        self.is_software
    }

    /// Whether the device is the kernel's software RoCE (`rdma_rxe`).
    pub fn is_software_roce(&self) -> bool {
        // What drivers report in place of a vendor; no vendor has it.
        self.attr.vendor_id == 0xff_ffff && !self.is_software
    }

    /// How many completion vectors (interrupt lines) there are; at least 1.
    pub fn num_comp_vectors(&self) -> u32 {
        // SAFETY: the context is open as long as `self` lives.
        let number = unsafe { (*self.raw).num_comp_vectors };
        u32::try_from(number).unwrap_or(1).max(1)
    }

    /// Becomes readable when there is an asynchronous event; the events are read from it. Non-blocking.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open as long as `self` lives.
        let fd = unsafe { (*self.raw).async_fd };
        // SAFETY: the library keeps the descriptor open until the context is closed, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The attributes of a port. Asks the kernel; a port number that does not exist is an error of the verb.
    ///
    /// # Errors
    /// The failed verb.
    pub fn query_port(&self, port: u8) -> Result<ibv_port_attr, IbError> {
        let mut attr = zeroed_port_attr();
        // SAFETY: the context is open, and `attr` is at least as big as what the exported function fills.
        let failed = unsafe { (self.table.query_port)(self.raw, port, &mut attr) };
        if failed != 0 {
            return Err(self.error("ibv_query_port", failed, &format!("port {port}")));
        }
        Ok(attr)
    }

    /// An entry of a port's GID table. An unused entry is sixteen zeros.
    ///
    /// # Errors
    /// The failed verb.
    pub fn query_gid(&self, port: u8, index: u32) -> Result<[u8; 16], IbError> {
        let mut gid = ibv_gid { raw: [0; 16], _align: [] };
        let wanted = i32::try_from(index).unwrap_or(i32::MAX);
        // SAFETY: the context is open, and `gid` is a valid place for a GID.
        let failed = unsafe { (self.table.query_gid)(self.raw, port, wanted, &mut gid) };
        if failed != 0 {
            return Err(self.error("ibv_query_gid", errno(), &format!("port {port}, index {index}")));
        }
        Ok(gid.raw)
    }

    /// The entries of a port's GID table that are in use, below the index `length`. Asks the kernel once, where the library can;
    /// otherwise for each, and knows the addresses only.
    ///
    /// # Errors
    /// The failed verb.
    pub fn used_gids(&self, port: u8, length: u32) -> Result<Vec<UsedGid>, IbError> {
        if let Some(entries) = self.query_gid_table(length) {
            let own =
                entries.iter().filter(|entry| entry.port_num == u32::from(port) && entry.gid_index < length);
            return Ok(own.map(UsedGid::of).collect());
        }
        let mut used = Vec::new();
        for index in 0..length {
            let gid = self.query_gid(port, index)?;
            if gid != [0; 16] {
                used.push(UsedGid { index, gid, attributes: None });
            }
        }
        Ok(used)
    }

    /// The entries of all ports, of which there are at most 255; `None` if library or kernel cannot list them.
    fn query_gid_table(&self, length: u32) -> Option<Vec<ibv_gid_entry>> {
        let query = self.table.query_gid_table?;
        let none = ibv_gid_entry {
            gid: ibv_gid { raw: [0; 16], _align: [] },
            gid_index: 0,
            port_num: 0,
            gid_type: 0,
            ndev_ifindex: 0,
        };
        let mut entries = vec![none; length as usize * usize::from(self.attr.phys_port_cnt.max(1))];
        // SAFETY: the context is open, and there is room for as many entries of this size.
        let count =
            unsafe { query(self.raw, entries.as_mut_ptr(), entries.len(), 0, size_of::<ibv_gid_entry>()) };
        entries.truncate(usize::try_from(count).ok()?);
        Some(entries)
    }

    /// An entry of a port's partition key table, in the host's byte order.
    ///
    /// # Errors
    /// The failed verb.
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16, IbError> {
        let mut pkey = 0u16;
        // SAFETY: the context is open, and `pkey` is a valid place for a key.
        let failed = unsafe { (self.table.query_pkey)(self.raw, port, i32::from(index), &mut pkey) };
        if failed != 0 {
            return Err(self.error("ibv_query_pkey", errno(), &format!("port {port}, index {index}")));
        }
        Ok(u16::from_be(pkey))
    }

    /// An error of a verb on this device that pins no memory of the caller.
    pub(super) fn error(&self, verb: &'static str, errno: i32, detail: &str) -> IbError {
        IbError::verb(verb, &self.name, errno, 0, detail.to_owned())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made on the context holds it, so nothing is left; it is closed once, here.
        let failed = unsafe { (self.table.close_device)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(device = %self.name, errno = errno(), "ibv_close_device failed");
        }
    }
}

fn zeroed_device_attr() -> ibv_device_attr {
    // SAFETY: the structure has integers only, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn zeroed_port_attr() -> ibv_port_attr {
    // SAFETY: as for the device.
    unsafe { MaybeUninit::zeroed().assume_init() }
}
