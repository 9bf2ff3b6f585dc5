//! The cable between the network devices `eth0` and `eth1` of the test VM, which is pulled and put back.

use std::process::Command;
use std::time::{Duration, Instant};

pub fn succeeds(command: &str) -> bool {
    let mut words = command.split(' ');
    Command::new(words.next().expect("a program")).args(words).status().expect("it runs").success()
}

pub fn run(command: &str) {
    assert!(succeeds(command), "{command}");
}

/// The far end of the cable.
pub fn cable(is_in: bool) {
    if is_in {
        run("ip link set eth1 up");
        // What goes to the other end of the cable leaves by it, also on one machine; the route went with the link, and
        // cannot be made before the link is there.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !succeeds("ip route replace 10.7.0.1/32 dev eth1 src 10.7.0.2 table 100") {
            assert!(Instant::now() < deadline, "the route does not come back");
            std::thread::sleep(Duration::from_millis(20));
        }
    } else {
        run("ip link set eth1 down");
    }
}

/// Puts the cable back when the test ends early.
pub struct Cable;

impl Drop for Cable {
    fn drop(&mut self) {
        if std::thread::panicking() {
            cable(true);
        }
    }
}
