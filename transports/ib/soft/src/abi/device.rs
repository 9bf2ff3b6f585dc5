//! The list of devices, which has one.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use uct_ib_abi::*;

use super::objects::zeroed;
use crate::driver::Driver;
use crate::settings::Settings;

/// A device of the list, which lives as long as the process.
struct Listed(ibv_device);

// SAFETY: the structure is written once, before anybody has a pointer to it.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

/// The device: named by `SOFTVERBS_NAME`.
pub(super) fn listed() -> *mut ibv_device {
    static DEVICE: OnceLock<Box<Listed>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| {
        let name = Settings::of_process().name.clone();
        let mut device: ibv_device = zeroed();
        device.node_type = IBV_NODE_CA;
        device.transport_type = IBV_TRANSPORT_IB;
        write(&mut device.name, &name);
        write(&mut device.dev_name, "uverbs0");
        write(&mut device.dev_path, "/sys/class/infiniband_verbs/uverbs0");
        write(&mut device.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        Box::new(Listed(device))
    });
    std::ptr::from_ref(&device.0).cast_mut()
}

static DRIVER: Mutex<Weak<Driver>> = Mutex::new(Weak::new());

/// Ends a use of the device. Nobody opens it meanwhile, when its address is not free yet.
pub(super) fn release(driver: Arc<Driver>) {
    let _shared = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    drop(driver);
}

/// What works for the device while somebody has it open: one for the process.
pub(super) fn driver() -> std::io::Result<Arc<Driver>> {
    let mut shared = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = shared.upgrade() {
        return Ok(driver);
    }
    let driver = Driver::start(&Settings::of_process().options)?;
    *shared = Arc::downgrade(&driver);
    Ok(driver)
}

/// Writes a text with its NUL, cut to the room that there is.
fn write(place: &mut [c_char], text: &str) {
    let room = place.len() - 1;
    for (place, byte) in place.iter_mut().zip(text.bytes().take(room)) {
        *place = byte as c_char;
    }
}

/// See `ibv_get_device_list(3)`.
///
/// # Safety
/// `count` is null or a place for an integer.
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    if let Some(settings) = Settings::of_process().error() {
        ucs::log::error!(error = settings, "softverbs");
        return super::objects::refused(libc::EINVAL);
    }
    let list = Box::new([listed(), std::ptr::null_mut()]);
    if !count.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *count = 1 };
    }
    Box::into_raw(list).cast()
}

/// See `ibv_get_device_list(3)`.
///
/// # Safety
/// The list came from [`ibv_get_device_list`], and is freed once.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if !list.is_null() {
        // SAFETY: the list is a box of two pointers.
        drop(unsafe { Box::from_raw(list.cast::<[*mut ibv_device; 2]>()) });
    }
}

/// See `ibv_get_device_name(3)`.
///
/// # Safety
/// The device is one of a list.
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's promise; devices are never freed.
    unsafe { (*device).name.as_ptr() }
}

/// See `ibv_get_device_guid(3)`.
///
/// # Safety
/// The device is one of a list.
pub unsafe extern "C" fn ibv_get_device_guid(_: *mut ibv_device) -> u64 {
    guid().to_be()
}

/// The identity of the node: of the locally administered kind, with this process's number.
pub(super) fn guid() -> u64 {
    0x0200_00ff_fe00_0000 | u64::from(std::process::id()) & 0x00ff_ffff
}
