//! Which slots each table of the boundary has, which of them a plugin must fill, and what replaces the others.
//!
//! Used by [`overlay`](super::overlay), and endpoints in a child of a fork. Built on `uct-abi`. A slot that is added to a table
//! does not compile before it is listed here.

use std::mem::offset_of;

use uct_abi::{
    UCT_ERR_INVALID_PARAM, UCT_ERR_UNSUPPORTED, UctCmOps, UctComponentOps, UctEpOps, UctIfaceOps, UctMdOps,
    UctPlugin, UctStatus, UctStr, UctTlOps,
};

/// A table that a plugin hands over.
///
/// # Safety
/// The type is `repr(C)`, consists of integers, pointers and `Option`s of functions only (so that every pattern of
/// bits, and zero in particular, is a value of it), and has its `size: usize` at `SIZE_OFFSET`.
pub(super) unsafe trait Table: Copy + 'static {
    /// The name of the type, for messages.
    const NAME: &'static str;
    /// Where `size` is, in bytes.
    const SIZE_OFFSET: usize;
    /// The end of the last mandatory slot, in bytes: a table whose size is smaller is refused.
    const MINIMUM: usize;

    /// The first mandatory slot that is null, zero or empty.
    fn missing_slot(&self) -> Option<&'static str>;

    /// Puts a function that returns `UCT_ERR_UNSUPPORTED` into each optional slot that is null.
    fn fill(&mut self);
}

macro_rules! tables {
    ($($type:ident {
        mandatory: $($mandatory:ident)*;
        optional: $($optional:ident)*;
        data: $($data:ident)*;
    })*) => {
        $(
        // SAFETY: the type is one of `uct-abi`'s tables, which are `repr(C)` and hold what the trait asks for; the
        // offset is the compiler's.
        unsafe impl Table for $type {
            const NAME: &'static str = stringify!($type);
            const SIZE_OFFSET: usize = offset_of!($type, size);
            const MINIMUM: usize = greatest(&[
                $(offset_of!($type, $mandatory) + size_behind::<$type, _>(|table| &table.$mandatory)),*
            ]);

            fn missing_slot(&self) -> Option<&'static str> {
                $(if self.$mandatory.is_absent() {
                    return Some(stringify!($mandatory));
                })*
                None
            }

            fn fill(&mut self) {
                // Names every field, so that a new one has to be listed.
                let $type { size, $($mandatory: _,)* $($optional,)* $($data: _,)* } = self;
                *size = size_of::<$type>();
                $($optional.get_or_insert(Slot::UNSUPPORTED);)*
            }
        }
        )*
    };
}

tables! {
    UctPlugin {
        mandatory: name components component_count;
        optional: ;
        data: magic abi_major abi_minor version config config_count init;
    }
    UctComponentOps {
        mandatory: name md_ops query_mds md_open;
        optional: ;
        data: tls tl_count cm_ops;
    }
    UctMdOps {
        mandatory: close query;
        optional: mem_reg mem_dereg mem_alloc mem_free mem_advise mkey_pack rkey_unpack rkey_release rkey_ptr
            rkey_compare rkey_window;
        data: ;
    }
    UctCmOps {
        mandatory: open close query event_fd progress listen listener_address listener_destroy connect send accept reject
            notify disconnect ep_addresses ep_destroy;
        optional: diagnose;
        data: ;
    }
    UctTlOps {
        mandatory: name iface_ops ep_ops query_devices iface_open;
        optional: ;
        data: ;
    }
    UctIfaceOps {
        mandatory: close query get_device_address get_address is_reachable progress ep_create;
        optional: release event_fd event_arm flush fence counters ep_adopt;
        data: ;
    }
    UctEpOps {
        mandatory: destroy;
        optional: am_short am_short_iov am_bcopy am_zcopy put_short put_bcopy put_zcopy get_short get_bcopy get_zcopy
            atomic32_post atomic64_post atomic32_fetch atomic64_fetch atomic32_cswap atomic64_cswap pending_add
            pending_purge flush fence check get_address connect_to_ep cm_token;
        data: ;
    }
}

pub(super) const fn greatest(values: &[usize]) -> usize {
    let mut greatest = 0;
    let mut index = 0;
    while index < values.len() {
        if values[index] > greatest {
            greatest = values[index];
        }
        index += 1;
    }
    greatest
}

const fn size_behind<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Whether a mandatory slot was left out.
pub(super) trait Presence {
    fn is_absent(&self) -> bool;
}

impl<F> Presence for Option<F> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T> Presence for *const T {
    fn is_absent(&self) -> bool {
        self.is_null()
    }
}

impl Presence for usize {
    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl Presence for UctStr {
    fn is_absent(&self) -> bool {
        self.data.is_null() || self.length == 0
    }
}

/// The type of a slot, with functions that replace a plugin's.
pub(crate) trait Slot {
    /// Where a plugin offers none.
    const UNSUPPORTED: Self;
    /// In a child of a fork.
    const FORKED: Self;
}

/// What these functions return.
trait Answer {
    fn of(status: UctStatus) -> Self;
}

impl Answer for UctStatus {
    fn of(status: UctStatus) -> UctStatus {
        status
    }
}

impl Answer for isize {
    fn of(status: UctStatus) -> isize {
        status as isize
    }
}

impl Answer for () {
    fn of(_: UctStatus) {}
}

macro_rules! stubs {
    ($($stub:ident($($argument:ident)*))*) => {
        $(
        unsafe extern "C" fn $stub<const STATUS: UctStatus, $($argument,)* R: Answer>($(_: $argument),*) -> R {
            R::of(STATUS)
        }

        impl<$($argument,)* R: Answer> Slot for unsafe extern "C" fn($($argument),*) -> R {
            const UNSUPPORTED: Self = $stub::<UCT_ERR_UNSUPPORTED, $($argument,)* R>;
            const FORKED: Self = $stub::<UCT_ERR_INVALID_PARAM, $($argument,)* R>;
        }
        )*
    };
}

stubs! {
    refuse1(A)
    refuse2(A B)
    refuse3(A B C)
    refuse4(A B C D)
    refuse5(A B C D E)
    refuse6(A B C D E F)
    refuse7(A B C D E F G)
    refuse8(A B C D E F G H)
}
