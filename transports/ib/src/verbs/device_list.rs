//! The list of RDMA devices.
//!
//! For `device.rs`, which looks a device up by name. Built on the table.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use super::abi::*;
use super::{Verbs, errno};
use crate::error::IbError;

/// What the library knows of the machine's devices at one moment. It is not updated: take a new one to see changes.
pub struct DeviceList {
    verbs: Verbs,
    list: *mut *mut ibv_device,
    count: usize,
}

// SAFETY: the list is plain memory that the library wrote once; reading it from any thread is sound, and libibverbs may be
// called from any thread.
unsafe impl Send for DeviceList {}
// SAFETY: as for Send; nothing mutates the list before its destruction.
unsafe impl Sync for DeviceList {}

/// A device of a list.
#[derive(Clone)]
pub struct Device {
    list: Arc<DeviceList>,
    index: usize,
}

impl DeviceList {
    /// Asks the library what devices there are. Reads sysfs and loads provider libraries; does not open a device.
    ///
    /// # Errors
    /// [`IbError::NoDevices`] if there are none, or the kernel has no verbs at all; [`IbError::NoProvider`] if the kernel has devices.
    pub fn new(verbs: Verbs) -> Result<Arc<Self>, IbError> {
        let mut count: c_int = 0;
        // SAFETY: `count` is a valid place for an int.
        let list = unsafe { (verbs.table().get_device_list)(&mut count) };
        if list.is_null() {
            return Err(match errno() {
                // ENOSYS: no ib_uverbs in this kernel. EPERM and EACCES come from sysfs in tight containers.
                0 | libc::ENOSYS | libc::ENOENT | libc::EPERM | libc::EACCES => {
                    IbError::none_shown(of_kernel())
                }
                errno => IbError::verb("ibv_get_device_list", "(all)", errno, 0, String::new()),
            });
        }
        let list = Self { verbs, list, count: usize::try_from(count).unwrap_or(0) };
        if list.count == 0 {
            return Err(IbError::none_shown(of_kernel()));
        }
        Ok(Arc::new(list))
    }

    /// The devices, in the library's order.
    pub fn devices(self: &Arc<Self>) -> impl Iterator<Item = Device> + '_ {
        (0..self.count).map(|index| Device { list: self.clone(), index })
    }
}

/// The names of the kernel's devices.
fn of_kernel() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list came from get_device_list and is freed once, here. Open contexts keep their own reference on
        // their device inside the library.
        unsafe { (self.verbs.table().free_device_list)(self.list) }
    }
}

impl Device {
    fn raw(&self) -> &ibv_device {
        // SAFETY: `index < count`, established by `DeviceList::devices`, and the array has `count` entries.
        let entry = unsafe { self.list.list.add(self.index) };
        // SAFETY: `entry` points into the array of non-null device pointers that the library returned.
        let device = unsafe { *entry };
        // SAFETY: the device lives as long as the list, which `self` holds.
        unsafe { &*device }
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_device {
        std::ptr::from_ref(self.raw()).cast_mut()
    }

    /// The verbs that the device came from.
    pub fn verbs(&self) -> Verbs {
        self.list.verbs
    }

    /// Name of the device, `mlx5_0` say.
    pub fn name(&self) -> String {
        text(&self.raw().name)
    }

    /// Name of the device's file under /dev/infiniband, `uverbs0` say.
    pub fn uverbs_name(&self) -> String {
        text(&self.raw().dev_name)
    }

    /// The device's directory in sysfs.
    pub fn sysfs_path(&self) -> String {
        text(&self.raw().ibdev_path)
    }

    /// Whether this is an adapter that uses InfiniBand or RoCE (not iWARP, nor a vendor's protocol).
    pub fn is_channel_adapter(&self) -> bool {
        self.raw().node_type == IBV_NODE_CA
    }

    /// The 64-bit identity of the node, as the kernel shows it.
    pub fn guid(&self) -> u64 {
        // SAFETY: the device lives as long as the list, which `self` holds.
        u64::from_be(unsafe { (self.list.verbs.table().get_device_guid)(self.as_ptr()) })
    }
}

/// The text before the first NUL of a fixed array.
fn text(array: &[c_char]) -> String {
    // SAFETY: c_char and u8 have the same size and alignment, and the slice covers the array exactly.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}
