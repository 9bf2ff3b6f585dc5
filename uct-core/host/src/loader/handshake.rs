//! Checks what a plugin offers, in the order of the boundary: magic, major version, size, mandatory slots; then `init`.
//!
//! Used by [`load`](super::load). Built on [`overlay`](super::overlay) and [`text`](super::text). Files and plugins
//! that are linked into the program come through here alike.

use std::{mem::offset_of, ptr};

use ucs::Status;
use uct_abi::{
    UCT_ABI_MAJOR, UCT_MAGIC, UCT_OK, UctCmOps, UctComponentOps, UctEpOps, UctHost, UctIfaceOps, UctMdOps,
    UctPlugin, UctTlOps,
};

use super::{
    Component, Slot, Transport,
    array::array,
    config,
    failure::LoadFailureKind,
    names::check_distinct,
    overlay::overlay,
    text::{COMPONENT_NAME_LIMIT, TL_NAME_LIMIT, name, text, with_reason},
};

/// The minor version from which on the end of a registration waits for the host's accesses through windows
/// (`UctEpParams::accesses`). Keys of an older plugin have none.
const ACCESSES_SINCE: u32 = 1;
/// Longest name of a plugin, in bytes.
const PLUGIN_NAME_LIMIT: usize = 32;
/// Most components of one plugin.
const COMPONENT_LIMIT: usize = 64;
/// Most transports of one component.
const TRANSPORT_LIMIT: usize = 64;
/// Most groups of configuration keys of one plugin.
const SECTION_LIMIT: usize = 64;

/// A plugin that passed every check that needs none of its code. Plain data, and good for ever.
#[derive(Clone)]
pub(super) struct Prepared {
    pub name: String,
    pub version: String,
    pub components: Vec<Component>,
    pub config: Vec<ucs::config::Section>,
    init: Init,
}

type Init = Option<unsafe extern "C" fn(*const UctHost, *mut uct_abi::UctText) -> uct_abi::UctStatus>;

/// Reads and checks all tables of a plugin, and makes ours from them. Calls nothing.
///
/// # Errors
/// The first thing that is wrong, in the order of the boundary.
///
/// # Safety
/// `plugin` is null, or points to a table whose magic, versions and size are correct as far as it has them,
/// whose pointers lead to what their types say, and that stays as it is for ever.
pub(super) unsafe fn prepare(plugin: *const UctPlugin) -> Result<Prepared, LoadFailureKind> {
    // SAFETY: the caller promises a table, or null.
    unsafe { check_version(plugin) }?;
    // SAFETY: as above; with our magic and our major version it has a size.
    let table = unsafe { overlay(plugin, "the plugin") }?;
    // SAFETY: the caller promises that the table's strings are readable.
    let plugin_name = unsafe { name(table.name, "name of the plugin", PLUGIN_NAME_LIMIT) }?;
    // SAFETY: as above.
    let version = unsafe { text(table.version, "version of the plugin") }?;
    // SAFETY: the caller promises that the table's lists are readable.
    let offered = unsafe { array(table.components, table.component_count, "components", COMPONENT_LIMIT) }?;
    let mut components = Vec::with_capacity(offered.len());
    for &component in offered {
        // SAFETY: as for the list.
        components.push(unsafe { prepare_component(component, table.abi_minor) }?);
    }
    check_distinct(&components)?;
    // SAFETY: as above.
    let described =
        unsafe { array(table.config, table.config_count, "configuration sections", SECTION_LIMIT) }?;
    let mut sections = Vec::with_capacity(described.len());
    for section in described {
        // SAFETY: as for the list.
        sections.push(unsafe { config::section(section, table.abi_minor) }?);
    }
    Ok(Prepared { name: plugin_name, version, components, config: sections, init: table.init })
}

/// # Safety
/// As for [`prepare`].
unsafe fn check_version(plugin: *const UctPlugin) -> Result<(), LoadFailureKind> {
    if plugin.is_null() || !plugin.is_aligned() {
        return Err(LoadFailureKind::NoTable { table: "UctPlugin", subject: "the plugin".to_owned() });
    }
    let magic = plugin.wrapping_byte_add(offset_of!(UctPlugin, magic)).cast::<u64>();
    // SAFETY: the caller promises a table; every version of it begins with eight bytes of magic.
    let found = unsafe { magic.read() };
    if found != UCT_MAGIC {
        return Err(LoadFailureKind::Magic { expected: UCT_MAGIC, found });
    }
    let versions = plugin.wrapping_byte_add(offset_of!(UctPlugin, abi_major)).cast::<[u32; 2]>();
    // SAFETY: behind our magic two versions of four bytes are in every version of the table.
    let [found_major, found_minor] = unsafe { versions.read() };
    if found_major != UCT_ABI_MAJOR {
        return Err(LoadFailureKind::AbiMajor { expected_major: UCT_ABI_MAJOR, found_major, found_minor });
    }
    Ok(())
}

