//! The objects that C holds pointers to: what C's inline functions read, and behind it what is ours.
//!
//! For the functions of `abi`. Each object begins with its C structure, so that a pointer to one is a pointer to the other.

use std::mem::MaybeUninit;
use std::sync::Arc;

use uct_ib_abi::*;

use super::convert;
use crate::driver::{Acknowledgements, Driver, Notices};
use crate::engine::{CqId, Event, Path, PdId, SrqId, Verb};

/// An open device.
#[repr(C)]
pub struct Context {
    pub verbs: verbs_context,
    pub driver: Arc<Driver>,
    pub events: Arc<Notices<(Event, usize)>>,
}

/// A protection domain.
#[repr(C)]
pub struct Pd {
    pub public: ibv_pd,
    pub driver: Arc<Driver>,
    pub id: PdId,
}

/// A registered region.
#[repr(C)]
pub struct Mr {
    pub public: ibv_mr,
    pub driver: Arc<Driver>,
}

/// A completion channel.
#[repr(C)]
pub struct Channel {
    pub public: ibv_comp_channel,
    pub notices: Arc<Notices<usize>>,
}

/// A completion queue.
#[repr(C)]
pub struct Cq {
    pub public: ibv_cq,
    pub driver: Arc<Driver>,
    pub id: CqId,
    pub channel: Option<Arc<Notices<usize>>>,
    pub events: Arc<Notices<(Event, usize)>>,
    pub completions: Acknowledgements,
    pub asynchronous: Acknowledgements,
}

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    pub public: ibv_srq,
    pub driver: Arc<Driver>,
    pub id: SrqId,
    pub pieces: usize,
    pub events: Arc<Notices<(Event, usize)>>,
    pub asynchronous: Acknowledgements,
}

/// A queue pair.
#[repr(C)]
pub struct Qp {
    pub public: ibv_qp,
    pub driver: Arc<Driver>,
    pub events: Arc<Notices<(Event, usize)>>,
    pub asynchronous: Acknowledgements,
}

/// An address handle.
#[repr(C)]
pub struct Ah {
    pub public: ibv_ah,
    pub path: Path,
}

/// The object that begins with a C structure.
pub trait Object {
    /// What C knows of it.
    type Public;
}

macro_rules! objects {
    ($($object:ident $public:ident),* $(,)?) => {
        $(impl Object for $object {
            type Public = $public;
        })*
    };
}
objects! { Pd ibv_pd, Mr ibv_mr, Channel ibv_comp_channel, Cq ibv_cq, Srq ibv_srq, Qp ibv_qp, Ah ibv_ah }

/// Hands an object to C.
pub fn give<T: Object>(object: T) -> *mut T::Public {
    Box::into_raw(Box::new(object)).cast()
}

/// An object that C names.
///
/// # Safety
/// The pointer came from [`give`] for this type, and the object has not ended.
pub unsafe fn borrow<'a, T: Object>(pointer: *mut T::Public) -> &'a T {
    // SAFETY: the caller's promise; the public part is the first, so both have one address.
    unsafe { &*pointer.cast::<T>() }
}

/// An object that ends.
///
/// # Safety
/// As [`borrow`]; nobody uses it later.
pub unsafe fn take_back<T: Object>(pointer: *mut T::Public) -> Box<T> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(pointer.cast::<T>()) }
}

/// The open device whose part C knows this is.
///
/// # Safety
/// The pointer came from `ibv_open_device`, and the device is open.
pub unsafe fn context<'a>(pointer: *mut ibv_context) -> &'a Context {
    // SAFETY: C's part is the last member of `verbs`, which is the first of the object.
    let begin = unsafe { pointer.byte_sub(std::mem::offset_of!(verbs_context, context)) };
    // SAFETY: the caller's promise.
    unsafe { &*begin.cast::<Context>() }
}

/// A structure of C with zero everywhere.
pub fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` is implemented for structures of integers, pointers and optional functions, for which zero is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Structures of C for which zero is a value.
pub trait Plain {}
impl Plain for verbs_context {}
impl Plain for ibv_device {}
impl Plain for ibv_device_attr {}
impl Plain for ibv_cq {}
impl Plain for ibv_srq {}
impl Plain for ibv_qp {}
impl Plain for ibv_qp_attr {}
impl Plain for ibv_wc {}

/// Whether a call may begin that makes something; otherwise its error number.
pub fn admit(driver: &Driver, verb: Verb) -> Result<(), i32> {
    driver.lock().device.admit(verb).map_err(convert::errno)
}

/// Sets `errno`.
pub fn set_errno(number: i32) {
    // SAFETY: the function has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own place for this thread.
    unsafe { place.write(number) };
}

/// "No object": sets `errno`, and a null pointer.
pub fn refused<T>(number: i32) -> *mut T {
    set_errno(number);
    std::ptr::null_mut()
}
