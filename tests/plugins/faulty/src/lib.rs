//! The transport `self` under the name `faulty`, with one mistake planted in it: the one that `UCT_TEST_PLANT` names.
//!
//! For the test that the conformance suite finds each of them. Built on the tables of `self`, some of whose slots it
//! replaces. Without the name of a plant the transport is unchanged.

mod access;
mod messages;

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uct_abi::*;

/// The mistakes.
pub const PLANTS: &[&str] = &[
    "drop",
    "swap",
    "duplicate",
    "flip",
    "early",
    "too long",
    "one beyond",
    "stale",
    "forget",
    "deaf",
    "hidden",
    "promise",
    "anybody",
    "twice",
];

/// Whether this mistake is planted.
pub(crate) fn planted(name: &str) -> bool {
    static PLANT: OnceLock<String> = OnceLock::new();
    PLANT.get_or_init(|| std::env::var("UCT_TEST_PLANT").unwrap_or_default()) == name
}

/// True once in `period` calls: a mistake that shows always would be found by anything.
pub(crate) fn once_in(period: u64) -> bool {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    // SYNC: only a count.
    CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(period)
}

/// The slots of `self` as they are.
pub(crate) struct Original {
    pub(crate) md: UctMdOps,
    pub(crate) iface: UctIfaceOps,
    pub(crate) ep: UctEpOps,
}

// SAFETY: tables of functions, written once.
unsafe impl Sync for Original {}
// SAFETY: as above.
unsafe impl Send for Original {}

/// The slots of `self`.
pub(crate) fn original() -> &'static Original {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    ORIGINAL.get_or_init(|| {
        let component = component();
        let transport = transport(component);
        Original {
            // SAFETY: the tables of a plugin are valid for ever (`UctPluginEntry`).
            md: unsafe { *component.md_ops },
            // SAFETY: as above.
            iface: unsafe { *transport.iface_ops },
            // SAFETY: as above.
            ep: unsafe { *transport.ep_ops },
        }
    })
}

fn component() -> &'static UctComponentOps {
    // SAFETY: the plugin has one component, and its tables are valid for ever.
    let first = unsafe { *uct_self::plugin().components };
    // SAFETY: as above.
    unsafe { &*first }
}

fn transport(component: &'static UctComponentOps) -> &'static UctTlOps {
    // SAFETY: the component has one transport, and its tables are valid for ever.
    let first = unsafe { *component.tls };
    // SAFETY: as above.
    unsafe { &*first }
}

const NAME: UctStr = UctStr { data: b"faulty".as_ptr(), length: 6 };

/// The plugin's table.
pub fn plugin() -> &'static UctPlugin {
    struct Table(&'static UctPlugin);
    // SAFETY: a table is immutable.
    unsafe impl Send for Table {}
    // SAFETY: as above.
    unsafe impl Sync for Table {}
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let original = original();
        let ep = messages::replace(access::replace(original.ep));
        let transport = UctTlOps {
            name: NAME,
            iface_ops: ptr::from_ref(Box::leak(Box::new(messages::replace_iface(original.iface)))),
            ep_ops: ptr::from_ref(Box::leak(Box::new(ep))),
            ..*transport(component())
        };
        let transports: &'static [&'static UctTlOps] = vec![&*Box::leak(Box::new(transport))].leak();
        let component = UctComponentOps {
            name: NAME,
            tls: transports.as_ptr().cast(),
            md_ops: ptr::from_ref(Box::leak(Box::new(access::replace_md(original.md)))),
            ..*component()
        };
        let components: &'static [&'static UctComponentOps] = vec![&*Box::leak(Box::new(component))].leak();
        let whole = UctPlugin { name: NAME, components: components.as_ptr().cast(), ..*uct_self::plugin() };
        Table(Box::leak(Box::new(whole)))
    });
    table.0
}

/// What the host looks up in the plugin's file.
#[unsafe(no_mangle)]
pub extern "C" fn uct_plugin_faulty() -> *const UctPlugin {
    plugin()
}
