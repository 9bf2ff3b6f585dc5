//! Tables that a plugin made wrongly or made long ago are never read past their end, whatever their heads say.

use std::{
    alloc::{Layout, alloc_zeroed},
    ffi::c_void,
    mem::offset_of,
    ptr,
};

use crate::loader_support::{HOST, Watchdog, text};
use crate::property;
use proptest::prelude::*;
use ucs::units::NameList;
use uct_abi::*;
use uct_core::loader::{LoadFailureKind as Kind, Loaded, LoaderSettings, load};

/// All tables of a plugin; they stay for ever.
#[derive(Clone, Copy)]
struct Tables {
    plugin: *mut UctPlugin,
    component: *mut UctComponentOps,
    md: *mut UctMdOps,
    tl: *mut UctTlOps,
    iface: *mut UctIfaceOps,
    ep: *mut UctEpOps,
}

/// Moves a table to where the next byte behind its `size` cannot be read.
fn keep<T>(table: T, size: usize) -> *mut T {
    let page = rustix::param::page_size();
    assert!(size_of::<T>() <= page);
    let layout = Layout::from_size_align(2 * page, page).expect("two pages");
    // SAFETY: the layout is not empty.
    let pages = unsafe { alloc_zeroed(layout) };
    assert!(!pages.is_null());
    let guard = pages.wrapping_add(page).cast::<c_void>();
    let place = pages.wrapping_add(page - size);
    // SAFETY: `size` bytes are left in the first page, and the table has no fewer.
    unsafe { ptr::from_ref(&table).cast::<u8>().copy_to_nonoverlapping(place, size) };
    // SAFETY: the page was allocated for this and is never freed.
    let protected = unsafe { rustix::mm::mprotect(guard, page, rustix::mm::MprotectFlags::empty()) };
    protected.expect("a page can be protected");
    place.cast()
}

impl Tables {
    /// Right ones, all of whose `optional` slots are null, cut to `sizes` of interface and endpoint table.
    fn new(iface_size: usize, ep_size: usize) -> Tables {
        let md = keep(MD, size_of::<UctMdOps>());
        let iface = keep(UctIfaceOps { size: iface_size, ..IFACE }, iface_size);
        let ep = keep(UctEpOps { size: ep_size, ..EP }, ep_size);
        let tl = UctTlOps {
            size: size_of::<UctTlOps>(),
            name: text("tables"),
            iface_ops: iface,
            ep_ops: ep,
            query_devices: Some(query_devices),
            iface_open: Some(iface_open),
        };
        let tl = keep(tl, size_of::<UctTlOps>());
        let tls: &'static [usize] = Box::leak(Box::new([tl.expose_provenance()]));
        let component = UctComponentOps {
            size: size_of::<UctComponentOps>(),
            name: text("tables"),
            tls: tls.as_ptr().cast(),
            tl_count: 1,
            md_ops: md,
            query_mds: Some(query_mds),
            md_open: Some(md_open),
            cm_ops: ptr::null(),
        };
        let component = keep(component, size_of::<UctComponentOps>());
        let components: &'static [usize] = Box::leak(Box::new([component.expose_provenance()]));
        let plugin = UctPlugin {
            magic: UCT_MAGIC,
            abi_major: UCT_ABI_MAJOR,
            abi_minor: UCT_ABI_MINOR,
            size: size_of::<UctPlugin>(),
            name: text("tables"),
            version: text("1"),
            components: components.as_ptr().cast(),
            component_count: 1,
            config: ptr::null(),
            config_count: 0,
            init: None,
        };
        Tables { plugin: keep(plugin, size_of::<UctPlugin>()), component, md, tl, iface, ep }
    }

    fn load(self) -> Loaded {
        let settings = LoaderSettings {
            module_dirs: Vec::new(),
            search_standard: false,
            modules: NameList::all(),
            ..LoaderSettings::default()
        };
        // SAFETY: the table was made in `new` and is not written from here on.
        load(&settings, &[unsafe { &*self.plugin }], &HOST)
    }

