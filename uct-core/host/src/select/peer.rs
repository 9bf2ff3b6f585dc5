//! A peer's addresses: what it sends by whatever means, and what of it can be reached.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `UCTA` |
//! | 4 | version, 1 |
//! | 5..7 | number of interfaces, little-endian |
//! | each | length of the device's name (1 byte), the name, the interface's address ([`IfaceAddress::pack`]) |

use std::cmp::Reverse;
use std::sync::Once;

use ucs::sys::net::{self, Reach};
use ucs::text::PeerText;

use super::once;
use super::verdict::{Stage, Verdict, rejected};
use crate::address::{AddressError, IfaceAddress};
use crate::error::split_remedy;
use crate::iface::Iface;
use crate::loader::{DEVICE_NAME_LIMIT, is_name};
use crate::resource::DeviceKind;

const MAGIC: &[u8; 4] = b"UCTA";
const VERSION: u8 = 1;
/// Most interfaces of one peer: more than most machines have, and little memory. A longer list is cut, on both sides.
const MAX_IFACES: usize = 1024;
/// Most refusals that one reason names.
const MAX_TOLD: usize = 8;

/// One interface of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIface {
    /// The device's name at the peer, human-readable.
    pub device: String,
    /// The address.
    pub address: IfaceAddress,
}

/// The interfaces that a peer has open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerAddresses {
    /// One by one.
    pub ifaces: Vec<PeerIface>,
}

/// The hint where the peer has no address of a transport: nothing is known about where it is.
pub(super) const NOT_OFFERED: &str = "see the peer's own explanation; both sides need the transport";

impl PeerAddresses {
    /// The addresses of open interfaces; one whose address is not available is left out. Of more than 1024 those within the machine come
    /// first, then devices whose addresses lead elsewhere, and the last are left out, with a warning for the process.
    pub fn of(ifaces: &[Iface]) -> PeerAddresses {
        let mut ifaces: Vec<&Iface> = ifaces.iter().collect();
        if ifaces.len() > MAX_IFACES {
            ifaces.sort_by_cached_key(|iface| usefulness(iface));
            warn_once(ifaces.len());
            ifaces.truncate(MAX_IFACES);
        }
        let known = ifaces.into_iter().filter_map(|iface| {
            let device = iface.resource().device.clone();
            match iface.address() {
                Ok(address) => Some(PeerIface { device, address }),
                Err(error) => {
                    let words = format!("{} has no address: {error}", iface.resource());
                    // A peer that connects asks for them each time.
                    if once::is_new(words.clone()) {
                        ucs::log::warn!("{words}");
                    }
                    None
                }
            }
        });
        PeerAddresses { ifaces: known.collect() }
    }

    /// As bytes: the first 1024 interfaces.
    ///
    /// # Errors
    /// An address that is longer than any transport's.
    pub fn pack(&self) -> Result<Vec<u8>, AddressError> {
        let ifaces = &self.ifaces[..self.ifaces.len().min(MAX_IFACES)];
        let mut packed = MAGIC.to_vec();
        packed.push(VERSION);
        packed.extend_from_slice(&(ifaces.len() as u16).to_le_bytes());
        for iface in ifaces {
            let name = &iface.device.as_bytes()[..iface.device.len().min(DEVICE_NAME_LIMIT)];
            packed.push(name.len() as u8);
            packed.extend_from_slice(name);
            packed.extend_from_slice(&iface.address.pack()?);
        }
        Ok(packed)
    }

