//! What `fi_getinfo` answers.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use uct_fi::abi::*;

use crate::session::{Hints, find};

#[test]
fn the_provider_has_its_name_and_a_version_that_every_program_accepts() {
    let provider = uct_fi::fi_prov_ini();
    // SAFETY: it lives as long as the process.
    let fields = unsafe { &*provider };
    // SAFETY: as above.
    assert_eq!(unsafe { CStr::from_ptr(fields.name) }, c"uct");
    assert_eq!(fields.fi_version, version(2, 99));
    assert_eq!(uct_fi::fi_prov_ini(), provider);
}

#[test]
fn without_hints_everything_is_offered() {
    let info = find(version(1, 17), c"127.0.0.1".as_ptr(), FI_SOURCE, null()).expect("an offer");
    let all = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE;
    assert_eq!(info.get().caps & all, all);
    assert_eq!(info.get().addr_format, FI_SOCKADDR_IN);
    assert_eq!(info.get().src_addrlen, 16);
    assert_eq!(info.endpoint().r#type, FI_EP_RDM);
    assert_eq!(info.domain().mr_mode, 0);
    assert!(info.fabric().prov_name.is_null(), "libfabric names the provider");
    for name in [info.fabric().name, info.domain().name] {
        // SAFETY: the provider made the string.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"uct");
    }
}

/// What the programs that libfabric.md lists ask for.
#[test]
fn what_programs_ask_for_is_offered_as_they_asked() {
    let mut hints = Hints::new();
    hints.info.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_REMOTE_CQ_DATA;
    hints.info.mode = u64::MAX;
    hints.endpoint.r#type = FI_EP_RDM;
    hints.transmit.msg_order = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_WAR;
    hints.endpoint.max_order_war_size = 8;
    hints.transmit.op_flags = FI_DELIVERY_COMPLETE;
    hints.domain.mr_mode = !3;
    hints.domain.mr_key_size = 2;
    hints.domain.cq_data_size = 4;
    hints.domain.threading = 3;
    hints.domain.data_progress = FI_PROGRESS_MANUAL;
    hints.domain.av_type = FI_AV_MAP;
    let info = hints.find().expect("an offer");
    assert_eq!(info.get().caps & FI_DIRECTED_RECV, 0, "only those that ask for it get it");
    assert_eq!(info.get().mode, 0);
    assert_eq!(info.transmit().op_flags, FI_DELIVERY_COMPLETE);
    let domain = info.domain();
    assert_eq!((domain.mr_mode, domain.threading, domain.av_type), (0, 3, FI_AV_MAP));
    assert_eq!(domain.data_progress, FI_PROGRESS_MANUAL);
    assert!(domain.mr_key_size >= 8 && domain.cq_data_size >= 4);

    let mut hints = Hints::new();
    hints.info.caps = FI_RMA | FI_READ;
    let caps = hints.find().expect("an offer").get().caps;
    assert_eq!(caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_MSG | FI_SEND), FI_READ);
}

#[test]
fn programs_that_know_only_basic_and_scalable_memory_get_scalable() {
    let mode = |version, asked| {
        let mut hints = Hints::new();
        hints.domain.mr_mode = asked;
        hints.find_with(version, FI_SOURCE).map(|info| info.domain().mr_mode)
    };
    assert_eq!(mode(version(1, 4), 0), Ok(FI_MR_SCALABLE));
    assert_eq!(mode(version(1, 4), FI_MR_BASIC), Err(-ENODATA));
    assert_eq!(mode(version(1, 17), FI_MR_SCALABLE), Ok(FI_MR_SCALABLE));
    assert_eq!(mode(version(1, 17), FI_MR_BASIC), Err(-ENODATA));
}

