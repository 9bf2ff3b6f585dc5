//! A device as a plugin names it, which may know fewer of its fields.

use uct_abi::{UctDevice, UctStr};

/// The device of a plugin of any minor version. Fields that its table is too short for are zero.
///
/// # Safety
/// The first `size` bytes of the table are readable, and `size` is.
pub(crate) unsafe fn whole(device: *const UctDevice) -> UctDevice {
    let none = UctStr { data: std::ptr::null(), length: 0 };
    let mut whole = UctDevice { size: 0, name: none, kind: 0, numa_node: 0, flags: 0 };
    // SAFETY: the caller's promise.
    let size = unsafe { (*device).size };
    let length = size.min(size_of::<UctDevice>());
    // SAFETY: both are that long, and any bytes are a value of these fields.
    unsafe { device.cast::<u8>().copy_to_nonoverlapping((&raw mut whole).cast(), length) };
    whole
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use uct_abi::{UCT_DEVICE_IS_SOFTWARE, UCT_DEVICE_SHM};

    use super::*;

    #[test]
    fn nothing_is_read_behind_the_table_of_an_older_plugin() {
        let name = UctStr { data: std::ptr::null(), length: 0 };
        let flags = UCT_DEVICE_IS_SOFTWARE;
        let mut device =
            UctDevice { size: size_of::<UctDevice>(), name, kind: UCT_DEVICE_SHM, numa_node: 3, flags };
        // SAFETY: the table is as long as it says.
        let read = unsafe { whole(&raw const device) };
        assert_eq!((read.kind, read.numa_node, read.flags), (UCT_DEVICE_SHM, 3, flags));
        device.size = offset_of!(UctDevice, flags);
        // SAFETY: it is longer than it says.
        let read = unsafe { whole(&raw const device) };
        assert_eq!((read.kind, read.numa_node, read.flags), (UCT_DEVICE_SHM, 3, 0));
    }
}