    /// The pointers to the fields `size`, each with the length that its table has, and has at least to have.
    fn sizes(self) -> [(*mut usize, usize, usize); 6] {
        [
            (
                self.plugin.wrapping_byte_add(offset_of!(UctPlugin, size)).cast(),
                size_of::<UctPlugin>(),
                offset_of!(UctPlugin, config),
            ),
            (self.component.cast(), size_of::<UctComponentOps>(), offset_of!(UctComponentOps, cm_ops)),
            (self.md.cast(), size_of::<UctMdOps>(), offset_of!(UctMdOps, mem_reg)),
            (self.tl.cast(), size_of::<UctTlOps>(), size_of::<UctTlOps>()),
            (self.iface.cast(), size_of::<UctIfaceOps>(), offset_of!(UctIfaceOps, release)),
            (self.ep.cast(), size_of::<UctEpOps>(), offset_of!(UctEpOps, am_short)),
        ]
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..property::config() })]

    #[test]
    fn whatever_the_head_says_the_first_thing_that_is_wrong_is_told(
        head in proptest::collection::vec((0..32_usize, any::<u8>()), 0..6),
    ) {
        let _watchdog = Watchdog::new();
        let tables = Tables::new(size_of::<UctIfaceOps>(), size_of::<UctEpOps>());
        let bytes = tables.plugin.cast::<u8>();
        for (at, value) in head {
            // The name's pointer stands at the end of the head, and is the plugin's word that something is there.
            let at = at % offset_of!(UctPlugin, name);
            // SAFETY: the byte is within the table's head.
            unsafe { bytes.wrapping_add(at).write(value) };
        }
        // SAFETY: the table is readable, and every pattern of bits is a value of its head.
        let table = unsafe { tables.plugin.read() };
        let loaded = tables.load();
        let minimum = offset_of!(UctPlugin, config);
        match loaded.failures.first().map(|failure| &failure.kind) {
            Some(Kind::Magic { found, .. }) => prop_assert!(*found == table.magic && *found != UCT_MAGIC),
            Some(Kind::AbiMajor { found_major, .. }) => {
                prop_assert_eq!(table.magic, UCT_MAGIC);
                prop_assert!(*found_major == table.abi_major && *found_major != UCT_ABI_MAJOR);
            }
            Some(Kind::TableTooShort { offered, minimum: least, .. }) => {
                prop_assert_eq!((table.magic, table.abi_major), (UCT_MAGIC, UCT_ABI_MAJOR));
                prop_assert_eq!(*least, minimum);
                prop_assert!(*offered == table.size && *offered < minimum);
            }
            Some(other) => prop_assert!(false, "{:?}", other),
            None => prop_assert!(table.magic == UCT_MAGIC && table.abi_major == UCT_ABI_MAJOR && table.size >= minimum),
        }
    }

    #[test]
    fn whatever_a_table_says_of_its_size_it_is_taken_or_too_short(
        which in 0..6_usize,
        size in any::<usize>(),
        small in any::<bool>(),
    ) {
        let _watchdog = Watchdog::new();
        let tables = Tables::new(size_of::<UctIfaceOps>(), size_of::<UctEpOps>());
        let (place, real, minimum) = tables.sizes()[which];
        let size = if small { size % (real + 1) } else { size };
        // SAFETY: the place is the field `size` of a table.
        unsafe { place.write(size) };
        let loaded = tables.load();
        match loaded.failures.first().map(|failure| &failure.kind) {
            Some(Kind::TableTooShort { offered, minimum: least, .. }) => {
                prop_assert_eq!((*offered, *least), (size, minimum));
                prop_assert!(size < minimum);
            }
            Some(other) => prop_assert!(false, "{:?}", other),
            None => prop_assert!(size >= minimum && loaded.plugins.len() == 1),
        }
    }

    #[test]
    fn a_short_table_is_not_read_past_its_end(
        iface in offset_of!(UctIfaceOps, release)..size_of::<UctIfaceOps>(),
        ep in offset_of!(UctEpOps, am_short)..size_of::<UctEpOps>(),
    ) {
        let _watchdog = Watchdog::new();
        let loaded = Tables::new(iface & !7, ep & !7).load();
        prop_assert!(loaded.failures.is_empty(), "{:?}", loaded.failures);
    }
}

