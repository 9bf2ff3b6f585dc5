//! Tables of functions of a shared library that is loaded at run time: the macro declares a table, fills it and lists its signatures.
//!
//! For libibverbs here, and for librdmacm in the crate `uct-rdmacm`. Built on `libloading`.

use std::error::Error;

use libloading::os::unix::{Library as Handle, RTLD_LAZY, RTLD_LOCAL};

/// Why a table cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryError {
    /// No library of the given names can be loaded.
    Missing {
        /// The loader's message.
        reason: String,
    },
    /// The library lacks a function.
    Symbol {
        /// File name of the library.
        library: String,
        /// The function that is missing.
        symbol: &'static str,
        /// The loader's message.
        reason: String,
    },
}

/// A loaded library. It is never unloaded, because libraries of this kind keep thread-local state and open files.
pub struct Library {
    handle: &'static Handle,
    name: String,
}

impl Library {
    /// Loads the first library of these file names that there is.
    ///
    /// # Safety
    /// The library's initialisers may run at any time and in any thread.
    ///
    /// # Errors
    /// [`LibraryError::Missing`], with a reason for each name.
    pub unsafe fn open(names: &[&str]) -> Result<Library, LibraryError> {
        let mut reasons = Vec::new();
        for name in names {
            // SAFETY: the caller's promise.
            match unsafe { Handle::open(Some(*name), RTLD_LAZY | RTLD_LOCAL) } {
                Ok(handle) => {
                    return Ok(Library { handle: Box::leak(Box::new(handle)), name: (*name).to_owned() });
                }
                Err(error) => reasons.push(innermost(&error)),
            }
        }
        Err(LibraryError::Missing { reason: reasons.join("; ") })
    }

    /// The file name that it was loaded by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its functions.
    ///
    /// # Safety
    /// `F` is the function's type.
    ///
    /// # Errors
    /// [`LibraryError::Symbol`].
    pub unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, LibraryError> {
        // SAFETY: the caller's promise; the library is never unloaded.
        let function = unsafe { self.handle.get::<F>(symbol.as_bytes()) };
        function.map(|function| *function).map_err(|error| LibraryError::Symbol {
            library: self.name.clone(),
            symbol,
            reason: innermost(&error),
        })
    }
}

/// The message of the system's loader, which libloading wraps.
fn innermost(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

/// Declares a table of functions of a library, with `TABLE::of(&Library)` to fill it and `TABLE::SIGNATURES`. A library that lacks a
/// function is refused, except for those in `optional`.
///
/// With `unsafe extern "C"` the caller promises that the types are those of the library's header.
#[macro_export]
macro_rules! function_table {
    (
        $(#[$meta:meta])*
        pub struct $table:ident;
        unsafe extern "C" {
            $($field:ident: $symbol:literal fn($($arg:ty),*) $(-> $ret:ty)?;)*
        }
        $(optional {
            $($(#[$doc:meta])* $maybe:ident: $name:literal fn($($maybe_arg:ty),*) $(-> $maybe_ret:ty)?;)*
        })?
    ) => {
        $(#[$meta])*
        #[allow(missing_docs)]
        pub struct $table {
            $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $($($(#[$doc])* pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) $(-> $maybe_ret)?>,)*)?
        }

        impl $table {
            /// Name, arguments and result of each required function, as written here, for the check against the C header.
            pub const SIGNATURES: &'static [(&'static str, &'static [&'static str], &'static str)] = &[
                $(($symbol, &[$(stringify!($arg)),*], concat!($(stringify!($ret))?))),*
            ];

            /// The table of this library.
            ///
            /// # Errors
            /// The library lacks a required function.
            pub fn of(library: &$crate::library::Library) -> Result<$table, $crate::library::LibraryError> {
                Ok($table {
                    // SAFETY: the promise of who declared the table.
                    $($field: unsafe { library.function($symbol) }?,)*
                    $($($maybe: {
                        let name = $name;
                        // SAFETY: as above.
                        unsafe { library.function(name) }.ok()
                    },)*)?
                })
            }
        }
    };
}
