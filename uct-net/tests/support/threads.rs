//! Pairs of nets for any thread.

use std::thread;

use uct_net::{Connection, Net, NetOptions};

use super::context;

/// Two nets of this process, and a connection between them.
pub fn pair(transport: &str) -> (Net, Connection, Net, Connection) {
    pair_with(transport, super::patient())
}

/// As [`pair`], with options for both.
pub fn pair_with(transport: &str, options: NetOptions) -> (Net, Connection, Net, Connection) {
    let (left, right) = (
        Net::new(&context(), options.clone()).expect("a net"),
        Net::new(&context(), options).expect("a net"),
    );
    let mut listener = left.block_on(left.listen("127.0.0.1:0")).expect("it listens");
    let address = listener.address().to_owned();
    let accepting = thread::spawn({
        let left = left.clone();
        move || left.block_on(async { listener.accept().await?.accept().await }).expect("a connection")
    });
    let connect = right.connect(address).require(transport).into_future();
    let there = right.block_on(connect).expect("a connection");
    (left, accepting.join().expect("the server's thread"), right, there)
}