#[test]
fn every_slot_that_a_plugin_leaves_out_answers_unsupported() {
    let _watchdog = Watchdog::new();
    let loaded = Tables::new(offset_of!(UctIfaceOps, release), offset_of!(UctEpOps, am_short)).load();
    let component = &loaded.plugins[0].components[0];
    let transport = &component.transports[0];
    let (md, iface, ep) = (component.md_ops, transport.iface_ops, transport.ep_ops);
    /// Calls a slot with zeroes and nulls, of which a replacement uses none.
    macro_rules! call {
        ($table:ident.$slot:ident($($argument:expr),*)) => {{
            let slot = $table.$slot.expect(stringify!($slot));
            // SAFETY: the replacement of an absent slot touches none of its arguments.
            unsafe { slot(ptr::null_mut(), $($argument),*) }
        }};
    }
    macro_rules! assert_unsupported {
        ($($table:ident.$slot:ident($($argument:expr),*);)*) => {
            $(assert_eq!(call!($table.$slot($($argument),*)) as i64, UCT_ERR_UNSUPPORTED as i64, stringify!($slot));)*
        };
    }
    assert_unsupported! {
        md.mem_reg(null(), 0, 0, null(), null());
        md.mem_dereg(null());
        md.mem_alloc(null(), 0, null(), null(), null());
        md.mem_free(null());
        md.mem_advise(null(), null(), 0, 0);
        md.mkey_pack(null(), null());
        md.rkey_unpack(ptr::null(), 0, null(), null());
        md.rkey_ptr(null(), 0, null());
        md.rkey_compare(null(), null(), null());
        md.rkey_window(null(), null());
        iface.event_fd(null());
        iface.event_arm(0);
        iface.flush(0, null());
        iface.fence(0);
        iface.counters(emit_counter, null());
        iface.ep_adopt(ptr::null(), -1, 0, ptr::null(), 0, null(), null());
        ep.am_short(0, 0, ptr::null(), 0);
        ep.am_short_iov(0, ptr::null(), 0);
        ep.am_bcopy(0, pack, null(), 0);
        ep.am_zcopy(0, ptr::null(), 0, ptr::null(), 0, 0, null());
        ep.put_short(ptr::null(), 0, 0, null());
        ep.put_bcopy(pack, null(), 0, null());
        ep.put_zcopy(ptr::null(), 0, 0, null(), null());
        ep.get_short(null(), 0, 0, null());
        ep.get_bcopy(unpack, null(), 0, 0, null(), null());
        ep.get_zcopy(ptr::null(), 0, 0, null(), null());
        ep.atomic32_post(0, 0, 0, null());
        ep.atomic64_post(0, 0, 0, null());
        ep.atomic32_fetch(0, 0, null(), 0, null(), null());
        ep.atomic64_fetch(0, 0, null(), 0, null(), null());
        ep.atomic32_cswap(0, 0, null(), 0, null(), null());
        ep.atomic64_cswap(0, 0, null(), 0, null(), null());
        ep.pending_add(null());
        ep.flush(0, null());
        ep.fence(0);
        ep.check(0, null());
        ep.get_address(null());
        ep.connect_to_ep(ptr::null(), 0, ptr::null(), 0, null());
        ep.cm_token(null());
    }
    call!(md.rkey_release(null()));
    call!(iface.release(null()));
    call!(ep.pending_purge(purge, null()));
}

#[test]
fn a_connection_manager_is_whole_or_absent() {
    let _watchdog = Watchdog::new();
    let with = |cm_ops: *const UctCmOps| {
        let tables = Tables::new(size_of::<UctIfaceOps>(), size_of::<UctEpOps>());
        // SAFETY: the table is this test's, and is not loaded yet.
        unsafe { (*tables.component).cm_ops = cm_ops };
        tables.load()
    };
    assert!(with(ptr::null()).plugins[0].components[0].cm_ops.is_none());
    // SAFETY: a table of integers, pointers and functions that may be absent.
    let empty: UctCmOps = unsafe { std::mem::zeroed() };
    let short = with(keep(empty, size_of::<UctCmOps>()));
    let kind = &short.failures[0].kind;
    assert!(matches!(kind, Kind::TableTooShort { table: "UctCmOps", .. }), "{kind:?}");
    let table = UctCmOps { size: size_of::<UctCmOps>(), ..empty };
    let lacking = with(keep(table, size_of::<UctCmOps>()));
    let kind = &lacking.failures[0].kind;
    assert!(matches!(kind, Kind::MissingSlot { table: "UctCmOps", slot: "open", .. }), "{kind:?}");
}

