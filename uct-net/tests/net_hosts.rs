//! Hosts that are not as usual: what their settings, their sandboxes and the number of their devices must not change.

#[path = "support/child.rs"]
mod child;
#[path = "support/namespaces.rs"]
mod namespaces;
#[path = "../../ucs/testing/skip.rs"]
mod skip;
mod support;

use namespaces::{inside, namespace};
use support::{LIMIT, net, patient};
use uct_net::Result;
use uct_net::local::Net;

/// One side listens at an address, the other one calls what `called` makes of the listener's port, and a message crosses.
fn meets(address: &str, called: impl Fn(Option<u16>) -> String) {
    let net = net(patient());
    let outcome = net.block_on(async {
        let mut listener = net.listen(address).await?;
        let address = called(listener.port());
        tokio::try_join!(take(&mut listener), call(&net, &address)).map(drop)
    });
    outcome.unwrap_or_else(|error| panic!("{address}: {error}"));
}

async fn take(listener: &mut uct_net::local::Listener) -> Result<()> {
    let connection = listener.accept().await?.accept().await?;
    assert_eq!(&*connection.recv().within(LIMIT).await?, b"there");
    Ok(())
}

async fn call(net: &Net, address: &str) -> Result<()> {
    net.connect(address).await?.send(b"there").await
}

#[test]
fn an_abstract_unix_socket_is_an_address() {
    let address = format!("unix:@uct net {}", std::process::id());
    meets(&address, |_| address.clone());
    let net = net(patient());
    let listener = net.block_on(net.listen(&address)).expect("the name is free again");
    assert_eq!(listener.address(), address);
    let error = net.block_on(net.connect("unix:@no such name")).expect_err("nobody listens");
    assert!(error.to_string().contains("unix:@no such name"), "{error}");
}

#[test]
fn a_listener_at_all_addresses_takes_callers_of_both_families() {
    for listened in ["[::]:0", "*:0"] {
        meets(listened, |port| format!("127.0.0.1:{}", port.expect("a port")));
        meets(listened, |port| format!("[::1]:{}", port.expect("a port")));
        meets(listened, |port| format!("[::ffff:127.0.0.1]:{}", port.expect("a port")));
    }
}

#[test]
fn a_listener_at_all_addresses_takes_ipv4_callers_where_the_system_would_not() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let host = namespace();
    let met = inside(host.0.id(), || {
        std::fs::write("/proc/sys/net/ipv6/bindv6only", "1").expect("the setting of the namespace");
        meets("[::]:0", |port| format!("127.0.0.1:{}", port.expect("a port")));
    });
    met.join().expect("the caller is taken");
}
