//! A pool of objects, for code without raw pointers.
//!
//! For objects that are expensive to make and used again as they are. Built on `Mpool`. Costs what `Mpool` costs.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{ElementHooks, HeapChunks, Mpool, MpoolError, MpoolParams};

/// A pool whose elements are objects, made once each by a function and used over and over.
///
/// ```
/// use ucs::datastruct::mpool::{MpoolParams, ObjectPool};
///
/// let pool = ObjectPool::new(ObjectPool::<Vec<u8>>::params("scratch"), || Vec::with_capacity(4096))?;
/// let mut scratch = pool.get().expect("no limit was set");
/// scratch.clear();
/// scratch.extend_from_slice(b"reused");
/// # Ok::<(), ucs::datastruct::mpool::MpoolError>(())
/// ```
pub struct ObjectPool<T> {
    pool: Mpool,
    objects: PhantomData<T>,
}

impl<T: 'static> ObjectPool<T> {
    /// Parameters for objects of this type: size and alignment are right, the rest is by default.
    pub fn params(name: impl Into<String>) -> MpoolParams {
        MpoolParams { alignment: align_of::<T>(), ..MpoolParams::new(name, size_of::<T>().max(1)) }
    }

    /// A pool whose objects `make` makes, as chunks are allocated. `params` come from [`ObjectPool::params`]: the
    /// size may be raised, and the alignment with an offset of 0.
    pub fn new(params: MpoolParams, make: impl Fn() -> T + 'static) -> Result<ObjectPool<T>, MpoolError> {
        let refuse = |parameter, value: usize, expected| MpoolError::Parameter {
            pool: params.name.clone(),
            parameter,
            value: value.to_string(),
            expected,
        };
        if params.elem_size < size_of::<T>() {
            let expected = format!("at least the {} bytes of an object", size_of::<T>());
            return Err(refuse("elem_size", params.elem_size, expected));
        }
        if params.alignment < align_of::<T>() {
            let expected = format!("at least the {} that an object needs", align_of::<T>());
            return Err(refuse("alignment", params.alignment, expected));
        }
        if params.align_offset != 0 {
            return Err(refuse("align_offset", params.align_offset, "0 for objects".into()));
        }
        let hooks = Objects { make, objects: PhantomData };
        Ok(ObjectPool { pool: Mpool::new(params, HeapChunks, hooks)?, objects: PhantomData })
    }

    /// An object as its last user left it; the one returned last. `None` as for [`Mpool::get`].
    #[inline]
    pub fn get(&self) -> Option<Pooled<'_, T>> {
        let object = self.pool.get()?.cast::<T>();
        Some(Pooled { object, pool: self })
    }

    /// Takes back an object that went through [`Pooled::into_raw`].
    ///
    /// # Safety
    ///
    /// `object` came from `into_raw` of an object of this very pool, once, and no other code uses it.
    #[inline]
    pub unsafe fn from_raw(&self, object: NonNull<T>) -> Pooled<'_, T> {
        Pooled { object, pool: self }
    }

    /// The pool beneath, for its counts.
    pub fn mpool(&self) -> &Mpool {
        &self.pool
    }
}

impl<T> fmt::Debug for ObjectPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectPool").field(&self.pool).finish()
    }
}

/// An object out of an [`ObjectPool`]; goes back when dropped.
pub struct Pooled<'a, T> {
    object: NonNull<T>,
    pool: &'a ObjectPool<T>,
}

impl<T> Pooled<'_, T> {
    /// The bare object, for the way through a C interface. It is out of the pool until
    /// [`ObjectPool::from_raw`] takes it back.
    #[inline]
    pub fn into_raw(self) -> NonNull<T> {
        let object = self.object;
        std::mem::forget(self);
        object
    }
}

impl<T> Deref for Pooled<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the init hook made the object, and it is out of the pool for this alone.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Pooled<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and this is borrowed mutably.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for Pooled<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it came from this pool, no other code uses it, and this ends it.
        unsafe { self.pool.pool.put(self.object.cast()) };
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Makes the objects and drops them.
struct Objects<T, F> {
    make: F,
    objects: PhantomData<T>,
}

impl<T, F: Fn() -> T> ElementHooks for Objects<T, F> {
    unsafe fn init(&self, element: NonNull<u8>, _: *mut c_void) {
        // SAFETY: `ObjectPool::new` has checked size and alignment, and the element is exclusive.
        unsafe { element.cast::<T>().write((self.make)()) };
    }

    unsafe fn cleanup(&self, element: NonNull<u8>) {
        // SAFETY: `init` made the object, it is in the free list, and this is its end.
        unsafe { element.cast::<T>().drop_in_place() };
    }
}
