//! The invariant CRC of RoCEv2: four bytes at the end of each packet, over all that no router changes.
//!
//! For links. It covers fields of the IP header, among them the IPv4 identification, which a UDP socket does not show. The CRC
//! is linear, so that a receiver finds the one identification that explains the difference, or that none does.
//! From annex A17.3.3 of the InfiniBand Architecture Specification, and RFC 1071 for what is masked.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crc32fast::Hasher;

use crate::engine::to_gid;
use crate::engine::wire::BTH_LENGTH;

/// Bytes of the CRC.
pub const LENGTH: usize = 4;

/// What of the IP and UDP headers it covers.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Address and UDP port of the sender.
    pub source: SocketAddr,
    /// Address and UDP port of the receiver.
    pub destination: SocketAddr,
    /// Identification of the IPv4 header; not used with IPv6.
    pub identification: u16,
}

/// The CRC of a packet: headers, payload and padding.
pub fn icrc(route: &Route, packet: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    // A local route header of InfiniBand, which RoCE has not.
    hasher.update(&[0xff; 8]);
    let udp_length = (8 + packet.len() + LENGTH) as u16;
    match (route.source.ip(), route.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = [0; 20];
            // Version and length; type of service, time to live and checksum are masked.
            (ip[0], ip[1]) = (0x45, 0xff);
            ip[2..4].copy_from_slice(&(20 + udp_length).to_be_bytes());
            ip[4..6].copy_from_slice(&route.identification.to_be_bytes());
            // Not to be fragmented.
            (ip[6], ip[8], ip[9]) = (0x40, 0xff, 17);
            ip[10..12].fill(0xff);
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            hasher.update(&ip);
        }
        (source, destination) => {
            let mut ip = [0xff; 40];
            // Version; class and flow label are masked, as the hop limit is.
            ip[0] = 0x6f;
            ip[4..6].copy_from_slice(&udp_length.to_be_bytes());
            ip[6] = 17;
            ip[8..24].copy_from_slice(&to_gid(source));
            ip[24..40].copy_from_slice(&to_gid(destination));
            hasher.update(&ip);
        }
    }
    let mut udp = [0xff; 8];
    udp[0..2].copy_from_slice(&route.source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&route.destination.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    hasher.update(&udp);
    let (head, rest) = packet.split_at(BTH_LENGTH.min(packet.len()));
    let mut masked = [0; BTH_LENGTH];
    masked[..head.len()].copy_from_slice(head);
    // The reserved byte that congestion control uses.
    masked[4] = 0xff;
    hasher.update(&masked[..head.len()]);
    hasher.update(rest);
    hasher.finalize()
}

/// Adds the CRC to a packet.
pub fn append(route: &Route, packet: &mut Vec<u8>) {
    let sum = icrc(route, packet);
    packet.extend_from_slice(&sum.to_le_bytes());
}

/// The packet without its CRC; `None` if the CRC is wrong.
pub fn check<'a>(route: &Route, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (packet, found) = split(bytes)?;
    (icrc(route, packet) == found).then_some(packet)
}

/// Packet and CRC.
fn split(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let (packet, found) = bytes.split_last_chunk::<LENGTH>()?;
    (packet.len() >= BTH_LENGTH).then(|| (packet, u32::from_le_bytes(*found)))
}

/// Checks packets of a link that does not show the identification.
#[derive(Default)]
pub struct Checker {
    /// For each length of a packet the differences that the 16 bits of the identification make.
    differences: HashMap<usize, [u32; 16]>,
}

impl Checker {
    /// The packet without its CRC; `None` if the CRC is wrong. The identification in `route` is tried first.
    ///
    /// Over IPv4 one of 65,536 damaged packets passes, over IPv6 one of 2^32.
    pub fn check<'a>(&mut self, route: &Route, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (packet, found) = split(bytes)?;
        let difference = icrc(route, packet) ^ found;
        if difference == 0 {
            return Some(packet);
        }
        let is_v4 = route.source.is_ipv4() && route.destination.is_ipv4();
        (is_v4 && self.is_explained(route, packet, difference)).then_some(packet)
    }

    /// Whether another identification makes this difference.
    fn is_explained(&mut self, route: &Route, packet: &[u8], difference: u32) -> bool {
        // Real links have few lengths; a hostile peer does not fill the memory.
        if self.differences.len() > 8192 {
            self.differences.clear();
        }
        let reduced = self.differences.entry(packet.len()).or_insert_with(|| {
            let own = icrc(route, packet);
            let with = |bit: usize| {
                icrc(&Route { identification: route.identification ^ (1_u16 << bit), ..*route }, packet) ^ own
            };
            triangular(std::array::from_fn(with))
        });
        reduced.iter().fold(difference, |left, row| left.min(left ^ row)) == 0
    }
}

