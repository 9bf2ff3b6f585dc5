//! Registrations of memory whose target side is software, as a memory domain returns them.

use std::ptr::NonNull;
use std::sync::Arc;

use super::{Allocation, MemoryAccess, Region, Regions, access};
use crate::failure::Failure;

/// A live region, with the memory itself if it was allocated. For [`Md::Memh`](crate::Md::Memh). When it is dropped the region ends, and
/// nothing accesses it any more.
pub struct Registration {
    region: Arc<Region>,
    /// Freed behind `drop`, which waits for accesses.
    _allocation: Option<Allocation>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.region.end();
        access::wait_for_all();
    }
}

impl Registration {
    /// What was registered.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

/// What a memory domain does with its table.
impl Regions {
    /// Registers memory; for [`Md::register`](crate::Md::register).
    ///
    /// # Errors
    /// The memory wraps around the end of the address space; the table is full.
    ///
    /// # Safety
    /// The memory stays valid for reads and writes until the registration has been dropped, and nothing holds a reference to it meanwhile.
    pub unsafe fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Registration, Failure> {
        // SAFETY: the caller's promise; the region ends when the registration is dropped.
        let region = unsafe { self.insert(address, length, access) }?;
        Ok(Registration { region, _allocation: None })
    }

    /// Allocates zeroed memory and registers it; for [`Md::allocate`](crate::Md::allocate).
    ///
    /// # Errors
    /// There is no memory; the table is full.
    pub fn allocate(
        &self,
        length: usize,
        access: MemoryAccess,
    ) -> Result<(NonNull<u8>, usize, Registration), Failure> {
        let allocation = Allocation::new(length)?;
        let (address, length) = (allocation.address(), allocation.length());
        // SAFETY: the allocation is kept until the region has ended.
        let region = unsafe { self.insert(address, length, access) }?;
        Ok((address, length, Registration { region, _allocation: Some(allocation) }))
    }

    /// Ends a registration, and frees the memory if it was allocated; for [`Md::deregister`](crate::Md::deregister) and
    /// [`Md::free`](crate::Md::free).
    pub fn deregister(&self, registration: Registration) {
        self.forget(&registration.region);
    }
}
