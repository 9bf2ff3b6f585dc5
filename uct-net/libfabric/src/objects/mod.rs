//! What programs hold: a head that C knows, and the provider's own behind it.
//!
//! Built on `engine` and `info`. An object refers to those that it was made from and is bound to, which cannot be closed before it.

pub mod event_queue;
pub mod fabric;

use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::*;
use crate::boundary::{Outcome, put};
use crate::engine::Errno;

/// The provider's own part of an object.
pub trait Held: Sized {
    /// The head.
    type Head;
    /// The number of the class.
    const CLASS: usize;
    /// What every object answers.
    const OPS: &'static fi_ops;
    /// The head, around the part that all classes have.
    fn head(&self, fid: fid) -> Self::Head;
}

/// An object as C holds it. C's head is at its beginning, and the class is at the beginning of that.
#[repr(C)]
pub struct Object<T: Held> {
    head: T::Head,
    held: Arc<T>,
}

/// Makes an object, stores its address for the program, and leaves it to the program until it is closed.
///
/// # Safety
/// `target` is null or valid for a write.
pub unsafe fn give<T: Held>(held: T, context: *mut c_void, target: *mut *mut T::Head) -> Outcome {
    let head = held.head(fid { fclass: T::CLASS, context, ops: T::OPS });
    let object = Box::into_raw(Box::new(Object { head, held: Arc::new(held) }));
    // SAFETY: the caller's promise.
    let stored = unsafe { put(target, object.cast()) };
    if stored.is_err() {
        // SAFETY: made above, and nobody knows it.
        drop(unsafe { Box::from_raw(object) });
    }
    stored
}

/// The provider's part of an object of C's.
///
/// # Safety
/// The pointer is null or an object that the program has not closed, and does not close during `'a`.
#[inline]
pub unsafe fn held<'a, T: Held>(object: *const fid) -> Outcome<&'a Arc<T>> {
    // SAFETY: the caller's promise.
    match unsafe { object.as_ref() } {
        Some(head) if head.fclass == T::CLASS => {}
        _ => return Err(Errno::INVALID),
    }
    // SAFETY: only `give` makes objects of this class, in this form.
    let object = unsafe { &*object.cast::<Object<T>>() };
    Ok(&object.held)
}

/// Ends an object that nothing refers to.
///
/// # Safety
/// As `held`; after a success the program does not use the object any more.
pub unsafe fn take<T: Held>(object: *mut fid) -> Outcome<T> {
    // SAFETY: the caller's promise.
    let held = unsafe { held::<T>(object) }?;
    if Arc::strong_count(held) > 1 {
        return Err(Errno::BUSY);
    }
    // SAFETY: `give` made it, and the program gives it back.
    let object = unsafe { Box::from_raw(object.cast::<Object<T>>()) };
    Arc::into_inner(object.held).ok_or(Errno::BUSY)
}

/// Defines functions that C calls for an object. In each body the name of the object is the provider's part of it.
macro_rules! methods {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident(
            $object:ident: *mut $head:ty => $held:ty $(, $argument:ident: $type:ty)* $(,)?
        ) -> $result:ty $body:block
    )*) => {
        $(
            $(#[$attribute])*
            $visibility unsafe extern "C" fn $name($object: *mut $head, $($argument: $type),*) -> $result {
                $crate::boundary::guarded(|| {
                    // SAFETY: libfabric's contract: an object of the program's that it has not closed.
                    let $object = unsafe { $crate::objects::held::<$held>($object.cast()) }?;
                    $body
                })
            }
        )*
    };
}
pub(crate) use methods;