/// Rows that span the same space, each with a highest bit of its own, the highest first.
fn triangular(rows: [u32; 16]) -> [u32; 16] {
    let mut reduced = [0_u32; 16];
    let mut count = 0;
    for row in rows {
        let row = reduced[..count].iter().fold(row, |left, above| left.min(left ^ above));
        if row != 0 {
            reduced[count] = row;
            count += 1;
            reduced[..count].sort_unstable_by(|a, b| b.cmp(a));
        }
    }
    reduced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(identification: u16) -> Route {
        let address = |text: &str| text.parse().expect("an address");
        Route { source: address("10.7.0.1:49152"), destination: address("10.7.0.2:4791"), identification }
    }

    /// The numbers are of another program, which finds those of packets that adapters sent, too.
    #[test]
    fn it_is_the_one_that_adapters_make() {
        let packet: [u8; 20] = std::array::from_fn(|index| index as u8);
        assert_eq!(icrc(&route(0x1234), &packet), 0xa57f_0fd6);
        let address = |text: &str| text.parse().expect("an address");
        let (source, destination) = (address("[fd00::1]:49152"), address("[fd00::2]:4791"));
        assert_eq!(icrc(&Route { source, destination, identification: 0x1234 }, &packet), 0x4c5b_d9b7);
    }

    #[test]
    fn packets_with_any_identification_pass_and_damaged_ones_do_not() {
        let mut checker = Checker::default();
        let mut passed = 0;
        for length in [12, 16, 60, 1036, 4108] {
            let packet: Vec<u8> = (0..length).map(|number| (number * 7 % 251) as u8).collect();
            for identification in [0, 1, 0x8000, 0xffff, 0x1234] {
                let mut bytes = packet.clone();
                append(&route(identification), &mut bytes);
                for first in [0, 0x1234, 0xffff] {
                    // One that has kept nothing yet, too.
                    for checker in [&mut checker, &mut Checker::default()] {
                        let found = checker.check(&route(first), &bytes);
                        assert_eq!(found, Some(&packet[..]), "{length} {identification:#x} {first:#x}");
                    }
                }
                for damaged in 0..bytes.len().min(200) {
                    let mut bytes = bytes.clone();
                    bytes[damaged] ^= 0x10;
                    // The reserved byte is not covered.
                    passed += usize::from(damaged != 4 && checker.check(&route(0), &bytes).is_some());
                }
            }
        }
        assert_eq!(passed, 0);
    }

    #[test]
    fn the_differences_of_a_length_are_kept_and_those_of_many_lengths_are_bounded() {
        let mut checker = Checker::default();
        let mut kept = |length: usize| {
            let mut bytes = vec![7; length];
            append(&route(1), &mut bytes);
            assert!(checker.check(&route(0), &bytes).is_some(), "{length}");
            checker.differences.len()
        };
        assert_eq!([16, 60, 16].map(&mut kept), [1, 2, 2]);
        let most = (12..8300).map(kept).max();
        assert!(most.is_some_and(|most| (8000..8300).contains(&most)), "{most:?}");
    }

    #[test]
    fn over_ipv6_the_whole_of_it_is_checked() {
        let address = |text: &str| text.parse().expect("an address");
        let route = Route {
            source: address("[fd00::1]:4791"),
            destination: address("[fd00::2]:4791"),
            identification: 0,
        };
        let mut bytes = vec![4; 16];
        append(&route, &mut bytes);
        assert!(check(&route, &bytes).is_some());
        for damaged in (0..20).filter(|byte| *byte != 4) {
            let mut bytes = bytes.clone();
            bytes[damaged] ^= 1;
            assert!(check(&route, &bytes).is_none());
            assert!(Checker::default().check(&route, &bytes).is_none());
        }
    }

    #[test]
    fn what_is_too_short_is_refused() {
        for length in 0..16 {
            assert!(Checker::default().check(&route(0), &vec![0; length]).is_none());
        }
    }
}
