//! Tables of functions, each with one that refuses everything.

use std::ffi::{c_char, c_int};

use super::ENOSYS;

/// What a function returns that the provider does not offer.
pub trait Unsupported {
    const UNSUPPORTED: Self;
}

impl Unsupported for c_int {
    const UNSUPPORTED: c_int = -ENOSYS;
}

impl Unsupported for isize {
    const UNSUPPORTED: isize = -(ENOSYS as isize);
}

impl Unsupported for u64 {
    const UNSUPPORTED: u64 = 0;
}

impl Unsupported for *const c_char {
    const UNSUPPORTED: *const c_char = std::ptr::null();
}

/// Declares a table: a structure, the table `UNSUPPORTED` that others are overlaid on, and the types as text, for the test.
///
/// A slot is a function and never null, so that a table with an empty slot cannot be made.
macro_rules! operations {
    ($(#[$attribute:meta])* $name:ident {
        $($slot:ident: fn($($argument:ty),* $(,)?) -> $result:ty;)*
    }) => {
        $(#[$attribute])*
        #[repr(C)]
        pub struct $name {
            pub size: usize,
            $(pub $slot: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            /// Every slot returns ENOSYS.
            pub const UNSUPPORTED: Self = Self {
                size: size_of::<Self>(),
                $($slot: {
                    unsafe extern "C" fn unsupported($(_: $argument),*) -> $result {
                        <$result as crate::abi::Unsupported>::UNSUPPORTED
                    }
                    unsupported
                },)*
            };

            /// Name, types of the arguments and of the result, as written here.
            pub const SLOTS: &[(&str, &[&str], &str)] = &[
                $((stringify!($slot), &[$(stringify!($argument)),*], stringify!($result)),)*
            ];
        }
    };
}
pub(super) use operations;
