//! What a user gets wrong: each one clear line.

use crate::support::{Side, context, devices};
use uct_core::Worker;

/// What opening the device says with a key of the transport set.
fn refused(device: &str, key: &str, value: &str) -> String {
    let worker = Worker::new(&context(&[(key, value)])).expect("a worker");
    let error =
        worker.open("rc_verbs", device).err().unwrap_or_else(|| panic!("{key} = {value} was accepted"));
    error.to_string()
}

#[test]
fn settings_that_the_port_does_not_have_name_what_it_has() {
    let Some((_turn, names)) = devices() else { return };
    let text = refused(&names[0], "gid_index", "70000");
    assert!(text.contains("GID index 70000 is out of range"), "{text}");
    let text = refused(&names[0], "path_mtu", "8192");
    assert!(text.contains("path MTU 8192 is more than the active MTU"), "{text}");
    let text = refused(&names[0], "pkey_index", "999");
    assert!(text.contains("ibv_query_pkey"), "{text}");
}

#[test]
fn an_unknown_device_is_named_with_those_that_exist() {
    let Some((_turn, names)) = devices() else { return };
    let worker = Worker::new(&context(&[])).expect("a worker");
    let error = worker.open("rc_verbs", "mlx9_9:1").expect_err("no such device").to_string();
    assert!(error.contains("mlx9_9:1") && error.contains(&names[0]), "{error}");
}

#[test]
fn peers_with_smaller_buffers_are_told_to_agree() {
    let Some((_turn, names)) = devices() else { return };
    let (large, small) = (context(&[("seg_size", "8k")]), context(&[("seg_size", "4k")]));
    let (left, right) = (Side::new(&large, &names[0]), Side::new(&small, &names[0]));
    let near = left.iface.create_ep(|_| {}).expect("an endpoint");
    let far = right.iface.create_ep(|_| {}).expect("an endpoint");
    let error = near
        .connect_to_ep(&right.iface.address().expect("an address"), &far.address().expect("an address"))
        .expect_err("refused")
        .to_string();
    assert!(error.contains("seg_size") && error.contains("4096"), "{error}");
}

#[test]
fn addresses_that_are_damaged_or_of_others_are_refused_with_a_reason() {
    let Some((_turn, names)) = devices() else { return };
    let side = Side::new(&context(&[]), &names[0]);
    let good = side.iface.address().expect("an address");
    let reason = |device: &[u8], iface: &[u8]| {
        let peer = uct_core::IfaceAddress { device: device.to_vec(), iface: iface.to_vec(), ..good.clone() };
        side.iface.is_reachable(&peer).expect_err("unreachable").to_string()
    };
    assert!(reason(&[], &good.iface).contains("0 bytes"));
    assert!(reason(&good.device, b"nope").contains("no interface address of rc_verbs"));
    let mut infiniband = good.device.clone();
    infiniband[1] = 1;
    assert!(reason(&infiniband, &good.iface).contains("the link layers differ"));

    let near = side.iface.create_ep(|_| {}).expect("an endpoint");
    let error = near.connect_to_ep(&good, &[0; 16]).expect_err("no address").to_string();
    assert!(error.contains("version 0"), "{error}");
    // An address that is well formed and leads nowhere costs nothing but that endpoint.
    let mut nowhere = near.address().expect("an address");
    nowhere[4] ^= 0x55;
    near.connect_to_ep(&good, &nowhere).unwrap_or_else(|error| panic!("{error}"));
}
