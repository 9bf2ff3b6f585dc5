//! What a plugin exports.

use crate::{UctComponentOps, UctConfigSection, UctHost, UctStatus, UctStr, UctText};

/// The first eight bytes of [`UctPlugin`]: "UCTPLUG" and a zero, in the order of bytes in memory.
pub const UCT_MAGIC: u64 = 0x0047_554c_5054_4355;

/// Plugins of another major version are refused.
pub const UCT_ABI_MAJOR: u32 = 1;
/// Grows with every slot, flag or field that is added.
pub const UCT_ABI_MINOR: u32 = 8;

/// The symbol of the plugin in `libuct_NAME.so` is this followed by `NAME`; it is a function of type
/// [`UctPluginEntry`].
pub const UCT_PLUGIN_SYMBOL_PREFIX: &str = "uct_plugin_";

/// The one exported function: returns the plugin's table, which is valid for ever.
pub type UctPluginEntry = unsafe extern "C" fn() -> *const UctPlugin;

/// A plugin. The host checks, in this order: magic, major version, size, mandatory slots; then it calls `init`.
/// A plugin whose `init` succeeded is never unloaded.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctPlugin {
    /// [`UCT_MAGIC`].
    pub magic: u64,
    /// [`UCT_ABI_MAJOR`].
    pub abi_major: u32,
    /// [`UCT_ABI_MINOR`].
    pub abi_minor: u32,
    /// Size of this table in bytes.
    pub size: usize,
    /// Name of the plugin. *Mandatory.*
    pub name: UctStr,
    /// Version of the plugin, human-readable.
    pub version: UctStr,
    /// First of `component_count` components. *Mandatory.*
    pub components: *const *const UctComponentOps,
    /// Number of components.
    pub component_count: usize,
    /// First of `config_count` groups of configuration keys.
    pub config: *const UctConfigSection,
    /// Number of groups.
    pub config_count: usize,
    /// Called once, before everything else. An error with a reason makes the host skip the plugin.
    pub init: Option<unsafe extern "C" fn(host: *const UctHost, reason: *mut UctText) -> UctStatus>,
}

// SAFETY: a plugin's table is immutable data that outlives the process; its pointers are to more of the same.
unsafe impl Sync for UctPlugin {}
// SAFETY: as for `UctPlugin`.
unsafe impl Sync for UctComponentOps {}
// SAFETY: as for `UctPlugin`.
unsafe impl Sync for crate::UctCmOps {}
// SAFETY: as for `UctPlugin`.
unsafe impl Sync for crate::UctTlOps {}
// SAFETY: as for `UctPlugin`.
unsafe impl Sync for UctConfigSection {}
// SAFETY: as for `UctPlugin`.
unsafe impl Sync for crate::UctConfigField {}
// SAFETY: as for `UctPlugin`: the string constants of a table are immutable and live for ever.
unsafe impl Sync for UctStr {}
