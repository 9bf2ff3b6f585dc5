//! Everything that reads bytes from outside, as functions of bytes: what a peer sends, and what a user writes.
//!
//! For the fuzz targets beside this crate, and the bounded runs of `tests/mutations.rs`. Built on the crates whose parsers
//! they are. A parser returns an error or a value whose size is in proportion to its input; it never panics.

#![forbid(unsafe_code)]

#[path = "../../../uct-core/compose/src/wire.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod composed;
mod configuration;
mod libfabric;
mod peer;
mod transport;

/// A parser.
#[derive(Clone, Copy)]
pub struct Parser {
    /// Its name; that of the fuzz target, too.
    pub name: &'static str,
    /// Reads the bytes, and checks what came out.
    pub read: fn(&[u8]),
    /// Bytes that are good, or begin well: what mutations start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const PARSERS: &[Parser] = &[
    Parser {
        name: "calibration_file",
        read: configuration::calibration,
        seeds: configuration::calibration_seeds,
    },
    Parser { name: "composed_frame", read: peer::composed_frame, seeds: peer::composed_frame_seeds },
    Parser { name: "config_file", read: configuration::file, seeds: configuration::file_seeds },
    Parser { name: "config_values", read: configuration::values, seeds: configuration::value_seeds },
    Parser { name: "fi_frame", read: libfabric::frame, seeds: libfabric::frame_seeds },
    Parser { name: "fi_hello", read: libfabric::hello, seeds: libfabric::hello_seeds },
    Parser { name: "units", read: configuration::units, seeds: configuration::unit_seeds },
    Parser { name: "net_frame", read: uct_net::testing::fuzz_frame, seeds: peer::net_frame_seeds },
    Parser {
        name: "net_lane_address",
        read: uct_net::testing::fuzz_lane_address,
        seeds: peer::net_lane_address_seeds,
    },
    Parser { name: "iface_address", read: peer::iface_address, seeds: peer::iface_address_seeds },
    Parser { name: "packed_keys", read: transport::packed_keys, seeds: transport::packed_keys_seeds },
    Parser { name: "peer_addresses", read: peer::peer_addresses, seeds: peer::peer_addresses_seeds },
    Parser { name: "remote_key", read: peer::remote_key, seeds: peer::remote_key_seeds },
    Parser { name: "rma_frames", read: peer::rma_frames, seeds: peer::rma_frames_seeds },
    Parser { name: "ib_address", read: peer::ib_address, seeds: peer::ib_address_seeds },
    Parser { name: "rc_address", read: uct_rc_verbs::testing::fuzz_address, seeds: peer::rc_address_seeds },
    Parser { name: "rc_key", read: uct_rc_verbs::testing::fuzz_key, seeds: peer::rc_key_seeds },
    Parser {
        name: "rdmacm_private",
        read: uct_rdmacm::testing::fuzz_private,
        seeds: peer::rdmacm_private_seeds,
    },
    Parser { name: "roce_packet", read: uct_ib_soft::testing::fuzz_packets, seeds: peer::roce_packet_seeds },
    Parser { name: "shm_peer", read: peer::shm_peer, seeds: peer::shm_peer_seeds },
    Parser { name: "shm_ring", read: uct_shm::testing::fuzz_ring, seeds: peer::shm_ring_seeds },
    Parser { name: "tcp_address", read: uct_tcp::testing::fuzz_address, seeds: peer::tcp_address_seeds },
    Parser { name: "tcp_cm", read: uct_tcp::testing::fuzz_cm, seeds: peer::tcp_cm_seeds },
    Parser { name: "tcp_hello", read: peer::tcp_hello, seeds: peer::tcp_hello_seeds },
    Parser { name: "transport_address", read: transport::address, seeds: transport::address_seeds },
    Parser { name: "transport_key", read: transport::key, seeds: transport::key_seeds },
    Parser { name: "ud_address", read: uct_ud_verbs::testing::fuzz_address, seeds: peer::ud_address_seeds },
    Parser { name: "ud_packets", read: uct_ud_verbs::testing::fuzz_packets, seeds: peer::ud_packets_seeds },
    Parser { name: "verbs_calls", read: uct_ib_soft::testing::fuzz_calls, seeds: peer::verbs_calls_seeds },
];

/// The parser of a name.
///
/// # Panics
/// There is none.
pub fn parser(name: &str) -> &'static Parser {
    PARSERS.iter().find(|parser| parser.name == name).unwrap_or_else(|| panic!("there is no parser {name}"))
}
