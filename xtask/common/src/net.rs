//! TCP ports of this machine: a free one, and whether one is listened on.
//! Built on /proc/net; used by what starts a server and then its client.

#[path = "../../../ucs/testing/port.rs"]
mod port;

pub use port::free_port;
use std::fs;

/// Whether any socket of this network namespace listens on the TCP port. A server does not notice the question.
pub fn is_listening(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/self/net/{table}")).is_ok_and(|table| {
            table.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().is_some_and(|local| local.ends_with(&suffix));
                local && words.nth(1) == Some("0A")
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_listening_port_is_seen_and_a_closed_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        // A child that another test starts at this moment has a copy of the socket, until it becomes its program.
        let start = Instant::now();
        while is_listening(port) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the port of a closed listener is listened on"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}
