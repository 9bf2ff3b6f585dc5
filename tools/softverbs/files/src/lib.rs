//! The files of the kernel that programs look for beside a verbs device: for `LD_PRELOAD`, in front of the C library's functions.
//!
//! UCX uses no device without its character device file, and reads from sysfs what its GIDs are. This library answers for these
//! files of the software device, and passes every other call on. The C library's variables and its loader are all that it uses, since
//! it is called before anything else of a program runs.

mod answer;
mod next;

use std::ffi::{c_char, c_int};

use answer::{Answer, answer};
use next::Next;

/// A file that is a character device and can be opened by everyone.
const DEVICE: *const c_char = c"/dev/null".as_ptr();

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
type StatOfVersion = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat) -> c_int;
type Access = unsafe extern "C" fn(*const c_char, c_int) -> c_int;

/// The C library's functions of two names, which are the same where a file's size has 64 bits.
macro_rules! files {
    ($($open:ident)* ; $($openat:ident)* ; $($stat:ident)* ; $($xstat:ident)* ; $($access:ident)*) => {
        $(
            /// # Safety
            /// As that of the C library. `mode` is looked at only if the flags say that there is one: it is passed as the first of
            /// variable arguments is, on each processor that Linux has 64 bits on.
            // SAFETY: in front of the C library's function of this name, with its meaning.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
                static NEXT: Next<Open> = Next::new(concat!(stringify!($open), "\0"));
                // SAFETY: the caller's promise.
                match unsafe { answer(path) } {
                    Some(Answer::Text(text)) => text.open(),
                    // SAFETY: the type is that of the C library, and the path a text.
                    Some(Answer::Device) => NEXT.call(|open| unsafe { open(DEVICE, flags, mode) }),
                    // SAFETY: as above, by the caller's promise.
                    None => NEXT.call(|open| unsafe { open(path, flags, mode) }),
                }
            }
        )*
        $(
            /// # Safety
            /// As that of the C library; of `mode` see `open`.
            // SAFETY: in front of the C library's function of this name, with its meaning.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $openat(
                directory: c_int,
                path: *const c_char,
                flags: c_int,
                mode: libc::mode_t,
            ) -> c_int {
                static NEXT: Next<OpenAt> = Next::new(concat!(stringify!($openat), "\0"));
                // SAFETY: the caller's promise.
                match unsafe { answer(path) } {
                    Some(Answer::Text(text)) => text.open(),
                    // SAFETY: the type is that of the C library, and the path a text.
                    Some(Answer::Device) => NEXT.call(|open| unsafe { open(directory, DEVICE, flags, mode) }),
                    // SAFETY: as above, by the caller's promise.
                    None => NEXT.call(|open| unsafe { open(directory, path, flags, mode) }),
                }
            }
        )*
        $(
            /// # Safety
            /// As that of the C library.
            // SAFETY: in front of the C library's function of this name, with its meaning.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $stat(path: *const c_char, place: *mut libc::stat) -> c_int {
                static NEXT: Next<Stat> = Next::new(concat!(stringify!($stat), "\0"));
                // SAFETY: the caller's promise.
                match unsafe { answer(path) } {
                    // SAFETY: the caller's promise.
                    Some(Answer::Text(text)) => unsafe { text.stat(place) },
                    // SAFETY: the type is that of the C library, and the path a text.
                    Some(Answer::Device) => NEXT.call(|stat| unsafe { stat(DEVICE, place) }),
                    // SAFETY: as above, by the caller's promise.
                    None => NEXT.call(|stat| unsafe { stat(path, place) }),
                }
            }
        )*
        $(
            /// # Safety
            /// As that of the C library.
            // SAFETY: in front of the C library's function of this name, with its meaning.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $xstat(
                version: c_int,
                path: *const c_char,
                place: *mut libc::stat,
            ) -> c_int {
                static NEXT: Next<StatOfVersion> = Next::new(concat!(stringify!($xstat), "\0"));
                // SAFETY: the caller's promise.
                match unsafe { answer(path) } {
                    // SAFETY: the caller's promise.
                    Some(Answer::Text(text)) => unsafe { text.stat(place) },
                    // SAFETY: the type is that of the C library, and the path a text.
                    Some(Answer::Device) => NEXT.call(|stat| unsafe { stat(version, DEVICE, place) }),
                    // SAFETY: as above, by the caller's promise.
                    None => NEXT.call(|stat| unsafe { stat(version, path, place) }),
                }
            }
        )*
        $(
            /// # Safety
            /// As that of the C library.
            // SAFETY: in front of the C library's function of this name, with its meaning.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $access(path: *const c_char, mode: c_int) -> c_int {
                static NEXT: Next<Access> = Next::new(concat!(stringify!($access), "\0"));
                // SAFETY: the caller's promise.
                match unsafe { answer(path) } {
                    // SAFETY: the type is that of the C library, and the path a text.
                    Some(_) => NEXT.call(|access| unsafe { access(DEVICE, mode) }),
                    // SAFETY: as above, by the caller's promise.
                    None => NEXT.call(|access| unsafe { access(path, mode) }),
                }
            }
        )*
    };
}

files! { open open64; openat openat64; stat stat64; __xstat __xstat64; access }
