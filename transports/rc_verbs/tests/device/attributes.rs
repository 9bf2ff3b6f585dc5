//! What an interface reports about itself follows its settings.

use crate::support::{Side, context, devices};

#[test]
fn the_limits_of_an_interface_are_those_of_its_settings() {
    let Some((_turn, names)) = devices() else { return };
    let settings = [("max_num_eps", "7"), ("max_iov", "5"), ("seg_size", "4k"), ("path_mtu", "256")];
    let side = Side::new(&context(&settings), &names[0]);
    let found = side.iface.attributes();
    let (am, put, get) = (&found.am, &found.put, &found.get);
    assert_eq!(found.max_num_eps, 7);
    assert_eq!([am.max_iov, put.max_iov, get.max_iov], [4, 5, 5]);
    assert_eq!([am.max_bcopy, am.max_zcopy, put.max_bcopy, get.max_bcopy, get.max_short], [4096; 5]);
    assert!(
        put.max_zcopy > 4096 && put.max_zcopy == get.max_zcopy,
        "{} and {}",
        put.max_zcopy,
        get.max_zcopy
    );
    assert_eq!(am.max_short + size_of::<u64>(), put.max_short, "a message has a header of 8 bytes");
    assert_eq!([am, put, get].map(|limits| (limits.opt_zcopy_align, limits.align_mtu)), [(64, 256); 3]);
    assert!(found.latency_growth > 0.0, "each endpoint costs the device memory");

    let side = Side::new(&context(&[("max_num_eps", "inf")]), &names[0]);
    assert_eq!(side.iface.attributes().max_num_eps, 0, "no limit");
}
