//! Datagrams.

use uct_ib::PortAddress;
use uct_ib::verbs::{Ah, InlineData, InlineWr, QpKind, SendFlags, SendWr};

use crate::support::{End, devices};

const QKEY: u32 = 0x1234;

#[test]
fn datagrams_arrive_with_their_source() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = (End::new(&names[0], QpKind::Ud), End::new(names.last().expect("a device"), QpKind::Ud));
    for end in [&a, &b] {
        end.qp.start_ud(1, end.port.pkey_index(), QKEY).expect("RTS");
    }
    b.post_receive(1, 0);
    b.post_receive(2, 2048);
    let vector = a.port.vector_to(&b.port.device_address()).expect("reachable");
    let ah = Ah::new(a.qp.pd(), &vector).expect("a handle");

    let inline = [InlineData::new(b"datagram")];
    a.qp.post_inline(InlineWr::send(10, &inline, SendFlags::SIGNALED).to(&ah, b.qp.number(), QKEY))
        .expect("posted");
    let wc = b.wait_ok(1);
    assert_eq!(wc.source_qp(), a.qp.number());
    assert!(wc.has_grh());
    assert_eq!(b.read(40, wc.byte_length() - 40), b"datagram");
    let header: [u8; 40] = b.read(0, 40).try_into().expect("forty bytes");
    assert_eq!(PortAddress::source_gid(&header), a.port.device_address().gid);
    a.wait_ok(10);

    a.write(4096, &[3; 1000]);
    let pieces = [a.piece(4096, 1000)];
    // SAFETY: the buffer outlives the queue pair.
    unsafe { a.qp.post_send(SendWr::send(11, &pieces, SendFlags::SIGNALED).to(&ah, b.qp.number(), QKEY)) }
        .expect("posted");
    let wc = b.wait_ok(2);
    assert_eq!(b.read(2048 + 40, wc.byte_length() - 40), [3; 1000]);
    a.wait_ok(11);
}

#[test]
fn another_key_is_not_for_us() {
    let Some((_turn, names)) = devices() else { return };
    let (a, b) = (End::new(&names[0], QpKind::Ud), End::new(&names[0], QpKind::Ud));
    for end in [&a, &b] {
        end.qp.start_ud(1, end.port.pkey_index(), QKEY).expect("RTS");
    }
    b.post_receive(1, 0);
    let vector = a.port.vector_to(&b.port.device_address()).expect("reachable");
    let ah = Ah::new(a.qp.pd(), &vector).expect("a handle");
    for (key, text) in [(QKEY + 1, b"wrong"), (QKEY, b"right")] {
        let inline = [InlineData::new(text)];
        a.qp.post_inline(InlineWr::send(1, &inline, SendFlags::SIGNALED).to(&ah, b.qp.number(), key))
            .expect("posted");
        a.wait_ok(1);
    }
    b.wait_ok(1);
    assert_eq!(b.read(40, 5), b"right");
}