/// # Safety
/// As for [`prepare`].
unsafe fn prepare_component(
    offered: *const UctComponentOps,
    abi_minor: u32,
) -> Result<Component, LoadFailureKind> {
    // SAFETY: the caller promises a table, or null.
    let mut table: UctComponentOps = unsafe { overlay(offered, "a component") }?;
    // SAFETY: the caller promises that the table's strings are readable.
    let component = unsafe { name(table.name, "name of a component", COMPONENT_NAME_LIMIT) }?;
    // SAFETY: the caller promises that the table's pointers lead to such tables.
    let mut md_ops: UctMdOps = unsafe { overlay(table.md_ops, &format!("component {component}")) }?;
    if abi_minor < ACCESSES_SINCE {
        md_ops.rkey_window = Some(Slot::UNSUPPORTED);
    }
    // SAFETY: the caller promises that the table's lists are readable.
    let offered = unsafe { array(table.tls, table.tl_count, "transports", TRANSPORT_LIMIT) }?;
    let mut transports = Vec::with_capacity(offered.len());
    for &transport in offered {
        // SAFETY: as for the list.
        transports.push(unsafe { prepare_transport(transport) }?);
    }
    let md_ops = leak(md_ops);
    let tables: Vec<*const UctTlOps> =
        transports.iter().map(|transport| ptr::from_ref(transport.ops)).collect();
    table.md_ops = md_ops;
    table.tls = Vec::leak(tables).as_ptr();
    let cm_ops = if table.cm_ops.is_null() {
        None
    } else {
        // SAFETY: the caller promises that the table's pointers lead to such tables.
        Some(leak(unsafe { overlay::<UctCmOps>(table.cm_ops, &format!("component {component}")) }?))
    };
    table.cm_ops = cm_ops.map_or(ptr::null(), ptr::from_ref);
    Ok(Component { name: component, ops: leak(table), md_ops, cm_ops, transports })
}

/// # Safety
/// As for [`prepare`].
unsafe fn prepare_transport(offered: *const UctTlOps) -> Result<Transport, LoadFailureKind> {
    // SAFETY: the caller promises a table, or null.
    let mut table: UctTlOps = unsafe { overlay(offered, "a transport") }?;
    // SAFETY: the caller promises that the table's strings are readable.
    let transport = unsafe { name(table.name, "name of a transport", TL_NAME_LIMIT) }?;
    let subject = format!("transport {transport}");
    // SAFETY: the caller promises that the table's pointers lead to such tables.
    let iface_ops: UctIfaceOps = unsafe { overlay(table.iface_ops, &subject) }?;
    // SAFETY: as above.
    let ep_ops: UctEpOps = unsafe { overlay(table.ep_ops, &subject) }?;
    let (iface_ops, ep_ops) = (leak(iface_ops), leak(ep_ops));
    table.iface_ops = iface_ops;
    table.ep_ops = ep_ops;
    Ok(Transport { name: transport, ops: leak(table), iface_ops, ep_ops })
}

/// The tables are called until the process ends; there is one set for each plugin.
fn leak<T>(table: T) -> &'static T {
    Box::leak(Box::new(table))
}

/// Lets the plugin start. To be called once in the life of the process.
///
/// # Errors
/// Its refusal with the reason. A plugin that guards its slots reports a panic in the same way.
pub(super) fn start(plugin: &Prepared, host: &'static UctHost) -> Result<(), LoadFailureKind> {
    let Some(init) = plugin.init else { return Ok(()) };
    // SAFETY: the table has our major version, in which the slot is this function; the host's table lives for ever,
    // and the text for the call.
    let (status, reason) = with_reason(|reason| unsafe { init(host, reason) });
    if status == UCT_OK {
        return Ok(());
    }
    Err(LoadFailureKind::Init { status: Status::from_raw(status), reason })
}
