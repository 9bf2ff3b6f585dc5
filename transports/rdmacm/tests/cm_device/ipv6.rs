//! Addresses of IPv6: those of a link, which need a scope, and those of a network.

use std::net::SocketAddrV6;
use std::process::Command;

use uct_core::cm::ConnectOptions;

use crate::support::{Net, Told, is_pair, net};

/// The network devices of the client and of the server.
fn devices() -> [&'static str; 2] {
    ["eth0", if is_pair() { "eth1" } else { "eth0" }]
}

/// The address of a device that begins so, with port 0 and without a scope.
fn address(device: &str, prefix: &str) -> SocketAddrV6 {
    let shown = Command::new("ip").args(["-6", "-o", "addr", "show", "dev", device]).output();
    let text = String::from_utf8(shown.expect("ip works").stdout).expect("text");
    let ip = text.split_whitespace().find(|word| word.starts_with(prefix)).expect("an address");
    let ip = ip.split('/').next().and_then(|ip| ip.parse().ok()).expect("an address");
    SocketAddrV6::new(ip, 0, 0, 0)
}

fn with_scope(mut address: SocketAddrV6, device: &str) -> SocketAddrV6 {
    let index = std::fs::read_to_string(format!("/sys/class/net/{device}/ifindex")).expect("a device");
    address.set_scope_id(index.trim().parse().expect("a number"));
    address
}

/// A server listens at one address and a client calls it from another.
fn connects(net: &Net, source: SocketAddrV6, listens: SocketAddrV6, mut called: SocketAddrV6) {
    let listening = net.listen_on(listens.into());
    assert_eq!(listening.address().ip(), *listens.ip());
    called.set_port(listening.address().port());
    let options = ConnectOptions { source: Some(source.into()), ..ConnectOptions::default() };
    let client = net.connect_with(called.into(), options, |ep, told| match told {
        Told::Resolved(..) => ep.send(b"six").expect("resolved"),
        Told::Connected(_) => ep.notify().expect("connected"),
        _ => {}
    });
    let request = net.request(&listening);
    assert_eq!((request.private(), request.peer().ip()), (&b"six"[..], (*source.ip()).into()));
    assert_eq!(request.device(), if is_pair() { "mlx5_1:1" } else { "mlx5_0:1" });
    let server = net.accept(request, b"");
    let Told::Resolved(local, peer, device) = net.told(&client) else { panic!("not resolved") };
    assert_eq!((local.ip(), peer.ip()), ((*source.ip()).into(), (*listens.ip()).into()));
    assert_eq!(device, "mlx5_0:1");
    assert_eq!(net.told(&server), Told::Notified);
    drop(client);
    assert_eq!(net.told(&server), Told::Disconnected(None));
}

#[test]
fn a_link_local_address_connects() {
    let Some(net) = net() else { return };
    let [near, far] = devices();
    let (source, listens) = (address(near, "fe80"), address(far, "fe80"));
    // Each side names its own device.
    connects(&net, with_scope(source, near), with_scope(listens, far), with_scope(listens, near));
}

#[test]
fn an_address_of_a_network_connects() {
    let Some(net) = net() else { return };
    let [source, listens] = devices().map(|device| address(device, "fd00:7:"));
    connects(&net, source, listens, listens);
}
