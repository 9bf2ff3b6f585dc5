//! Programs in sandboxes that refuse a system call: what does not need it goes on, and an error names what is refused.

use crate::support::sandbox::{Refused, refuse};
use crate::support::{self, LIMIT, child, patient};
use libc::{EAFNOSUPPORT, ENOSYS, EPERM};
use uct_net::local::Net;

/// Set in the process that is in a sandbox: the number of its case, and the transports.
const CASE: &str = "NET_SANDBOX_CASE";

/// What is refused; the words of an error, or none if all works.
struct Case {
    name: &'static str,
    refused: Refused,
    transports: &'static str,
    words: &'static [&'static str],
}

const fn case(
    name: &'static str,
    (number, first, errno): (libc::c_long, Option<i32>, i32),
    transports: &'static str,
    words: &'static [&'static str],
) -> Case {
    Case { name, refused: Refused { number, first, errno }, transports, words }
}

const CASES: &[Case] = &[
    case("netlink", (libc::SYS_socket, Some(libc::AF_NETLINK), EAFNOSUPPORT), "tcp", &[]),
    case("netlink", (libc::SYS_socket, Some(libc::AF_NETLINK), EPERM), "all", &[]),
    case("IPv6", (libc::SYS_socket, Some(libc::AF_INET6), EAFNOSUPPORT), "tcp", &[]),
    case("IPv4", (libc::SYS_socket, Some(libc::AF_INET), EAFNOSUPPORT), "all", &["RestrictAddressFamilies"]),
    case("Unix sockets", (libc::SYS_socket, Some(libc::AF_UNIX), EAFNOSUPPORT), "tcp", &[]),
    case("Unix sockets", (libc::SYS_socket, Some(libc::AF_UNIX), EAFNOSUPPORT), "posix", &["AF_UNIX"]),
    case("epoll_create1", (libc::SYS_epoll_create1, None, ENOSYS), "all", &["epoll_create1"]),
    case("eventfd2", (libc::SYS_eventfd2, None, EPERM), "all", &["eventfd2"]),
    case("timerfd_create", (libc::SYS_timerfd_create, None, EPERM), "tcp", &["timerfd_create"]),
    case("memfd_create", (libc::SYS_memfd_create, None, EPERM), "all", &[]),
    case("memfd_create", (libc::SYS_memfd_create, None, EPERM), "posix", &["memfd_create"]),
    case("process_vm_readv", (libc::SYS_process_vm_readv, None, EPERM), "posix", &[]),
    case("membarrier", (libc::SYS_membarrier, None, ENOSYS), "posix", &[]),
    case("userfaultfd", (libc::SYS_userfaultfd, None, EPERM), "posix", &[]),
    case("getrandom", (libc::SYS_getrandom, None, ENOSYS), "all", &["getrandom"]),
    case("pidfd_open", (libc::SYS_pidfd_open, None, ENOSYS), "posix", &[]),
    case("statx", (libc::SYS_statx, None, ENOSYS), "posix", &[]),
    case("sched_getaffinity", (libc::SYS_sched_getaffinity, None, EPERM), "tcp", &[]),
];

/// Both sides of a connection over what the transports are, in this process.
fn meet(transports: &str) -> Result<String, String> {
    let net =
        Net::new(&support::with(&[("tls", transports)]), patient()).map_err(|error| error.to_string())?;
    let met = net.block_on(async {
        let mut listener = net.listen("*:0").await?;
        let address = format!("127.0.0.1:{}", listener.port().expect("a port"));
        let server = async {
            let connection = listener.accept().await?.accept().await?;
            connection.recv().within(LIMIT).await.map(drop)
        };
        let client = async {
            let connection = net.connect(&address).await?;
            connection.send(b"there").await?;
            Ok(connection.iface().resource().to_string())
        };
        tokio::try_join!(server, client).map(|((), lane)| lane)
    });
    met.map_err(|error: uct_net::Error| error.to_string())
}

#[test]
fn a_system_call_that_is_refused_stops_what_needs_it_and_is_named() {
    if let Ok(number) = std::env::var(CASE) {
        let case = &CASES[number.parse::<usize>().expect("a number")];
        refuse(case.refused);
        return match meet(case.transports) {
            Ok(lane) => println!("\noutcome: met over {lane}"),
            Err(error) => println!("\noutcome: failed: {}", error.replace('\n', " ")),
        };
    }
    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let test = a_system_call_that_is_refused_stops_what_needs_it_and_is_named;
        let mut child = child::start(test, (CASE, &number.to_string()));
        let (outcome, _rest) = child::line(&mut child.0, "outcome:");
        println!("{}, {}: {outcome}", case.name, case.transports);
        let is_right = match case.words {
            [] => outcome.starts_with("met over"),
            words => outcome.starts_with("failed") && words.iter().all(|word| outcome.contains(word)),
        };
        if !is_right {
            wrong.push(format!("{}, {}: {outcome}; expected {:?}", case.name, case.transports, case.words));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
