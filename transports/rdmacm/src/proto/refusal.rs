//! Explanations of rdma_cm's errors: error numbers of its calls and events, and the reasons of rejections.
//!
//! The kernel reports different causes with one number, so a row names the step as well. docs/rdmacm.md shows these tables; a
//! test compares them.

use libc::{
    EACCES, EADDRINUSE, EADDRNOTAVAIL, ECONNRESET, EHOSTUNREACH, EINVAL, ENETUNREACH, ENODEV, ENOENT, ENOMEM,
    EPERM, ETIMEDOUT,
};
use ucs::Error;

/// Why something failed: the status for the program, and a human-readable sentence without a full stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status.
    pub status: Error,
    /// What failed, the cause, what to do.
    pub words: String,
}

impl Refusal {
    /// A refusal with this text.
    pub fn new(status: Error, words: impl Into<String>) -> Refusal {
        Refusal { status, words: words.into() }
    }
}

/// What was attempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Opening an event channel.
    Open,
    /// Binding to a local address.
    Bind,
    /// Listening.
    Listen,
    /// Resolving the peer's address.
    Address,
    /// Resolving the route.
    Route,
    /// Connecting.
    Connect,
    /// Accepting.
    Accept,
    /// Bringing a queue pair to work.
    QueuePair,
    /// Notifying the peer that the connection is established.
    Establish,
}

impl Step {
    /// A phrase that follows "cannot".
    pub const fn phrase(self) -> &'static str {
        match self {
            Step::Open => "open an event channel of rdma_cm",
            Step::Bind => "bind to",
            Step::Listen => "listen on",
            Step::Address => "resolve the address",
            Step::Route => "resolve the route to",
            Step::Connect => "connect to",
            Step::Accept => "accept the connection from",
            Step::QueuePair => "prepare the queue pair for",
            Step::Establish => "complete the connection to",
        }
    }
}

/// A cause of an error number of a step.
pub struct Row {
    /// The steps that it is for; none for all.
    pub steps: &'static [Step],
    /// The error number.
    pub errno: i32,
    /// Its name.
    pub name: &'static str,
    /// The status that a program gets.
    pub status: Error,
    /// What it means.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

macro_rules! rows {
    ($([$($step:ident)*] $errno:ident $status:ident $cause:literal => $remedy:literal;)*) => {
        /// Error numbers of calls and events. The first row that fits holds.
        pub static SYSTEM: &[Row] = &[$(Row {
            steps: &[$(Step::$step),*],
            errno: $errno,
            name: stringify!($errno),
            status: Error::$status,
            cause: $cause,
            remedy: $remedy,
        }),*];
    };
}

rows! {
    [Open] ENODEV NO_DEVICE "this machine has no RDMA device at all"
        => "load the adapter's driver, or make a software device with `rdma link add mlx5_0 type rxe netdev NETDEV`";
    [Open] ENOENT NO_DEVICE "/dev/infiniband/rdma_cm does not exist"
        => "load the module rdma_ucm (`modprobe rdma_ucm`), or pass the file into the container";
    [Open] EACCES NO_DEVICE "/dev/infiniband/rdma_cm may not be opened by this user"
        => "give it mode 0666 (a udev rule of rdma-core does), or allow the device in the container";
    [Open] EPERM NO_DEVICE "/dev/infiniband/rdma_cm may not be opened in this container"
        => "allow the device in the container";
    [Bind Address] ENODEV NO_DEVICE "no RDMA device is attached to the network device of this address"
        => "use an address of a network device that has one (`rdma link` lists them)";
    [Route] ENODEV NO_DEVICE "the route to this address uses loopback or a network device without an RDMA device"
        => "use an address of a network device that has an RDMA device, also for this machine itself";
    [Bind] EADDRNOTAVAIL NO_DEVICE "the address is not one of this machine's"
        => "use one that `ip addr` shows";
    [Bind Listen] EADDRINUSE BUSY "another program listens on this port of rdma_cm"
        => "use another port, or 0 for any; `rdma resource show cm_id` names the program";
    [Bind Listen] EACCES INVALID_PARAM "ports below 1024 need privileges"
        => "use a higher port, or add the capability CAP_NET_BIND_SERVICE";
    [Bind] EINVAL INVALID_ADDR "a link-local address needs its network device"
        => "write it with the scope, like [fe80::1%2]:7000 with the number from `ip link`";
    [Address] ETIMEDOUT UNREACHABLE "no reply to the resolution of the peer's address (ARP or neighbour discovery)"
        => "check that the peer is up and in this network: `ip neigh` shows FAILED or INCOMPLETE";
    [Address] ENETUNREACH UNREACHABLE "there is no route to the peer"
        => "see `ip route get ADDRESS`";
    [Address] EHOSTUNREACH UNREACHABLE "the peer's neighbour entry is invalid, or a router reports it as unreachable"
        => "see `ip neigh` and `ip route get ADDRESS`";
    [Address] EADDRNOTAVAIL INVALID_ADDR "the source address is not one of this machine's"
        => "use one that `ip addr` shows";
    [Address] EINVAL INVALID_ADDR "the addresses of both ends have different families, or a link-local one lacks its network device"
        => "use the same family for both, and write a link-local one with its scope, like [fe80::1%2]:7000 with the number from `ip link`";
    [Route] ETIMEDOUT UNREACHABLE "the subnet manager did not respond, or the route changed meanwhile"
        => "see `ibstat`, and check that a subnet manager runs";
    [Connect] ETIMEDOUT TIMED_OUT "the peer's machine did not respond to the request"
        => "check that firewalls permit UDP port 4791 (RoCE v2), and that the peer has an RDMA device on this address";
    [Accept] ECONNRESET CONNECTION_RESET "the client ended the connection"
        => "none needed: the client may connect again";
    [QueuePair Accept] EINVAL CONNECTION_RESET "the client ended the connection before it was accepted"
        => "none needed: the client may connect again";
    [QueuePair] ETIMEDOUT TIMED_OUT "no reply to the resolution of the peer's hardware address within a second"
        => "see `ip neigh`, and try again";
    [] ENODEV NO_DEVICE "the RDMA device was removed, is hidden, or has node GUID zero"
        => "see `rdma link` and `ibv_devinfo`";
    [] ENOMEM NO_MEMORY "the kernel or the limit on locked memory allows no more"
        => "see `ulimit -l`";
    [] ETIMEDOUT TIMED_OUT "the peer's machine did not respond in time"
        => "check that it is up, and whether the network drops packets";
    [] ECONNRESET CONNECTION_RESET "the peer ended the connection"
        => "see the peer's log";
}

/// The refusal of a step about `subject`, an address, by an error number.
pub fn system(step: Step, subject: &str, errno: i32) -> Refusal {
    let space = if subject.is_empty() { "" } else { " " };
    let head = format!("cannot {}{space}{subject}", step.phrase());
    match row(step, errno) {
        Some(row) => {
            Refusal::new(row.status, format!("{head}: {} ({}) → {}", row.cause, row.name, row.remedy))
        }
        None => {
            let words = std::io::Error::from_raw_os_error(errno);
            Refusal::new(Error::from_errno(errno), format!("{head}: {words}"))
        }
    }
}

/// The row for an error number of a step.
pub fn row(step: Step, errno: i32) -> Option<&'static Row> {
    SYSTEM.iter().find(|row| row.errno == errno && (row.steps.is_empty() || row.steps.contains(&step)))
}

