//! The tables of a transport, made of its types: one guarded function a slot.
//!
//! Every slot turns raw arguments into safe ones, calls the trait, and turns the answer back. What the host guarantees (valid
//! pointers, one thread, ids below 32) is written in `uct-abi`; each SAFETY comment below names the part it leans on.

mod cm;
mod component;
mod ep;
mod iface;
mod md;

pub use cm::CmTables;
pub use component::{ComponentTables, TlTables};
pub(crate) use ep::EpTables;
pub(crate) use iface::IfaceTables;
pub(crate) use md::MdTables;

use std::slice;
use std::str;

use uct_abi::UctStr;

/// # Safety
/// `text` is UTF-8 as the boundary prescribes for every string, and outlives `'a`.
unsafe fn words<'a>(text: UctStr) -> &'a str {
    if text.length == 0 {
        return "";
    }
    // SAFETY: the caller's promise: `data` is readable for `length` bytes.
    let bytes = unsafe { slice::from_raw_parts(text.data, text.length) };
    str::from_utf8(bytes).unwrap_or("(not UTF-8)")
}

const fn text(words: &'static str) -> UctStr {
    UctStr { data: words.as_ptr(), length: words.len() }
}

/// # Safety
/// `data` is readable for `length` bytes for `'a`; null is taken for nothing.
unsafe fn bytes<'a>(data: *const u8, length: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data, length) }
}
