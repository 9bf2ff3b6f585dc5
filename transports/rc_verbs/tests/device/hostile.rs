//! A peer that connects as it should and then says what it may not: its endpoint ends, and an honest pair beside it goes on.

use std::cell::Cell;
use std::rc::Rc;

use uct_core::{AmId, IfaceAddress};
use uct_ib::DeviceAddress;
use uct_ib::verbs::{Access, InlineData, InlineWr, QpKind, RcConnect, SendFlags, SendWr, WcBuffer};

use crate::raw::End;
use crate::support::{Link, Random, Side, connect, context, devices, until};

/// Immediate data: an active message of another id than the honest peer's, a grant by itself, and the largest number that
/// one can grant.
const MESSAGE: u32 = 6;
const GRANT: u32 = 1 << 5;
const MOST: u32 = 0x7fff << 16;

/// What it does, once connected: immediate data and length of each message.
struct Misdeed {
    name: &'static str,
    message: fn(&mut Random, u32) -> (Option<u32>, usize),
}

const MISDEEDS: [Misdeed; 7] = [
    Misdeed { name: "sends more messages than it may", message: |_, _| (Some(MESSAGE), 8) },
    Misdeed { name: "grants more than any window", message: |_, _| (Some(GRANT | MOST), 0) },
    Misdeed { name: "grants nothing, again and again", message: |_, _| (Some(GRANT), 0) },
    Misdeed { name: "sends an unknown kind", message: |_, count| (Some(0x100 + count), 8) },
    Misdeed { name: "sends without immediate data", message: |_, _| (None, 8) },
    Misdeed { name: "sends a message that is too long", message: |_, _| (Some(MESSAGE), 9000) },
    Misdeed {
        name: "sends anything",
        message: |random, _| {
            let word = random.next() as u32;
            // Mostly a kind that there is, and never the honest peer's messages.
            let word = if random.next() % 4 > 0 { word & 0xffff_003f } else { word };
            let is_honest = word & 0xffff == 5;
            (Some(word ^ u32::from(is_honest)), random.next() as usize % 100)
        },
    },
];

/// The address of an endpoint with this queue pair, as a peer's endpoint takes it.
fn packed(qp: u32, window: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&[1, 4]);
    bytes[2..4].copy_from_slice(&window.to_le_bytes());
    bytes[4..8].copy_from_slice(&qp.to_le_bytes());
    bytes[8] = 7;
    bytes[12..].copy_from_slice(&65536u32.to_le_bytes());
    bytes
}

/// A queue pair of the test's own that is connected to the endpoint.
fn intrude(device: &str, victim: &Side, link: &Link) -> End {
    let end = End::new(device.split(':').next().expect("a name"), QpKind::Rc);
    let at: IfaceAddress = victim.iface.address().expect("an address");
    let mine = IfaceAddress { device: end.port.device_address().pack().to_vec(), ..at.clone() };
    let address = link.ep.address().expect("an address");
    let field = |from: usize| u32::from_le_bytes(address[from..from + 4].try_into().expect("4 bytes"));
    let peer = DeviceAddress::parse(&at.device).expect("a device address");
    end.qp.init_rc(1, end.port.pkey_index(), Access::LOCAL_WRITE).expect("INIT");
    let connect = RcConnect {
        vector: end.port.vector_to(&peer).expect("reachable"),
        remote_qp: field(4),
        path_mtu: end.port.path_mtu(&peer).code(),
        receive_psn: field(8),
        send_psn: 7,
        max_reads_out: 1,
        max_reads_in: 1,
        min_rnr_timer: 1,
        timeout: 14,
        retry_count: 6,
        rnr_retry: 7,
    };
    end.qp.connect_rc(&connect).expect("RTS");
    link.ep.connect_to_ep(&mine, &packed(end.qp.number(), 8)).expect("connected");
    end
}

/// Sends one message, if there is room and the connection still takes any.
fn say(end: &End, (immediate, length): (Option<u32>, usize)) {
    let posted = match immediate {
        None => end.qp.post_inline(InlineWr::send(1, &[InlineData::new(b"nonsense")], SendFlags::SIGNALED)),
        Some(word) => {
            let piece = [end.piece(0, length)];
            let pieces = if length == 0 { &piece[..0] } else { &piece };
            // SAFETY: the buffer outlives the queue pair.
            unsafe { end.qp.post_send(SendWr::send_immediate(1, pieces, word, SendFlags::SIGNALED)) }
        }
    };
    assert!(posted.is_ok() || posted.is_err_and(|error| error.is_full()));
    let mut ended = WcBuffer::<16>::new();
    let _ = end.cq.poll(&mut ended).expect("the queue works");
}

#[test]
fn a_hostile_peer_ends_its_own_endpoint_and_nothing_else() {
    let Some((_turn, names)) = devices() else { return };
    let mut random = Random::from_environment();
    let context = context(&[]);
    let victim = Side::new(&context, &names[0]);
    let heard = Rc::new(Cell::new(0u32));
    let count = Rc::clone(&heard);
    let id = AmId::new(MESSAGE as u8).expect("an id");
    victim.iface.set_am_handler(id, move |_| count.set(count.get() + 1));
    let honest = Side::new(&context, names.last().expect("a device"));
    let (near, far) = connect(&honest, &victim);
    let mut sent = 0;
    for misdeed in MISDEEDS {
        let link = Link::new(&victim);
        let end = intrude(names.last().expect("a device"), &victim, &link);
        heard.set(0);
        let mut count = 0;
        until(&honest, &victim, misdeed.name, || {
            // As fast as it can, and the honest peer in between.
            for _ in 0..8 {
                say(&end, (misdeed.message)(&mut random, count));
                count += 1;
            }
            sent += u64::from(near.ep.am_short(crate::support::ID, 0, b"message").is_ok());
            !link.failures.borrow().is_empty()
        });
        println!("{}: {:?}, {} messages heard", misdeed.name, link.failures.borrow(), heard.get());
        assert!(heard.get() < 64, "{}: the window is 8, and grows only for who waits", misdeed.name);
        drop((link, end));
        // The honest peer has all the room that it had.
        for _ in 0..100 {
            near.send_with(|| {
                honest.worker.progress();
                victim.worker.progress();
            })
            .expect("a send");
            sent += 1;
        }
        until(&honest, &victim, "the honest peer's messages", || victim.received.get() == sent);
        assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty(), "{}", misdeed.name);
    }
}
