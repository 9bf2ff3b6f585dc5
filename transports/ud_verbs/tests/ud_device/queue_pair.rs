//! Breaks a queue pair of this process from outside of its transport, as a fault of the device would.

use std::fs::{File, read_dir, read_link};
use std::io::Write;
use std::os::fd::{BorrowedFd, RawFd};

/// The kernel's command to change a queue pair, and what is used of its fields (include/uapi/rdma/ib_user_verbs.h).
const MODIFY_QP: u32 = 26;
const LENGTH: usize = 120;
const HANDLE: usize = 72;
const MASK: usize = 76;
const STATE: usize = 104;
/// Of the mask: the state is to be changed.
const MASK_STATE: u32 = 1;
const STATE_ERROR: u8 = 6;
/// Objects of one device's user are numbered from 0 in the order in which they are made.
const HANDLES: u32 = 256;

/// Moves the oldest queue pair that this process has on any device to the error state.
pub fn break_oldest() {
    for mut device in open_devices() {
        if (0..HANDLES).any(|handle| device.write(&command(handle)).is_ok()) {
            return;
        }
    }
    panic!("this process has no queue pair");
}

fn command(handle: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[0..4].copy_from_slice(&MODIFY_QP.to_ne_bytes());
    // Lengths of what goes in and of what comes out, in words.
    bytes[4..6].copy_from_slice(&((LENGTH / 4) as u16).to_ne_bytes());
    bytes[HANDLE..HANDLE + 4].copy_from_slice(&handle.to_ne_bytes());
    bytes[MASK..MASK + 4].copy_from_slice(&MASK_STATE.to_ne_bytes());
    bytes[STATE] = STATE_ERROR;
    bytes
}

/// The devices as the verbs library has opened them.
fn open_devices() -> Vec<File> {
    let entries = read_dir("/proc/self/fd").expect("proc").flatten();
    let is_device = |fd: &RawFd| {
        read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|path| path.starts_with("/dev/infiniband"))
    };
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    numbers
        .filter(is_device)
        .map(|number| {
            // SAFETY: it was open a moment ago, and the caller's interfaces keep it so.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            File::from(fd.try_clone_to_owned().expect("a second descriptor"))
        })
        .collect()
}