/// A reason of a rejection.
pub struct Reason {
    /// The number in the message.
    pub number: i32,
    /// The status that a program gets.
    pub status: Error,
    /// What it means.
    pub cause: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

macro_rules! reasons {
    ($($number:literal $status:ident $cause:literal => $remedy:literal;)*) => {
        /// Reasons of rejections that are met, by number.
        pub static REASONS: &[Reason] =
            &[$(Reason { number: $number, status: Error::$status, cause: $cause, remedy: $remedy }),*];
    };
}

reasons! {
    1 NOT_CONNECTED "the peer has no queue pair for the connection" => "see the peer's log";
    3 NOT_CONNECTED "the peer has no resources for the connection: its backlog is full" => "try again, or give it a larger backlog";
    4 TIMED_OUT "the peer stopped waiting for this side's response" => "see whether the network drops packets";
    8 NOT_CONNECTED "no program listens on this port of the peer's rdma_cm"
        => "start the server; its port must be one of rdma_cm, which is not the same as a TCP port";
    10 NOT_CONNECTED "the queue pair's number still belongs to an earlier connection at the peer"
        => "connect again with another queue pair, or after some seconds";
    12 UNREACHABLE "the peer does not know the GID that the request came to" => "see the addresses of both devices' network devices";
    14 NOT_CONNECTED "the peer refuses the service level" => "see the settings of the subnet";
    26 NOT_CONNECTED "the peer refuses the path's MTU" => "give both network devices the same MTU";
    28 CONNECTION_RESET "the server has ended, refused the path, or is another program that rejected the connection"
        => "see the server's log";
    29 NOT_CONNECTED "the peer refuses the retry count" => "give both sides the same rnr_retry_count";
    35 NOT_CONNECTED "the peer refuses a vendor's option" => "see the drivers' versions";
}

/// What a rejection without data of this library means.
pub fn rejected(subject: &str, number: i32) -> Refusal {
    match REASONS.iter().find(|reason| reason.number == number) {
        Some(reason) => Refusal::new(
            reason.status,
            format!(
                "{subject} rejected the connection: {} (reason {number}) → {}",
                reason.cause, reason.remedy
            ),
        ),
        None => Refusal::new(
            Error::NOT_CONNECTED,
            format!("{subject} rejected the connection (reason {number} of the InfiniBand specification)"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_met() {
        for (place, row) in SYSTEM.iter().enumerate() {
            let all: Vec<Step> = match row.steps {
                [] => vec![Step::Establish],
                some => some.to_vec(),
            };
            for step in all {
                let found = super::row(step, row.errno).expect("a row");
                assert!(
                    std::ptr::eq(found, row),
                    "row {place} is hidden by another for {step:?} {}",
                    row.name
                );
            }
        }
    }

    #[test]
    fn words_are_one_line_with_a_remedy() {
        let refusal = system(Step::Bind, "10.9.9.9:1", ENODEV);
        assert_eq!(refusal.status, Error::NO_DEVICE);
        assert_eq!(
            refusal.words,
            "cannot bind to 10.9.9.9:1: no RDMA device is attached to the network device of this address (ENODEV) → use an \
             address of a network device that has one (`rdma link` lists them)"
        );
        assert!(
            system(Step::Open, "", EACCES).words.starts_with("cannot open an event channel of rdma_cm: /dev")
        );
        assert_eq!(system(Step::Listen, "[::]:7", libc::EMFILE).status, Error::from_errno(libc::EMFILE));
    }

    #[test]
    fn a_rejection_is_explicit_only_with_our_data() {
        for number in 0..64 {
            let refusal = rejected("10.7.0.1:7000", number);
            assert_ne!(refusal.status, Error::REJECTED, "{number}");
            assert!(refusal.words.contains(&format!("reason {number}")), "{}", refusal.words);
        }
        assert_eq!(rejected("x", 8).status, Error::NOT_CONNECTED);
        assert_eq!(rejected("x", 28).status, Error::CONNECTION_RESET);
    }
}
