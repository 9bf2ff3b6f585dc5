//! Calls that are wrong have an error number.

use std::ptr::{null, null_mut};

use uct_fi::abi::*;

use crate::session::{Hints, Options, Session, call, close, context, open_fabric, queue_attr, vector_attr};

#[test]
fn an_endpoint_that_is_not_enabled_does_nothing() {
    let info = Hints::new().find().expect("an offer");
    let fabric = open_fabric(&info);
    let (mut domain, mut ep) = (null_mut(), null_mut());
    assert_eq!(call!(fabric, ops.domain(info.0, &raw mut domain, null_mut())), 0);
    assert_eq!(call!(domain, ops.endpoint(info.0, &raw mut ep, null_mut())), 0);
    let mut byte = [0_u8];
    let bad_state = -(EOPBADSTATE as isize);
    assert_eq!(call!(ep, msg.send(byte.as_ptr().cast(), 1, null_mut(), 0, null_mut())), bad_state);
    assert_eq!(call!(ep, msg.recv(byte.as_mut_ptr().cast(), 1, null_mut(), 0, null_mut())), bad_state);
    let object = ep.cast::<fid>();
    let enable = || call!(object, ops.control(FI_ENABLE, null_mut()));
    assert_eq!(enable(), -ENOAV);
    let (mut vector, mut queue, mut attr) = (null_mut(), null_mut(), vector_attr());
    assert_eq!(call!(domain, ops.av_open(&raw mut attr, &raw mut vector, null_mut())), 0);
    let bind = |other: *mut fid, flags| call!(object, ops.bind(other, flags));
    assert_eq!(bind(vector.cast(), 0), 0);
    assert_eq!(bind(vector.cast(), 0), -EINVAL);
    assert_eq!(enable(), -ENOCQ);
    let mut attr = queue_attr(FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE);
    assert_eq!(call!(domain, ops.cq_open(&raw mut attr, &raw mut queue, null_mut())), 0);
    assert_eq!(bind(queue.cast(), FI_SEND | FI_PEEK), -EBADFLAGS);
    assert_eq!(bind(queue.cast(), FI_SEND), 0);
    assert_eq!(bind(queue.cast(), FI_SEND | FI_RECV), -EINVAL);
    assert_eq!(enable(), -ENOCQ);
    assert_eq!(bind(queue.cast(), FI_RECV), 0);
    assert_eq!(bind(domain.cast(), 0), -EINVAL);
    assert_eq!(bind(null_mut(), 0), -EINVAL);
    assert_eq!(enable(), 0);
    assert_eq!(enable(), -EOPBADSTATE);
    assert_eq!(bind(queue.cast(), FI_RECV), -EOPBADSTATE);
    for object in [ep.cast::<fid>(), vector.cast(), queue.cast(), domain.cast(), fabric.cast()] {
        assert_eq!(close(object), 0);
    }
}

#[test]
fn null_unknown_flags_and_unknown_peers_are_refused() {
    let session = Session::new(Options::default());
    let ep = session.ep;
    let (invalid, bad_flags) = (-(EINVAL as isize), -(EBADFLAGS as isize));
    assert_eq!(call!(ep, msg.send(null(), 1, null_mut(), session.own, null_mut())), invalid);
    assert_eq!(call!(ep, msg.sendmsg(null(), 0)), invalid);
    assert_eq!(call!(ep, tagged.recvmsg(null(), 0)), invalid);
    assert_eq!(call!(ep, atomic.writemsg(null(), 0)), invalid);
    let byte = [0_u8];
    assert_eq!(call!(ep, msg.send(byte.as_ptr().cast(), 1, null_mut(), 1 << 40, null_mut())), invalid);
    let mut message = fi_msg {
        msg_iov: null(),
        desc: null_mut(),
        iov_count: 0,
        addr: session.own,
        context: context(1),
        data: 0,
    };
    assert_eq!(call!(ep, msg.sendmsg(&raw const message, FI_FENCE)), bad_flags);
    assert_eq!(call!(ep, msg.recvmsg(&raw const message, FI_DISCARD)), bad_flags);
    message.iov_count = 1;
    assert_eq!(call!(ep, msg.sendmsg(&raw const message, 0)), invalid);
    assert_eq!(call!(session.queue, ops.read(null_mut(), 1)), invalid);
    assert_eq!(call!(session.queue, ops.readerr(null_mut(), 0)), invalid);
    let object = ep.cast::<fid>();
    assert_eq!(call!(object, ops.control(FI_GETOPSFLAG, null_mut())), -EINVAL);
    assert_eq!(session.cancel(context(99)), -(ENOENT as isize));
    assert!(session.poll().is_none(), "nothing of this has completed");
}

