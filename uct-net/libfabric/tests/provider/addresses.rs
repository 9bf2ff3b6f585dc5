//! Address vectors.

use std::ffi::CStr;
use std::ptr::null_mut;

use uct_fi::abi::*;

use crate::session::{Options, Session, call, close, vector_attr};

const FIRST: [u8; 16] = [2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
const SECOND: [u8; 16] = [2, 0, 0, 9, 127, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn an_address_has_one_index_and_comes_back() {
    let session = Session::new(Options::default());
    let index = session.insert(&FIRST);
    assert_ne!(index, session.own);
    assert_eq!(session.insert(&FIRST), index);
    assert_ne!(session.insert(&SECOND), index);

    let (mut found, mut length) = ([0xee_u8; 20], 20);
    assert_eq!(call!(session.vector, ops.lookup(index, found.as_mut_ptr().cast(), &raw mut length)), 0);
    assert_eq!((&found[..16], &found[16..], length), (&FIRST[..], &[0xee; 4][..], 16));
    let (mut found, mut length) = ([0xee_u8; 20], 8);
    assert_eq!(call!(session.vector, ops.lookup(index, found.as_mut_ptr().cast(), &raw mut length)), 0);
    assert_eq!((&found[..8], &found[8..], length), (&FIRST[..8], &[0xee; 12][..], 16));

    let mut indices = [index, index];
    assert_eq!(call!(session.vector, ops.remove(indices.as_mut_ptr(), 2, 0)), 0);
    assert_eq!(call!(session.vector, ops.remove(indices.as_mut_ptr(), 1, 0)), -EINVAL);
    let unknown = call!(session.vector, ops.lookup(index, found.as_mut_ptr().cast(), &raw mut length));
    assert_eq!(unknown, -EINVAL);
}

#[test]
fn what_is_no_address_is_counted_and_marked() {
    let session = Session::new(Options::default());
    let mut list = [FIRST, SECOND];
    list[1][0] = 99;
    let (mut indices, mut errors) = ([0; 2], [7; 2]);
    let insert = |flags, indices: *mut u64, context: *mut std::ffi::c_void| {
        call!(session.vector, ops.insert(list.as_ptr().cast(), 2, indices, flags, context))
    };
    assert_eq!(insert(FI_SYNC_ERR, indices.as_mut_ptr(), errors.as_mut_ptr().cast()), 1);
    assert_eq!((indices[1], errors), (FI_ADDR_NOTAVAIL, [0, EINVAL]));
    assert_eq!(insert(0, null_mut(), null_mut()), 1);
    assert_eq!(insert(1 << 41, null_mut(), null_mut()), -EBADFLAGS);
    let null = call!(session.vector, ops.insert(std::ptr::null(), 1, indices.as_mut_ptr(), 0, null_mut()));
    assert_eq!((null, indices[0]), (0, FI_ADDR_NOTAVAIL));
}

#[test]
fn addresses_have_names() {
    let session = Session::new(Options::default());
    let mut index = 0;
    let named = |node: &CStr, service: &CStr, index: *mut u64| {
        call!(session.vector, ops.insertsvc(node.as_ptr(), service.as_ptr(), index, 0, null_mut()))
    };
    assert_eq!(named(c"127.0.0.1", c"9", &raw mut index), 1);
    assert_eq!(session.insert(&FIRST), index);
    assert_eq!(named(c"127.0.0.1", c"no such service", &raw mut index), -ENODATA);

    let (mut text, mut length) = ([0x7f_i8; 40], 40);
    let address = FIRST.as_ptr().cast();
    let got = call!(session.vector, ops.straddr(address, text.as_mut_ptr(), &raw mut length));
    // SAFETY: the provider ended it with a zero.
    assert_eq!(unsafe { CStr::from_ptr(got) }, c"fi_sockaddr_in://127.0.0.1:9");
    assert_eq!(length, 29);
    let mut short = 5;
    assert_eq!(call!(session.vector, ops.straddr(address, text.as_mut_ptr(), &raw mut short)), text.as_ptr());
    // SAFETY: as above.
    assert_eq!((unsafe { CStr::from_ptr(text.as_ptr()) }, short), (c"fi_s", 29));
    let unknown = [99_u8; 16];
    let got = call!(session.vector, ops.straddr(unknown.as_ptr().cast(), text.as_mut_ptr(), &raw mut length));
    assert!(got.is_null());
}

#[test]
fn an_address_vector_leaves_bits_for_receive_contexts() {
    let session = Session::new(Options::default());
    let open = |bits| {
        let (mut vector, mut attr) = (null_mut(), vector_attr());
        attr.rx_ctx_bits = bits;
        let opened = call!(session.domain, ops.av_open(&raw mut attr, &raw mut vector, null_mut()));
        if opened == 0 {
            assert_eq!(close(vector.cast()), 0);
        }
        opened
    };
    assert_eq!([0, 8, -1, 64].map(open), [0, 0, -EINVAL, -EINVAL]);
}
