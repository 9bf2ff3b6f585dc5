//! The function that would be called without this library.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up when it is called first.
pub struct Next<F> {
    name: &'static str,
    found: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// That of this name, which ends with a NUL. `F` is its type.
    pub const fn new(name: &'static str) -> Next<F> {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        Next { name, found: AtomicPtr::new(std::ptr::null_mut()), function: PhantomData }
    }

    /// Calls it. -1 if there is none.
    pub fn call(&self, call: impl FnOnce(F) -> c_int) -> c_int {
        // SYNC: each thread that finds none looks by itself, and all find the same.
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            let Ok(name) = CStr::from_bytes_with_nul(self.name.as_bytes()) else { return -1 };
            // SAFETY: the name is a text.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            if found.is_null() {
                // SAFETY: the function has no conditions.
                let place = unsafe { libc::__errno_location() };
                // SAFETY: the C library's own place for this thread.
                unsafe { place.write(libc::ENOSYS) };
                return -1;
            }
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: it is the function of this name, whose type `F` is by the promise of who made this value; the sizes were compared.
        call(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    }
}
