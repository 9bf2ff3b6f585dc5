//! What programs hold: a head that C knows, and the provider's own behind it.
//!
//! Built on `engine` and `info`. An object refers to those that it was made from and is bound to, which cannot be closed before it.

pub mod address_vector;
pub mod completion_queue;
pub mod counter;
pub mod domain;
pub mod endpoint;
pub mod event_queue;
pub mod fabric;
pub mod name;
pub mod region;
mod setup;
pub mod trywait;
mod waiting;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::*;
use crate::boundary::{Caller, Outcome, guarded};
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
struct Object<T: Held> {
    head: T::Head,
    held: Arc<T>,
}

impl Caller {
    /// Makes an object, which is the program's until it is closed.
    fn give<T: Held>(&self, held: T, context: *mut c_void, target: *mut *mut T::Head) -> Outcome {
        let head = held.head(fid { fclass: T::CLASS, context, ops: T::OPS });
        let object = Box::into_raw(Box::new(Object { head, held: Arc::new(held) }));
        let stored = self.put(target, object.cast());
        if stored.is_err() {
            // SAFETY: made above, and nobody knows it.
            drop(unsafe { Box::from_raw(object) });
        }
        stored
    }

    /// The provider's part of an object that the program has not closed.
    #[inline]
    pub fn held<T: Held>(&self, object: *const fid) -> Outcome<&Arc<T>> {
        if self.at(object)?.fclass != T::CLASS {
            return Err(Errno::INVALID);
        }
        // Only `give` makes objects of this class, in this form.
        Ok(&self.at(object.cast::<Object<T>>())?.held)
    }

    /// Ends an object that nothing refers to: the program uses it no more after a success.
    fn take<T: Held>(&self, object: *mut fid) -> Outcome<T> {
        if Arc::strong_count(self.held::<T>(object)?) > 1 {
            return Err(Errno::BUSY);
        }
        // SAFETY: `give` made it, and the program gives it back.
        let object = unsafe { Box::from_raw(object.cast::<Object<T>>()) };
        Arc::into_inner(object.held).ok_or(Errno::BUSY)
    }
}

/// Defines functions that C calls for an object. In each body the first name is the program that calls, and that of the object is the
/// provider's part of it.
macro_rules! methods {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident(
            $caller:ident, $object:ident: *mut $head:ty => $held:ty $(, $argument:ident: $type:ty)* $(,)?
        ) -> $result:ty $body:block
    )*) => {
        $(
            $(#[$attribute])*
            $visibility unsafe extern "C" fn $name($object: *mut $head, $($argument: $type),*) -> $result {
                // SAFETY: libfabric passes null, or what its program has given it.
                unsafe {
                    $crate::boundary::guarded(|$caller| {
                        let $object = $caller.held::<$held>($object.cast())?;
                        $body
                    })
                }
            }
        )*
    };
}
pub(crate) use methods;

/// Ends an object that the program closes.
pub unsafe extern "C" fn close<T: Held>(object: *mut fid) -> c_int {
    // SAFETY: libfabric passes null, or an object of the program's.
    unsafe { guarded(|caller| caller.take::<T>(object).map(|_| 0)) }
}
