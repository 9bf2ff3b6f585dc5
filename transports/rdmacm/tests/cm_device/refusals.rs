//! What does not come to a connection, and what people read then.

use std::time::Duration;

use uct_core::Error;
use uct_core::cm::{CmData, ConnectOptions};

use crate::support::{Told, is_pair, net, net_with};

#[test]
fn a_rejected_client_gets_the_reason() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let client = net.connect(listening.address(), b"may I?");
    assert_eq!(net.request(&listening).reject(b"no"), Ok(()));
    net.resolved(&client);
    let (error, private, reason) = net.failure(&client);
    assert_eq!((error, &private[..]), (Error::REJECTED, &b"no"[..]));
    assert_eq!(reason, format!("{} rejected the connection", listening.address()));
    assert_eq!(client.ep.disconnect(b""), Err(Error::NOT_CONNECTED));

    let client = net.connect(listening.address(), b"may I?");
    drop(net.request(&listening));
    net.resolved(&client);
    assert_eq!(net.failure(&client).0, Error::REJECTED);
}

#[test]
fn a_port_without_a_listener_is_refused_at_once() {
    let Some(net) = net() else { return };
    let client = net.connect(net.server_address(9), b"");
    net.resolved(&client);
    let (error, private, reason) = net.failure(&client);
    assert_eq!((error, private), (Error::NOT_CONNECTED, Vec::new()));
    assert!(reason.contains("no program listens on this port"), "{reason}");
}

#[test]
fn a_port_whose_listener_was_closed_is_refused() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let address = listening.address();
    drop(listening);
    let client = net.connect(address, b"");
    net.resolved(&client);
    assert_eq!(net.failure(&client).0, Error::NOT_CONNECTED);
}

#[test]
fn an_address_that_is_not_in_use_is_unreachable() {
    let Some(net) = net() else { return };
    let options = ConnectOptions { timeout: Some(Duration::from_millis(700)), ..ConnectOptions::default() };
    let client = net.ask("10.7.0.77:7000".parse().expect("an address"), options);
    if is_pair() {
        let (error, _, reason) = net.failure(&client);
        assert_eq!(error, Error::UNREACHABLE, "{reason}");
        assert!(reason.contains("10.7.0.77:7000"), "{reason}");
        assert!(reason.contains("no reply to the resolution of the peer's address"), "{reason}");
    } else {
        // A dummy device asks nobody for an address: it is the request that gets no answer.
        net.resolved(&client);
        let (error, _, reason) = net.failure(&client);
        assert_eq!(error, Error::TIMED_OUT, "{reason}");
    }
}

#[test]
fn an_address_without_a_device_names_those_that_have_one() {
    let Some(net) = net() else { return };
    let listen = |address: &str| {
        let address = address.parse().expect("an address");
        net.server.cm.listen(address, None, |_| {}).expect_err("no device")
    };
    for address in ["127.0.0.1:7000", "[::1]:7000"] {
        let refused = listen(address);
        assert_eq!(refused.status, Error::NO_DEVICE);
        assert!(refused.reason.contains("loopback"), "{}", refused.reason);
        assert!(refused.reason.contains("eth0 (mlx5_0:1) 10.7.0.1"), "{}", refused.reason);
    }
    let refused = listen("192.0.2.1:7000");
    assert_eq!(refused.status, Error::NO_DEVICE, "{refused}");
    let address = "127.0.0.1:7000".parse().expect("an address");
    let refused = net.client.cm.connect(address, ConnectOptions::default(), |_, _| {}).expect_err("loopback");
    assert_eq!(refused.status, Error::NO_DEVICE);
}

#[test]
fn a_network_device_without_rdma_is_named_as_that() {
    let Some(net) = net() else { return };
    let ip = |arguments: &str| {
        let status = std::process::Command::new("ip").args(arguments.split(' ')).status();
        assert!(status.expect("ip works").success(), "ip {arguments}");
    };
    ip("link add plain0 type dummy");
    ip("link set plain0 up");
    ip("addr add 10.9.0.1/24 dev plain0");
    let listened = net.server.cm.listen("10.9.0.1:0".parse().expect("an address"), None, |_| {});
    ip("link del plain0");
    let refused = listened.expect_err("no device");
    assert_eq!(refused.status, Error::NO_DEVICE, "{refused}");
    let words = "no RDMA device is attached to the network device of this address (ENODEV)";
    assert!(refused.reason.contains(words), "{}", refused.reason);
    assert!(refused.reason.contains("These have one: eth0 (mlx5_0:1) 10.7.0.1"), "{}", refused.reason);
}

