//! Hosts that are not as usual: what their settings, their sandboxes and the number of their devices must not change.

use crate::support::namespaces::{Cable, DEVICE, add_pairs, inside, namespace};
use crate::support::{self, LIMIT, namespaces, net, patient, processor_time, skip};
use uct_core::system::net::readings;
use uct_net::Result;
use uct_net::local::Net;

/// One side listens at an address, the other one calls what `called` makes of the listener's port, and a message crosses.
fn meets(address: &str, called: impl Fn(Option<u16>) -> String) {
    meets_by(&net(patient()), address, called);
}

/// The same, on both sides by one net.
fn meets_by(net: &Net, address: &str, called: impl Fn(Option<u16>) -> String) {
    let outcome = net.block_on(async {
        let mut listener = net.listen(address).await?;
        let address = called(listener.port());
        tokio::try_join!(take(&mut listener), call(net, &address)).map(drop)
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

/// Readings of the system's lists, at most, besides the first: devices that have just been made are still changing.
const CHANGES: u64 = 8;

/// Runs `work`, which may read the system's lists of devices a few times, however many devices there are.
fn with_few_readings<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (before, begun) = (readings(), processor_time());
    let output = work();
    let count = readings() - before;
    println!("{what}: {count} readings, {:?} of processor time", processor_time() - begun);
    assert!(count <= 1 + CHANGES, "{what}: {count} readings");
    output
}

#[test]
fn a_host_with_hundreds_of_devices_reads_their_list_once_and_not_for_each() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    const PAIRS: usize = 150;
    let host = namespace();
    let met = inside(host.0.id(), || {
        add_pairs(PAIRS, 0);
        with_few_readings("a net, a listener and a caller", || {
            let net = net(patient());
            assert!(net.ifaces().len() > 2 * PAIRS);
            meets_by(&net, "127.0.0.1:0", |port| format!("127.0.0.1:{}", port.expect("a port")));
        });
    });
    met.join().expect("they meet");
}

#[test]
fn hosts_with_many_devices_meet_over_the_one_that_both_have() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    const PAIRS: usize = 40;
    let (cable, (send, receive)) = (Cable::new(), std::sync::mpsc::channel());
    let far = cable.far(move || {
        add_pairs(PAIRS, 20);
        with_few_readings("the far end", || {
            let net = Net::new(&support::with(&[("tls", "tcp")]), patient()).expect("a net");
            net.block_on(async {
                let mut listener = net.listen(format!("{}:0", namespaces::FAR)).await?;
                send.send(listener.address()).expect("the near end waits");
                take(&mut listener).await
            })
        })
    });
    let near = cable.near(move || {
        add_pairs(PAIRS, 40);
        let address = receive.recv_timeout(LIMIT).expect("the far end listens");
        with_few_readings("the near end", || {
            let net = Net::new(&support::with(&[("tls", "tcp")]), patient()).expect("a net");
            net.block_on(async {
                let connection = net.connect(&address).await?;
                assert_eq!(connection.iface().resource().device, DEVICE);
                connection.send(b"there").await
            })
        })
    });
    near.join().expect("the near end").expect("connected");
    far.join().expect("the far end").expect("taken");
}
