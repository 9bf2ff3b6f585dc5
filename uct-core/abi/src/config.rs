//! Configuration across the boundary: a plugin describes its keys, the host hands back their values.

use crate::UctStr;

/// Yes or no.
pub const UCT_CONFIG_BOOL: u32 = 0;
/// Yes, no, try or auto; `integer` is 0 no, 1 yes, 2 try, 3 auto.
pub const UCT_CONFIG_TERNARY: u32 = 1;
/// A signed integer.
pub const UCT_CONFIG_INT: u32 = 2;
/// An unsigned integer.
pub const UCT_CONFIG_UINT: u32 = 3;
/// An unsigned integer, `inf` or `auto`.
pub const UCT_CONFIG_COUNT: u32 = 4;
/// Bytes: `8k` is 8192; `inf`, `auto`.
pub const UCT_CONFIG_MEMSIZE: u32 = 5;
/// Time; `real` is seconds.
pub const UCT_CONFIG_TIME: u32 = 6;
/// Bandwidth; `real` is bytes per second.
pub const UCT_CONFIG_BANDWIDTH: u32 = 7;
/// A real number.
pub const UCT_CONFIG_REAL: u32 = 8;
/// Text.
pub const UCT_CONFIG_TEXT: u32 = 9;
/// A file or directory.
pub const UCT_CONFIG_PATH: u32 = 10;
/// A comma separated list.
pub const UCT_CONFIG_LIST: u32 = 11;
/// A comma separated list of names or patterns, with a leading `^` for "all but these".
pub const UCT_CONFIG_NAMES: u32 = 12;
/// A range `low-high`.
pub const UCT_CONFIG_RANGE: u32 = 13;
/// One of `choices`; `integer` is its index.
pub const UCT_CONFIG_ENUM: u32 = 14;

/// Flag of a key that decides whose code runs, who may connect, or how far a peer is trusted. The host takes it from no file
/// that was found in the working directory.
pub const UCT_CONFIG_SECURITY: u32 = 1;

/// `integer` of a count or size that is `inf`.
pub const UCT_CONFIG_INF: u64 = u64::MAX;
/// `integer` of a count or size that is `auto`.
pub const UCT_CONFIG_AUTO: u64 = u64::MAX - 1;

/// One key of a plugin. The key `tx_seg_size` of section `tcp` is `[tcp] tx_seg_size` in a file and
/// `UCT_TCP_TX_SEG_SIZE` in the environment.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctConfigField {
    /// Lower case, words joined by underscores.
    pub name: UctStr,
    /// `UCT_CONFIG_*`.
    pub kind: u32,
    /// [`UCT_CONFIG_SECURITY`], or 0. Read from plugins of minor version 1 and later; before, the place was unused.
    pub flags: u32,
    /// Least value for integers and sizes; `minimum` = `maximum` = 0 means unlimited.
    pub minimum: i64,
    /// Greatest value for integers and sizes.
    pub maximum: i64,
    /// For `UCT_CONFIG_ENUM`: the choices, separated by `|`.
    pub choices: UctStr,
    /// The default, as a user would write it.
    pub default_text: UctStr,
    /// What the key does, in a sentence or two.
    pub doc: UctStr,
}

/// A group of keys.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctConfigSection {
    /// Lower case; usually the transport's name.
    pub name: UctStr,
    /// What the keys are about.
    pub doc: UctStr,
    /// First of `count` keys.
    pub fields: *const UctConfigField,
    /// Number of keys.
    pub count: usize,
}

/// One value, checked by the host against the key's kind and range.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctConfigValue {
    /// The section.
    pub section: UctStr,
    /// The key.
    pub name: UctStr,
    /// As text, in the form the user would write.
    pub text: UctStr,
    /// As an integer: bytes, count, 0/1, ternary, index of the choice.
    pub integer: u64,
    /// As a real number: seconds, bytes per second.
    pub real: f64,
}

/// The values of all keys of the plugin, and of the key `populate` of the section "", which is for all transports. Valid for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctConfig {
    /// Size of this table in bytes.
    pub size: usize,
    /// First of `count` values.
    pub values: *const UctConfigValue,
    /// Number of values.
    pub count: usize,
}
