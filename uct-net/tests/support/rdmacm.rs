//! Two sides that connect by rdmacm, on this machine's device or across a cable.

use std::sync::mpsc;

use uct_core::{Context, Worker};
use uct_net::local::{Listener, Net};
use uct_net::{NetOptions, Result};

use super::{LIMIT, context, skip};

pub const CM: &str = "rdmacm";
/// The transports that the tests name. What a peer does not take any more is not waited for, and few buffers are enough.
const KEYS: [(&str, &str); 3] =
    [("tls", "rc_verbs,tcp,posix"), ("rc_verbs.linger", "10ms"), ("rc_verbs.rx_queue_len", "512")];

/// A machine with a device.
pub struct Machine {
    pub context: Context,
}

/// `None`: the test is skipped.
pub fn machine() -> Option<Machine> {
    let context = context();
    let opened = Worker::new(&context).expect("a worker").open_cm(CM).map(|_| ());
    match opened {
        Ok(()) => Some(Machine { context: super::with(&KEYS) }),
        Err(error) => {
            skip::skip("verbs", error);
            None
        }
    }
}

/// Whether there are two devices that are connected by a cable.
pub fn is_pair() -> bool {
    std::path::Path::new("/sys/class/infiniband/mlx5_1").exists()
}

/// The server's address; across the cable if there is one.
pub fn host() -> &'static str {
    if is_pair() { "10.7.0.2" } else { "10.7.0.1" }
}

/// The client's device, and the server's.
pub fn devices() -> (&'static str, &'static str) {
    ("mlx5_0:1", if is_pair() { "mlx5_1:1" } else { "mlx5_0:1" })
}

/// Runs `server` in a thread, with a listener that has rdmacm as well, and `client` here with its address.
pub fn pair<S, C>(machine: &Machine, (of_server, of_client): (NetOptions, NetOptions), server: S, client: C)
where
    S: AsyncFnOnce(&Net, Listener) -> Result + Send + 'static,
    C: AsyncFnOnce(&Net, String) -> Result,
{
    let (sender, receiver) = mpsc::channel();
    let context = machine.context.clone();
    let thread = std::thread::spawn(move || {
        let net = Net::new(&context, of_server).expect("a net");
        net.block_on(async {
            let listener = net.listen(format!("{}:0", host())).by(CM).await?;
            sender.send(listener.address()).expect("the client waits");
            server(&net, listener).await
        })
        .expect("the server's side");
    });
    let address = receiver.recv_timeout(LIMIT).expect("the server listens");
    let net = Net::new(&machine.context, of_client).expect("a net");
    net.block_on(client(&net, address)).expect("the client's side");
    drop(net);
    thread.join().expect("the server's thread");
}