#[test]
fn what_is_not_offered_says_so() {
    let session = Session::new(Options::default());
    let (ep, domain) = (session.ep, session.domain);
    let unsupported = -(ENOSYS as isize);
    assert_eq!(call!(ep, collective.barrier(0, null_mut())), unsupported);
    assert_eq!(call!(ep, ops.tx_ctx(0, null_mut(), null_mut(), null_mut())), -ENOSYS);
    assert_eq!(call!(ep, cm.connect(null(), null(), 0)), -ENOSYS);
    assert_eq!(call!(domain, ops.scalable_ep(session.info.0, null_mut(), null_mut())), -ENOSYS);
    assert_eq!(call!(session.fabric, ops.passive_ep(session.info.0, null_mut(), null_mut())), -ENOSYS);
    let mut attr = queue_attr(FI_CQ_FORMAT_TAGGED, 2);
    let mut queue = null_mut();
    assert_eq!(call!(domain, ops.cq_open(&raw mut attr, &raw mut queue, null_mut())), -ENOSYS);
    attr.wait_obj = FI_WAIT_NONE;
    attr.format = 77;
    assert_eq!(call!(domain, ops.cq_open(&raw mut attr, &raw mut queue, null_mut())), -EINVAL);
    assert_eq!(call!(session.queue, ops.sread(null_mut(), 0, null(), 0)), unsupported);
    let mut attr = fi_atomic_attr { count: 0, size: 0 };
    let query = |data_type, operation, flags, attr: *mut fi_atomic_attr| {
        call!(domain, ops.query_atomic(data_type, operation, attr, flags))
    };
    assert_eq!(query(FI_INT8, FI_SUM, 0, &raw mut attr), -EOPNOTSUPP);
    assert_eq!(query(FI_INT64, FI_CSWAP, 0, &raw mut attr), -EOPNOTSUPP);
    assert_eq!(query(FI_INT64, 4711, 0, &raw mut attr), -EOPNOTSUPP);
    assert_eq!(query(FI_INT64, FI_CSWAP, FI_COMPARE_ATOMIC, &raw mut attr), 0);
    assert!(attr.size == 8 && attr.count >= 1);
    assert_eq!(query(FI_INT64, FI_SUM, 0, null_mut()), -EINVAL);
}

#[test]
fn options_of_an_endpoint() {
    let session = Session::new(Options::default());
    let (mut value, mut length) = (0_usize, 8);
    let object = session.ep.cast::<fid>();
    let get = |name, value: *mut usize, length: *mut usize| {
        call!(session.ep, ops.getopt(FI_OPT_ENDPOINT, name, value.cast(), length))
    };
    let set = |value: &usize, length| {
        let value = (&raw const *value).cast();
        call!(session.ep, ops.setopt(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, length))
    };
    assert_eq!(set(&4096, 8), 0);
    assert_eq!(set(&1, 4), -EINVAL);
    assert_eq!(get(FI_OPT_MIN_MULTI_RECV, &raw mut value, &raw mut length), 0);
    assert_eq!((value, length), (4096, 8));
    assert_eq!(get(99, &raw mut value, &raw mut length), -ENOPROTOOPT);
    length = 4;
    assert_eq!(get(FI_OPT_MIN_MULTI_RECV, &raw mut value, &raw mut length), -ETOOSMALL);
    let mut flags = FI_SEND | FI_DELIVERY_COMPLETE;
    assert_eq!(call!(object, ops.control(FI_SETOPSFLAG, (&raw mut flags).cast())), 0);
    flags = FI_SEND;
    assert_eq!(call!(object, ops.control(FI_GETOPSFLAG, (&raw mut flags).cast())), 0);
    assert_eq!(flags, FI_DELIVERY_COMPLETE);
    flags = FI_RECV | FI_DELIVERY_COMPLETE;
    assert_eq!(call!(object, ops.control(FI_SETOPSFLAG, (&raw mut flags).cast())), -EBADFLAGS);
    let mut name = [0_u8; 4];
    let mut length = name.len();
    let got = call!(session.ep, cm.getname(name.as_mut_ptr().cast(), &raw mut length));
    assert_eq!((got, length), (-ETOOSMALL, 16));
}
