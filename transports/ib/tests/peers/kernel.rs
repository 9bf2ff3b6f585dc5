//! The kernel's rdma_rxe, and the device in software beside it. The driver has the port of RoCE in the network namespace in which it was loaded, so that
//! the device in software is in another one.

use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use uct_ib::device::open;
use uct_ib::{IbDevice, verbs};

use crate::end::End;
use crate::plan::{Abilities, Left, Mistake, Plan};
use crate::seed;
use crate::session::Way;
use crate::skip::skip;
use crate::software::{self, ALL};

/// The name of the kernel's device.
const DEVICE: &str = "UCT_TEST_KERNEL_DEVICE";
/// The file of the network namespace in which the device in software is; its address is `SOFTVERBS_ADDRESS`.
const NAMESPACE: &str = "UCT_TEST_SOFT_NAMESPACE";
/// `lossy` if packets between both are lost.
const CABLE: &str = "UCT_TEST_CABLE";
/// Sessions of each pair of devices.
const SESSIONS: u64 = 40;

/// The device in software, in its namespace: its socket and its thread stay there.
fn software(namespace: &str) -> IbDevice {
    let file = std::fs::File::open(namespace).expect("the namespace");
    let opened = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        open(verbs::load(verbs::SOFTWARE).expect("it is linked in"), &software::name()).expect("a device")
    });
    opened.join().expect("it opens")
}

/// The GID of the kernel's device whose address is of the same kind as the other one's.
fn gid_index(device: &IbDevice, like: &End) -> u32 {
    let wanted = like.port.gid.entry.gid;
    let port = uct_ib::port::Port::query(&device.context, 1).expect("a port");
    let table = uct_ib::gid::read_table(&device.context, &port).expect("a table");
    let is_like = |gid: uct_ib::gid::Gid| {
        gid.is_ipv4() == wanted.is_ipv4() && gid.is_link_local() == wanted.is_link_local()
    };
    let entry = table.iter().find(|entry| is_like(entry.gid)).expect("a GID of that family");
    u32::from(entry.index)
}

/// Where rdma_rxe receives, it is known to name two failures otherwise: a buffer that is too short or has no valid key is an operation that its queue pair
/// cannot execute.
fn of_the_kernel(plan: &Plan, left: &mut Left) {
    for (id, status, ..) in &mut left.received {
        let operation = &plan.operations[*id as usize];
        let is_executed = !matches!(*status, "SUCCESS" | "WR_FLUSH_ERR");
        if is_executed && matches!(operation.mistake, Some(Mistake::TooLong | Mistake::ReceiveKey)) {
            *status = "LOC_QP_OP_ERR";
            left.sent[*id as usize].1 = "REM_OP_ERR";
        }
    }
}

fn as_expected(_: &Plan, _: &mut Left) {}

#[test]
fn operations_of_the_kernels_device_and_of_the_one_in_software_end_alike() {
    let Ok(name) = std::env::var(DEVICE) else {
        return skip("kernel-device", format_args!("{DEVICE} names no device of the kernel"));
    };
    let namespace = std::env::var(NAMESPACE).expect("the namespace of the device in software");
    let is_lossy = std::env::var(CABLE).is_ok_and(|cable| cable == "lossy");
    let soft = End::new(software(&namespace), None);
    let kernel = || open(verbs::load("auto").expect("libibverbs"), &name).expect("the kernel's device");
    let index = gid_index(&kernel(), &soft);
    let [kernel, other] = [(); 2].map(|()| End::new(kernel(), Some(index)));
    let seed = seed::printed();
    // A quarter of a second, and 16 ms where it is waited for often.
    let timeout = if is_lossy { 12 } else { 16 };
    // The kernel's device never begins a fenced request behind one that is no read, and ends nothing any more where a request with wrong
    // memory of its own is behind one in flight. Its library refuses odd atomics. Where packets are sent again,
    // it ends an atomic without its result.
    let of_kernel = Abilities {
        atomics: !is_lossy,
        odd_atomics: false,
        fences: false,
        local_mistakes: false,
        mistakes: !is_lossy,
    };
    for (name, sender, peer, can, deviate) in [
        (
            "software to kernel",
            &soft,
            &kernel,
            Abilities { mistakes: !is_lossy, ..ALL },
            of_the_kernel as fn(&Plan, &mut Left),
        ),
        ("kernel to software", &kernel, &soft, of_kernel, as_expected),
        ("kernel to kernel", &kernel, &other, of_kernel, of_the_kernel),
    ] {
        Way { name, sender, peer, timeout, can, deviate }.sessions(seed, SESSIONS);
        println!("{name}: {SESSIONS} sessions");
    }
}
