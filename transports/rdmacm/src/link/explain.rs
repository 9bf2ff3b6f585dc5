//! Refusals with what this machine has to do with them.

use std::net::{IpAddr, SocketAddr};

use ucs::Error;

use crate::io::{CmError, netdevs};
use crate::proto::refusal::{Refusal, Step, system};

/// What a failed call of rdma_cm means.
pub fn refusal(error: &CmError, step: Step, subject: &str) -> Refusal {
    match error {
        CmError::Call { errno, .. } => explain(step, subject, *errno),
        other => Refusal::new(Error::UNSUPPORTED, other.to_string()),
    }
}

/// The refusal of a step by an error number. Where the network device has no RDMA device, those that have one are named.
pub fn explain(step: Step, subject: &str, errno: i32) -> Refusal {
    let mut refusal = system(step, subject, errno);
    if errno == libc::ENODEV && step != Step::Open {
        refusal.words += &format!(". {}", usable());
    }
    refusal
}

/// The refusal of an address that RDMA does not reach, although rdma_cm would bind to it.
pub fn loopback(step: Step, address: SocketAddr) -> Option<Refusal> {
    let ip = match address.ip() {
        IpAddr::V6(v6) => v6.to_canonical(),
        v4 => v4,
    };
    if !ip.is_loopback() {
        return None;
    }
    let words = format!(
        "cannot {} {address}: RDMA does not go over the loopback device; take an address of a network device that has an RDMA \
         device, also for this machine itself. {}",
        step.phrase(),
        usable()
    );
    Some(Refusal::new(Error::NO_DEVICE, words))
}

/// The network devices with RDMA devices, as a sentence.
pub fn usable() -> String {
    let usable = netdevs::usable();
    if usable.is_empty() {
        "No network device of this machine has an RDMA device".to_owned()
    } else {
        format!("These have one: {}", usable.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_refused_in_words() {
        for address in ["127.0.0.1:7000", "127.9.9.9:0", "[::1]:7000", "[::ffff:127.0.0.1]:7000"] {
            let refusal = loopback(Step::Listen, address.parse().expect(address)).expect(address);
            assert_eq!(refusal.status, Error::NO_DEVICE);
            assert!(
                refusal.words.starts_with(&format!("cannot listen on {address}: RDMA does not go over the")),
                "{refusal:?}"
            );
        }
        for address in ["10.7.0.1:7000", "0.0.0.0:0", "[::]:7000", "[fe80::1%2]:7000"] {
            assert_eq!(loopback(Step::Listen, address.parse().expect(address)), None);
        }
    }
}