#[test]
fn what_is_not_there_is_refused() {
    type Change = fn(&mut Hints);
    let changes: [(&str, Change); 24] = [
        ("message endpoints", |hints| hints.endpoint.r#type = FI_EP_MSG),
        ("a capability", |hints| hints.info.caps = FI_MSG | 1 << 5),
        ("a fence", |hints| hints.info.caps = FI_MSG | FI_FENCE),
        ("a capability of transmits that was not asked for", |hints| {
            hints.info.caps = FI_MSG;
            hints.transmit.caps = FI_TAGGED;
        }),
        ("a capability of receives", |hints| hints.receive.caps = 1 << 5),
        ("default flags", |hints| hints.transmit.op_flags = 1 << 30),
        ("default flags of receives", |hints| hints.receive.op_flags = FI_PEEK),
        ("an order of completions", |hints| hints.transmit.comp_order = 1),
        ("an order of receives", |hints| hints.receive.msg_order = 1 << 20),
        ("a long inject", |hints| hints.transmit.inject_size = 1 << 30),
        ("many buffers", |hints| hints.receive.iov_limit = 5),
        ("many remote buffers", |hints| hints.transmit.rma_iov_limit = 2),
        ("a prefix", |hints| hints.endpoint.msg_prefix_size = 8),
        ("an endless message", |hints| hints.endpoint.max_msg_size = usize::MAX),
        ("a shared context", |hints| hints.endpoint.rx_ctx_cnt = usize::MAX),
        ("a protocol", |hints| hints.endpoint.protocol = 1),
        ("a version of the protocol", |hints| hints.endpoint.protocol_version = 9),
        ("a long key", |hints| hints.domain.mr_key_size = 16),
        ("much data", |hints| hints.domain.cq_data_size = 16),
        ("a key of the job", |hints| hints.domain.auth_key_size = 8),
        ("a type of address vectors", |hints| hints.domain.av_type = 9),
        ("a form of addresses", |hints| hints.info.addr_format = 9),
        ("another fabric", |hints| hints.fabric.name = c"eth0".as_ptr().cast_mut()),
        ("another domain", |hints| hints.domain.name = c"eth0".as_ptr().cast_mut()),
    ];
    for (what, change) in changes {
        let mut hints = Hints::new();
        change(&mut hints);
        assert_eq!(hints.find().err(), Some(-ENODATA), "{what}");
    }
    let core_only = Hints::new().find_with(version(1, 17), FI_SOURCE | OFI_CORE_PROV_ONLY);
    assert_eq!(core_only.err(), Some(-ENODATA), "a layer of libfabric");
}

#[test]
fn addresses_come_from_words_or_hints() {
    let peer = find(version(1, 17), c"127.0.0.1".as_ptr(), 0, null()).expect("an offer");
    assert_eq!((peer.get().src_addrlen, peer.get().dest_addrlen), (16, 16));
    let nothing = find(version(1, 17), null(), FI_PROV_ATTR_ONLY, null()).expect("an offer");
    assert_eq!((nothing.get().src_addrlen, nothing.get().dest_addrlen), (0, 0));

    let mut hints = Hints::new();
    let mut address = [2, 0, 0x1b, 0x58, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0_u8];
    hints.info.src_addr = address.as_mut_ptr().cast();
    hints.info.src_addrlen = address.len();
    let own = hints.find_with(version(1, 17), FI_PROV_ATTR_ONLY).expect("an offer");
    assert!(own.get().src_addr.is_null());
    // The node is the peer's, so that the address of the hints stays.
    let own = hints.find_with(version(1, 17), 0).expect("an offer");
    // SAFETY: the provider made them.
    let found = unsafe { std::slice::from_raw_parts(own.get().src_addr.cast::<u8>(), own.get().src_addrlen) };
    assert_eq!(found, address);
    hints.info.src_addrlen = 3;
    assert_eq!(hints.find_with(version(1, 17), 0).err(), Some(-ENODATA));
    address[0] = 99;
    hints.info.src_addrlen = address.len();
    assert_eq!(hints.find_with(version(1, 17), 0).err(), Some(-ENODATA));
    assert_eq!(find(version(1, 17), c"no such host".as_ptr(), FI_NUMERICHOST, null()).err(), Some(-ENODATA));
    // SAFETY: the provider lives as long as the process.
    let getinfo = unsafe { (*uct_fi::fi_prov_ini()).getinfo };
    // SAFETY: a null is refused.
    assert_eq!(unsafe { getinfo(version(1, 17), null(), null(), 0, null(), null_mut()) }, -EINVAL);
}