#[test]
fn a_port_in_use_is_busy() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let refused = net.server.cm.listen(listening.address(), None, |_| {}).expect_err("in use");
    assert_eq!(refused.status, Error::BUSY, "{refused}");
    assert!(refused.reason.contains("another program listens on this port"), "{}", refused.reason);
}

#[test]
fn a_client_that_is_gone_is_not_accepted() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let client = net.connect(listening.address(), b"");
    let request = net.request(&listening);
    drop(client);
    net.idle(Duration::from_millis(500));
    let refused = net.try_accept(request, CmData::default()).err().expect("nobody is there");
    assert_eq!(refused.status, Error::CONNECTION_RESET, "{refused}");
    // That it cannot be rejected either matters to nobody.
    let client = net.connect(listening.address(), b"");
    let request = net.request(&listening);
    drop(client);
    net.idle(Duration::from_millis(500));
    let _ = request.reject(b"too late");
}

#[test]
fn a_server_that_says_nothing_costs_the_limit_and_no_more() {
    let Some(net) = net() else { return };
    let listening = net.listen();
    let options = ConnectOptions { timeout: Some(Duration::from_millis(500)), ..ConnectOptions::default() };
    let client = net.ask(listening.address(), options);
    let request = net.request(&listening);
    net.resolved(&client);
    let (error, _, reason) = net.failure(&client);
    assert_eq!(error, Error::TIMED_OUT, "{reason}");
    assert!(reason.contains("within 500ms"), "{reason}");
    drop(request);
}

#[test]
fn a_client_that_says_nothing_costs_the_limit_and_no_more() {
    let Some(net) = net_with(&[("timeout", "500ms")]) else { return };
    let listening = net.listen();
    let client = net.ask(listening.address(), ConnectOptions::default());
    let server = net.accept(net.request(&listening), b"");
    let (error, _, reason) = net.failure(&server);
    assert_eq!(error, Error::TIMED_OUT, "{reason}");
    net.resolved(&client);
    assert_eq!(net.told(&client), Told::Connected(Vec::new()));
    let told = net.told(&client);
    assert!(matches!(told, Told::Disconnected(_)), "{told:?}");
}

#[test]
fn a_peer_that_does_not_answer_the_end_costs_the_limit_and_no_more() {
    let Some(net) = net_with(&[("timeout", "500ms")]) else { return };
    let (_listening, client, server) = net.connected();
    client.ep.disconnect(b"").expect("connected");
    assert_eq!(net.told(&server), Told::Disconnected(None));
    // The server's application does nothing; its connection manager answers in its place.
    let told = net.told(&client);
    assert!(matches!(told, Told::Disconnected(_)), "{told:?}");
}

#[test]
fn a_diagnosis_names_the_obstacle_and_stops_there() {
    let Some(net) = net() else { return };
    let context = net.client.worker.context();
    let examine = |address: &str| {
        let findings = context.diagnose_cm("rdmacm", address.parse().expect("an address"));
        let findings = findings.unwrap_or_else(|error| panic!("{error}"));
        let (last, others) = findings.split_last().expect("findings");
        assert!(others.iter().all(|finding| finding.obstacle.is_none()), "{findings:?}");
        (last.obstacle, last.words.clone(), findings.len())
    };
    let (obstacle, words, steps) = examine("10.7.0.1:0");
    assert_eq!(obstacle, None, "{words}");
    assert!(steps >= 5 && words.contains("can listen on 10.7.0.1:0"), "{steps}: {words}");
    let (obstacle, words, _) = examine("127.0.0.1:7000");
    assert_eq!(obstacle, Some(Error::NO_DEVICE));
    assert!(words.contains("loopback") && words.contains("eth0 (mlx5_0:1) 10.7.0.1"), "{words}");
    let listening = net.listen();
    let (obstacle, words, _) = examine(&listening.address().to_string());
    assert_eq!(obstacle, Some(Error::BUSY), "{words}");
    if is_pair() {
        let (obstacle, words, _) = examine("10.7.0.77:7000");
        assert_eq!(obstacle, Some(Error::UNREACHABLE), "{words}");
        assert!(words.contains("no reply to the resolution of the peer's address"), "{words}");
    } else {
        let (obstacle, words, _) = examine("10.7.0.77:7000");
        assert_eq!((obstacle, &words[..]), (None, "the route to 10.7.0.77:7000 is resolved"));
    }
}
