//! Addresses, keys and lists of keys as the transports take them, through open interfaces and the plugin boundary.
//!
//! For the list of parsers. Built on `uct-core` with what is linked in, on the loopback device.

use ucs::config::Sources;
use uct_core::{
    Access, Context, Error, Iface, IfaceAddress, IfaceOptions, MemoryKind, MultiDomainMemory, PackedKeys,
    Worker,
};

thread_local! {
    static IFACES: Vec<Iface> = open();
}

/// One interface of each transport.
fn open() -> Vec<Iface> {
    let sources = Sources::default().set("modules", "self,tcp,shm").set("net_devices", "lo");
    let context = Context::builder().sources(sources).build().expect("the defaults are good");
    let worker = Worker::new(&context).expect("a worker");
    let resources = context.resources().iter().filter(|resource| context.excluded(resource).is_none());
    // What the machine does not permit cannot be asked.
    let ifaces: Vec<_> =
        resources.filter_map(|it| worker.open_resource(it, IfaceOptions::default()).ok()).collect();
    assert!(!ifaces.is_empty(), "no transport is there");
    ifaces
}

/// The first byte chooses the interface.
fn with_iface(bytes: &[u8], read: impl FnOnce(&Iface, &[u8])) {
    let Some((first, rest)) = bytes.split_first() else { return };
    IFACES.with(|ifaces| read(&ifaces[usize::from(*first) % ifaces.len()], rest));
}

pub(crate) fn address(bytes: &[u8]) {
    with_iface(bytes, |iface, bytes| {
        let (device, rest) = bytes.split_at(iface.attributes().device_addr_len.min(bytes.len()));
        let transport = iface.resource().transport.clone();
        let peer = IfaceAddress { transport, device: device.to_owned(), iface: rest.to_owned() };
        if let Err(refused) = iface.is_reachable(&peer) {
            assert!(!refused.reason.is_empty(), "a refusal has a reason: {refused}");
        }
    });
}

pub(crate) fn address_seeds() -> Vec<Vec<u8>> {
    numbered(|iface| {
        let address = iface.address().expect("an address");
        assert!(iface.is_reachable(&address).is_ok(), "{} reaches itself", iface.resource());
        [address.device, address.iface].concat()
    })
}

pub(crate) fn key(bytes: &[u8]) {
    with_iface(bytes, |iface, bytes| match iface.memory_domain().unpack(bytes) {
        Ok(key) => drop(key),
        Err(refused) => {
            assert_ne!(refused.status, Error::UNSUPPORTED, "{refused}");
            assert!(!refused.reason.is_empty(), "a refusal has a reason: {refused}");
        }
    });
}

pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    numbered(|iface| {
        let memory = iface.memory_domain().allocate(4096, Access::ALL, MemoryKind::Host).expect("memory");
        memory.packed_key().expect("a key")
    })
}

/// Lists of keys, and the keys in them as each domain takes them.
pub(crate) fn packed_keys(bytes: &[u8]) {
    let keys = match PackedKeys::parse(bytes) {
        Ok(keys) => keys,
        Err(refused) => return assert!(!refused.reason.is_empty(), "a refusal has a reason: {refused}"),
    };
    let names: Vec<&str> = keys.domains().collect();
    assert!((1..=32).contains(&names.len()), "{} keys", names.len());
    assert!(names.iter().map(|name| name.len()).sum::<usize>() < bytes.len());
    IFACES.with(|ifaces| {
        for domain in ifaces.iter().map(Iface::memory_domain) {
            let Err(refused) = keys.unpack(domain) else { continue };
            assert!(!refused.reason.is_empty(), "a refusal has a reason: {refused}");
            let is_listed = |name: &&str| refused.reason.contains(*name);
            assert!(refused.status != Error::NO_ELEM || names.iter().all(is_listed), "{refused}");
        }
    });
}

pub(crate) fn packed_keys_seeds() -> Vec<Vec<u8>> {
    IFACES.with(|ifaces| {
        let memory = ifaces[0].memory_domain().allocate(4096, Access::ALL, MemoryKind::Host).expect("memory");
        let memory = MultiDomainMemory::new(memory);
        let lists = (1..=ifaces.len())
            .map(|count| memory.packed_keys_for(ifaces[..count].iter().map(Iface::memory_domain)));
        lists.map(|packed| packed.expect("they pack")).collect()
    })
}

/// The device address and the interface address of a transport, by themselves; nothing much if it is not there.
pub(crate) fn parts(transport: &str) -> Vec<Vec<u8>> {
    IFACES.with(|ifaces| {
        let iface = ifaces.iter().find(|iface| iface.resource().transport == transport);
        let address = iface.and_then(|iface| iface.address().ok());
        address.map_or_else(|| vec![vec![0; 64]], |address| vec![address.device, address.iface])
    })
}

fn numbered(bytes: impl Fn(&Iface) -> Vec<u8>) -> Vec<Vec<u8>> {
    IFACES.with(|ifaces| {
        ifaces
            .iter()
            .enumerate()
            .map(|(number, iface)| [&[number as u8], &bytes(iface)[..]].concat())
            .collect()
    })
}
