//! Atomics, cells, locks and threads that loom can take over.
//!
//! Used by every module whose data crosses threads. Built on std, or on loom when built with `--cfg loom`. Raw atomics
//! appear in this workspace behind this module only, so that a model of any protocol is a matter of building it.

/// std's atomics whatever the build.
///
/// For statics (loom's atomics cannot be made in a constant) and for memory that other processes map. Everything
/// else takes [`atomic`], which loom can see.
pub mod fixed {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    };
}

#[cfg(not(loom))]
mod chosen {
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

    /// Atomic integers, booleans and pointers.
    pub mod atomic {
        pub use std::sync::atomic::{
            AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
            AtomicUsize, Ordering, fence,
        };
    }

    /// Spinning.
    pub mod hint {
        pub use std::hint::spin_loop;
    }

    /// Threads.
    pub mod thread {
        pub use std::thread::{JoinHandle, spawn, yield_now};
    }

    /// Interior mutability.
    pub mod cell {
        /// `std::cell::UnsafeCell` with loom's way of access, so that a model sees every use.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

        impl<T> UnsafeCell<T> {
            /// A cell that holds `value`.
            pub const fn new(value: T) -> UnsafeCell<T> {
                UnsafeCell(std::cell::UnsafeCell::new(value))
            }

            /// The value.
            pub fn into_inner(self) -> T {
                self.0.into_inner()
            }
        }

        impl<T: ?Sized> UnsafeCell<T> {
            /// Calls `read` with a pointer that may be read from; no thread writes meanwhile.
            #[inline]
            pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
                read(self.0.get())
            }

            /// Calls `write` with a pointer that may be written to; no other thread reads or writes meanwhile.
            #[inline]
            pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
                write(self.0.get())
            }
        }
    }
}

#[cfg(loom)]
mod chosen {
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock};

    /// Atomic integers, booleans and pointers.
    pub mod atomic {
        pub use loom::sync::atomic::{
            AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
            AtomicUsize, Ordering, fence,
        };
    }

    /// Spinning.
    pub mod hint {
        pub use loom::hint::spin_loop;
    }

    /// Threads.
    pub mod thread {
        pub use loom::thread::{JoinHandle, spawn, yield_now};
    }

    /// Interior mutability.
    pub mod cell {
        pub use loom::cell::UnsafeCell;
    }
}

pub use chosen::*;
