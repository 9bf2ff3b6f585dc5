//! Certificates of callers as the proof that shared memory of this machine asks of callers from elsewhere: two processes that share memory, and have
//! a network between two namespaces as the only way to call.

use std::sync::mpsc;

use uct_net::{NetOptions, Tls};

use crate::support::certificates::{self, Authority};
use crate::support::logged_listener::LoggedListener;
use crate::support::namespaces::{Cable, FAR};
use crate::support::{LIMIT, child, net, patient, skip};

/// Where a caller in another process calls, and its certificates.
const CALLER: &str = "UCT_NET_TEST_CALLER";

#[test]
fn a_caller_in_another_process() {
    let Ok(text) = std::env::var(CALLER) else { return };
    let (address, certificates) = text.split_once(' ').expect("both");
    let tls = Tls::confidential().client(certificates::imported(certificates));
    let net = net(NetOptions { tls: Some(tls), ..patient() });
    let chosen = |names: &[&str]| {
        let connect = names.iter().fold(net.connect(address), |connect, name| connect.require(*name));
        let connected = net.block_on(async {
            let connection = connect.await?;
            assert_eq!(&*connection.recv().within(LIMIT).await?, b"welcome");
            Ok::<_, uct_net::Error>(connection.explanation().chosen.clone())
        });
        connected.unwrap_or_else(|error| error.to_string())
    };
    println!("\nchosen {}; of all: {}", chosen(&["posix"]), chosen(&[]));
}

#[test]
fn a_caller_from_elsewhere_with_a_certificate_may_use_memory_of_this_machine_and_one_without_may_not() {
    if !skip::is_root("make network namespaces") {
        return;
    }
    let authority = Authority::new("ours");
    let (own, known) = (authority.issue(FAR), authority.issue("caller.test"));
    let tls = Tls::confidential().server(authority.lenient_server(&own));
    let options = NetOptions { tls: Some(tls), ..patient() };
    let cable = Cable::new();
    let ((address_to, address), (ends, ended)) = (mpsc::channel(), mpsc::channel::<()>());
    let far = cable.far(move || {
        let listener = LoggedListener::at(format!("{FAR}:0"), options);
        address_to.send(listener.address.clone()).expect("the near end waits");
        let _ = ended.recv_timeout(LIMIT);
    });
    let address = address.recv_timeout(LIMIT).expect("the far end listens");
    let call = |identity| {
        let text = format!("{address} {}", authority.exported(identity));
        let near = cable.near(move || {
            let mut process = child::start(a_caller_in_another_process, (CALLER, &text));
            child::line(&mut process.0, "chosen ").0
        });
        near.join().expect("the near end")
    };
    assert_eq!(call(Some(&known)), "posix/memory; of all: posix/memory");
    let without = call(None);
    let refused = "the peer's address is not of this machine, and it has not proved who it is";
    assert!(without.contains("posix is required") && without.contains(refused), "{without}");
    assert!(without.ends_with("of all: tcp/cable inside TLS"), "{without}");
    drop(ends);
    far.join().expect("the far end");
}
