//! The order in which objects are closed.

use std::ptr::null_mut;

use uct_fi::abi::*;

use crate::session::{Hints, Options, Session, call, close, open_fabric};

#[test]
fn what_others_refer_to_stays_open() {
    let session = Session::new(Options::default());
    let (mut events, mut counter, mut region) = (null_mut(), null_mut(), null_mut());
    assert_eq!(call!(session.fabric, ops.eq_open(null_mut(), &raw mut events, null_mut())), 0);
    assert_eq!(call!(session.domain, ops.cntr_open(null_mut(), &raw mut counter, null_mut())), 0);
    let mut bytes = [0_u8; 8];
    let (base, domain) = (bytes.as_mut_ptr().cast(), session.domain);
    let got = call!(domain, mr.reg(base, 8, FI_REMOTE_WRITE, 0, 1, 0, &raw mut region, null_mut()));
    assert_eq!(got, 0);

    for busy in
        [session.fabric.cast::<fid>(), session.domain.cast(), session.queue.cast(), session.vector.cast()]
    {
        assert_eq!(close(busy), -EBUSY);
    }
    assert_eq!(close(region.cast()), 0);
    assert_eq!(close(counter.cast()), 0);
    assert_eq!(close(session.domain.cast()), -EBUSY);
    assert_eq!(close(events.cast()), 0);
    // The rest is closed by the session, which checks that it can be.
}

#[test]
fn a_fabric_without_anything_closes() {
    let info = Hints::new().find().expect("an offer");
    let fabric = open_fabric(&info);
    assert_eq!(close(fabric.cast()), 0);
}