/// The host's accesses through the windows of a plugin that does not know of the counter could not be waited for.
#[test]
fn windows_of_a_plugin_of_minor_version_0_are_not_used() {
    /// As a plugin answers that has a window.
    unsafe extern "C" fn window(_: *mut UctMd, _: *mut UctRkey, _: *mut UctWindow) -> UctStatus {
        UCT_OK
    }
    let _watchdog = Watchdog::new();
    for (minor, answer) in [(0, UCT_ERR_UNSUPPORTED), (1, UCT_OK)] {
        let tables = Tables::new(size_of::<UctIfaceOps>(), size_of::<UctEpOps>());
        // SAFETY: the tables are not shared yet.
        unsafe { (*tables.md).rkey_window = Some(window) };
        // SAFETY: as above.
        unsafe { (*tables.plugin).abi_minor = minor };
        let loaded = tables.load();
        let slot = loaded.plugins[0].components[0].md_ops.rkey_window.expect("the loader fills every slot");
        // SAFETY: neither function touches its arguments.
        assert_eq!(unsafe { slot(null(), null(), null()) }, answer, "minor version {minor}");
    }
}

fn null<T>() -> *mut T {
    ptr::null_mut()
}

const MD: UctMdOps = UctMdOps {
    size: size_of::<UctMdOps>(),
    close: Some(md_close),
    query: Some(md_query),
    mem_reg: None,
    mem_dereg: None,
    mem_alloc: None,
    mem_free: None,
    mem_advise: None,
    mkey_pack: None,
    rkey_unpack: None,
    rkey_release: None,
    rkey_ptr: None,
    rkey_compare: None,
    rkey_window: None,
};

const IFACE: UctIfaceOps = UctIfaceOps {
    size: size_of::<UctIfaceOps>(),
    close: Some(iface_close),
    query: Some(iface_query),
    get_device_address: Some(iface_address),
    get_address: Some(iface_address),
    is_reachable: Some(is_reachable),
    progress: Some(progress),
    ep_create: Some(ep_create),
    release: None,
    event_fd: None,
    event_arm: None,
    flush: None,
    fence: None,
    counters: None,
    ep_adopt: None,
};

const EP: UctEpOps = UctEpOps {
    size: size_of::<UctEpOps>(),
    destroy: Some(ep_destroy),
    am_short: None,
    am_short_iov: None,
    am_bcopy: None,
    am_zcopy: None,
    put_short: None,
    put_bcopy: None,
    put_zcopy: None,
    get_short: None,
    get_bcopy: None,
    get_zcopy: None,
    atomic32_post: None,
    atomic64_post: None,
    atomic32_fetch: None,
    atomic64_fetch: None,
    atomic32_cswap: None,
    atomic64_cswap: None,
    pending_add: None,
    pending_purge: None,
    flush: None,
    fence: None,
    check: None,
    get_address: None,
    connect_to_ep: None,
    cm_token: None,
};

unsafe extern "C" fn md_close(_: *mut UctMd) {}
unsafe extern "C" fn md_query(_: *mut UctMd, _: *mut UctMdAttr) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn iface_close(_: *mut UctIface) {}
unsafe extern "C" fn iface_query(_: *mut UctIface, _: *mut UctIfaceAttr) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn iface_address(_: *mut UctIface, _: *mut u8) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn is_reachable(
    _: *mut UctIface,
    _: *const u8,
    _: usize,
    _: *const u8,
    _: usize,
    _: u32,
    _: *mut UctText,
) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn progress(_: *mut UctIface) -> u32 {
    0
}
unsafe extern "C" fn ep_create(
    _: *mut UctIface,
    _: *const UctEpParams,
    _: *mut *mut UctEp,
    _: *mut UctText,
) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn ep_destroy(_: *mut UctEp) {}
unsafe extern "C" fn query_devices(
    _: *mut UctMd,
    _: *const UctConfig,
    _: UctEmitDevice,
    _: *mut c_void,
    _: *mut UctText,
) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn iface_open(
    _: *mut UctMd,
    _: *const UctIfaceParams,
    _: *mut *mut UctIface,
    _: *mut UctText,
) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn query_mds(
    _: *const UctConfig,
    _: UctEmitName,
    _: *mut c_void,
    _: *mut UctText,
) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn md_open(
    _: UctStr,
    _: *const UctConfig,
    _: *mut *mut UctMd,
    _: *mut UctText,
) -> UctStatus {
    UCT_OK
}
unsafe extern "C" fn emit_counter(_: *mut c_void, _: UctStr, _: u64) {}
unsafe extern "C" fn pack(_: *mut c_void, _: *mut c_void) -> usize {
    0
}
unsafe extern "C" fn unpack(_: *mut c_void, _: *const c_void, _: usize) {}
unsafe extern "C" fn purge(_: *mut UctPendingReq, _: *mut c_void) {}