    /// Reads untrusted bytes. Of more than 1024 interfaces the first are taken.
    ///
    /// # Errors
    /// Anything else that [`PeerAddresses::pack`] does not make.
    pub fn unpack(bytes: &[u8]) -> Result<PeerAddresses, AddressError> {
        let problem = |words: &str| AddressError::new(words.to_owned());
        let rest =
            bytes.strip_prefix(MAGIC).ok_or_else(|| problem("not a list of addresses: wrong magic"))?;
        let (&[version, low, high], mut rest) =
            rest.split_first_chunk::<3>().ok_or_else(|| problem("the list of addresses is cut"))?;
        if version != VERSION {
            let words = format!(
                "a list of addresses of version {version}, expected {VERSION}; the peer runs another release"
            );
            return Err(AddressError::new(words));
        }
        let count = u16::from_le_bytes([low, high]);
        let mut ifaces = Vec::new();
        for _ in 0..count {
            let (&length, after) =
                rest.split_first().ok_or_else(|| problem("the list of addresses is cut"))?;
            let length = usize::from(length);
            if length > DEVICE_NAME_LIMIT || after.len() < length {
                return Err(problem("a device's name is too long or cut"));
            }
            let (name, after) = after.split_at(length);
            if !is_name(name, DEVICE_NAME_LIMIT) {
                return Err(AddressError::new(format!("{} is no device's name", PeerText::new(name))));
            }
            // All of a name is ASCII.
            let device = String::from_utf8_lossy(name).into_owned();
            let (address, after) = IfaceAddress::unpack(after)?;
            if ifaces.len() < MAX_IFACES {
                ifaces.push(PeerIface { device, address });
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Err(problem("bytes are left over behind the addresses"));
        }
        Ok(PeerAddresses { ifaces })
    }

    /// The peer's interfaces of the transport of `iface`: those on the same device of the same machine first.
    fn in_order_for(&self, iface: &Iface) -> Vec<&PeerIface> {
        let transport = &iface.resource().transport;
        let own = iface.address().map(|address| address.device).ok();
        let mut in_order: Vec<_> =
            self.ifaces.iter().filter(|peer| peer.address.transport == *transport).collect();
        in_order.sort_by_key(|peer| own.as_ref() != Some(&peer.address.device));
        in_order
    }

    /// The first of the peer's interfaces that an interface reaches.
    pub(super) fn reach(&self, iface: &Iface) -> Result<IfaceAddress, Box<Verdict>> {
        let own = iface.resource();
        let (mut refusals, mut remedies, mut unlisted) = (Vec::new(), Vec::new(), 0_usize);
        let mut stage = Stage::Unreachable;
        for peer in self.in_order_for(iface) {
            match iface.is_reachable(&peer.address) {
                Ok(()) => return Ok(peer.address.clone()),
                Err(refused) => {
                    if refused.status != ucs::Error::UNREACHABLE {
                        stage = Stage::Impeded;
                    }
                    if refusals.len() < MAX_TOLD {
                        let (reason, remedy) = split_remedy(&refused.reason);
                        refusals.push(format!("{}: {reason}", peer.device));
                        remedies.extend(remedy.map(str::to_owned));
                    } else {
                        unlisted += 1;
                    }
                }
            }
        }
        if refusals.is_empty() {
            let check = format!("the peer offers no {}", own.transport);
            return Err(Box::new(rejected(Stage::Unreachable, check, NOT_OFFERED)));
        }
        if unlisted > 0 {
            refusals.push(format!("and {unlisted} more"));
        }
        remedies.dedup();
        let hint = match remedies.is_empty() {
            true => "the reason names what separates the two sides".to_owned(),
            false => remedies.join("; "),
        };
        Err(Box::new(rejected(stage, refusals.join("; "), &hint)))
    }
}

/// The least of the most useful one: within the machine, on the device of the default route, by how far a device's addresses reach.
fn usefulness(iface: &Iface) -> (DeviceKind, Reverse<u32>, Reach) {
    let resource = iface.resource();
    let reach = match resource.kind {
        DeviceKind::Network => net::reach(&resource.device).ok().flatten().unwrap_or(Reach::Wide),
        _ => Reach::Wide,
    };
    (resource.kind, Reverse(iface.attributes().priority), reach)
}

fn warn_once(ifaces: usize) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        ucs::log::warn!(
            "{ifaces} interfaces are open and peers are told of {MAX_IFACES}, those within the machine first; name the devices that are \
             needed: UCT_NET_DEVICES=lo,eth0"
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> PeerAddresses {
        let iface = |device: &str, transport: &str| PeerIface {
            device: device.to_owned(),
            address: IfaceAddress { transport: transport.to_owned(), device: vec![1; 6], iface: vec![2; 20] },
        };
        PeerAddresses {
            ifaces: vec![iface("lo", "tcp"), iface("memory", "posix"), iface("mlx5_0:1", "rc_verbs")],
        }
    }

    #[test]
    fn a_list_survives_the_way() {
        assert_eq!(PeerAddresses::unpack(&peer().pack().unwrap()).unwrap(), peer());
        assert_eq!(PeerAddresses::unpack(&PeerAddresses::default().pack().unwrap()).unwrap().ifaces, []);
    }

    #[test]
    fn cut_and_changed_lists_never_panic_and_cut_ones_are_errors() {
        let packed = peer().pack().unwrap();
        for length in 0..packed.len() {
            assert!(PeerAddresses::unpack(&packed[..length]).is_err());
        }
        for index in 0..packed.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = packed.clone();
                changed[index] = value;
                let _ = PeerAddresses::unpack(&changed);
            }
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_cut_on_both_sides() {
        let mut many = peer();
        many.ifaces = vec![many.ifaces[0].clone(); MAX_IFACES];
        let mut packed = many.pack().expect("as many as are sent");
        assert_eq!(PeerAddresses::unpack(&packed).expect("as above"), many);
        let first = many.clone();
        many.ifaces.push(peer().ifaces[1].clone());
        assert_eq!(many.pack().expect("the first are sent"), packed);
        // Another release may send more.
        let one = packed[7..7 + (packed.len() - 7) / MAX_IFACES].to_vec();
        packed.extend_from_slice(&one);
        packed[5..7].copy_from_slice(&1025_u16.to_le_bytes());
        assert_eq!(PeerAddresses::unpack(&packed).expect("the first are taken"), first);
        packed.truncate(packed.len() - 1);
        PeerAddresses::unpack(&packed).expect_err("the rest is read as well");
    }

    #[test]
    fn of_too_many_interfaces_those_within_the_machine_are_the_first() {
        let (memory, network) = (open("shm", "posix"), open_at("tcp", "tcp", "lo"));
        let mut ifaces = vec![network.clone(); MAX_IFACES + 5];
        ifaces.push(memory.clone());
        let addresses = PeerAddresses::of(&ifaces);
        assert_eq!(addresses.ifaces.len(), MAX_IFACES);
        assert_eq!(addresses.ifaces[0].address, memory.address().expect("an address"));
        assert_eq!(addresses.ifaces[1].address, network.address().expect("an address"));
        let as_it_was = PeerAddresses::of(&[network, memory]);
        assert_eq!(as_it_was.ifaces[0].device, "lo", "a short list keeps its order");
    }

    #[test]
    fn a_name_is_as_long_as_any_device_has_it_and_no_longer() {
        let mut list = peer();
        list.ifaces.truncate(1);
        list.ifaces[0].device = "x".repeat(DEVICE_NAME_LIMIT);
        let longest = list.pack().expect("as long as it may be");
        assert_eq!(PeerAddresses::unpack(&longest).expect("as above"), list);
        for more in [1, 2, 100] {
            let mut longer = longest.clone();
            longer[7] += more;
            longer.splice(8..8, vec![b'x'; usize::from(more)]);
            assert!(PeerAddresses::unpack(&longer).expect_err("longer").to_string().contains("too long"));
        }
    }

    #[test]
    fn a_name_that_would_not_stay_in_its_line_is_refused() {
        for (name, shown) in [
            ("eth0\nERROR all is lost", r"eth0\nERROR all is lost"),
            ("\u{1b}[2J", r"\u{1b}[2J"),
            ("eth\u{202e}0", r"eth\u{202e}0"),
            ("a\u{2028}b", r"a\u{2028}b"),
            ("lo,eth0", "lo,eth0"),
            ("", ""),
        ] {
            let mut list = peer();
            list.ifaces[1].device = name.to_owned();
            let packed = list.pack().expect("it is short enough");
            let refusal = PeerAddresses::unpack(&packed).expect_err(name).to_string();
            assert!(refusal.contains(&format!("\"{shown}\" is no device's name")), "{refusal}");
        }
    }

    #[test]
    fn a_name_that_is_whole_is_not_what_is_cut() {
        let packed = peer().pack().expect("it is short enough");
        let refusal =
            |length: usize| PeerAddresses::unpack(&packed[..length]).expect_err("it is cut").to_string();
        let end = 8 + "lo".len();
        assert!(refusal(end - 1).contains("a device's name"), "{}", refusal(end - 1));
        assert!(!refusal(end).contains("a device's name"), "{}", refusal(end));
    }

    fn open(modules: &str, transport: &str) -> Iface {
        open_at(modules, transport, "memory")
    }

    fn open_at(modules: &str, transport: &str, device: &str) -> Iface {
        use crate::configuration::Sources;
        use crate::context::Context;
        use crate::worker::Worker;

        let sources = Sources::default().set("modules", modules);
        let context = Context::builder().sources(sources).build().expect("a context");
        let worker = Worker::new(&context).expect("a worker");
        worker.open(transport, device).expect("an interface")
    }

    fn refusal(peer: &PeerAddresses, iface: &Iface) -> (Stage, String) {
        match peer.reach(iface).map_err(|verdict| *verdict) {
            Err(Verdict::Rejected { stage, check, .. }) => (stage, check),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_peer_with_many_addresses_out_of_reach_makes_a_short_reason() {
        let iface = open("self", "self");
        let elsewhere = PeerIface {
            device: "elsewhere".to_owned(),
            address: IfaceAddress { transport: "self".to_owned(), device: vec![1; 6], iface: vec![2; 20] },
        };
        for (count, more) in [(1, 0), (MAX_TOLD, 0), (MAX_TOLD + 1, 1), (MAX_IFACES, MAX_IFACES - MAX_TOLD)] {
            let peer = PeerAddresses { ifaces: vec![elsewhere.clone(); count] };
            let (stage, check) = refusal(&peer, &iface);
            assert_eq!(stage, Stage::Unreachable);
            assert_eq!(check.matches("elsewhere").count(), count.min(MAX_TOLD), "{check}");
            let tail = format!("; and {more} more");
            assert!(if more > 0 { check.ends_with(&tail) } else { !check.contains(" more") }, "{check}");
        }
    }

    #[test]
    fn another_machine_is_out_of_reach_and_a_peer_on_this_one_is_only_impeded() {
        let iface = open("shm", "posix");
        let own = iface.address().expect("an address");
        assert_eq!(PeerAddresses::of(std::slice::from_ref(&iface)).reach(&iface), Ok(own.clone()));
        // Offsets of the device address: the machine, and what can separate two processes on it.
        let (machine, network, directory) = (8, 24, 56);
        let changed = |offsets: &[usize]| {
            let mut address = own.clone();
            offsets.iter().for_each(|&offset| address.device[offset] ^= 1);
            PeerIface { device: "memory".to_owned(), address }
        };
        let (far, beside) = (changed(&[machine]), changed(&[network, directory]));
        for (peers, expected) in [
            (vec![far.clone()], Stage::Unreachable),
            (vec![beside.clone()], Stage::Impeded),
            (vec![far.clone(), beside.clone()], Stage::Impeded),
            (vec![beside, far], Stage::Impeded),
        ] {
            let (stage, check) = refusal(&PeerAddresses { ifaces: peers }, &iface);
            assert_eq!(stage, expected, "{check}");
        }
    }
}
