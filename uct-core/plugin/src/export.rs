//! The macros that make a plugin of a crate.

use ucs::config::{Field, Kind, Section};
use uct_abi::*;

use crate::failure::Failure;
use crate::{guard, host};

/// Defines a plugin: its name, the structs of its configuration, its components and their transports.
///
/// ```ignore
/// uct_plugin::define_plugin! {
///     name: "self",
///     config: [SelfConfig],
///     components: [SelfComponent => [SelfTransport]],
/// }
/// ```
///
/// makes the function `plugin()`. A program that links the transport statically registers the table that it returns;
/// [`export_plugin!`](crate::export_plugin) exports it from a library.
///
/// A component with a [connection manager](crate::ConnectionManager) names it: `SelfComponent => [SelfTransport] with SelfCm`.
///
/// A plugin that has to prepare something, or to refuse its service, names a `fn() -> Result<(), Failure>` in a line
/// `init: prepare,` behind `name`. The host calls it once, ahead of everything else.
#[macro_export]
macro_rules! define_plugin {
    (
        name: $name:literal,
        $(init: $init:path,)?
        config: [$($config:ty),* $(,)?],
        components: [$($component:ty => [$($transport:ty),* $(,)?] $(with $cm:ty)?),+ $(,)?] $(,)?
    ) => {
        /// The plugin's table, for a program that links the transport statically.
        pub fn plugin() -> &'static $crate::abi::UctPlugin {
            struct Start;

            impl $crate::export::Start for Start {
                fn start() -> $crate::Result<(), $crate::Failure> {
                    $($init()?;)?
                    Ok(())
                }
            }

            static TABLE: ::std::sync::OnceLock<&'static $crate::abi::UctPlugin> = ::std::sync::OnceLock::new();
            static COMPONENTS: &[&$crate::abi::UctComponentOps] = &[$(
                {
                    static TRANSPORTS: &[&$crate::abi::UctTlOps] =
                        &[$(&$crate::export_support::TlTables::<$transport>::OPS),*];
                    #[allow(unused_mut, unused_assignments, reason = "for a component without a connection manager")]
                    const CM: *const $crate::abi::UctCmOps = {
                        let mut ops = ::std::ptr::null();
                        $(ops = &raw const *$crate::export_support::cm_ops::<$cm>();)?
                        ops
                    };
                    static OPS: $crate::abi::UctComponentOps =
                        $crate::export_support::ComponentTables::<$component>::ops(TRANSPORTS, CM);
                    &OPS
                }
            ),+];
            TABLE.get_or_init(|| {
                let sections = ::std::vec![$(<$config>::section()),*];
                $crate::export_support::table::<Start>($name, env!("CARGO_PKG_VERSION"), COMPONENTS, sections)
            })
        }
    };
}

/// Exports a plugin from a `cdylib`: `export_plugin!(uct_plugin_NAME => path::to::plugin)`.
///
/// The function `uct_plugin_NAME` is what the host looks up in `libuct_NAME.so`: file, function and plugin share the name. The second
/// name is the function that [`define_plugin!`](crate::define_plugin) made, in this crate or in another one.
#[macro_export]
macro_rules! export_plugin {
    ($entry:ident => $plugin:path $(,)?) => {
        /// What the host looks up in the plugin's file.
        #[unsafe(no_mangle)]
        pub extern "C" fn $entry() -> *const $crate::abi::UctPlugin {
            $plugin()
        }
    };
}

/// What a plugin does ahead of everything else.
pub trait Start: 'static {
    /// A failure makes the host leave the plugin out.
    fn start() -> ucs::Result<(), Failure>;
}

/// Builds the table of a plugin; made once and kept for ever.
pub fn table<S: Start>(
    name: &'static str,
    version: &'static str,
    components: &'static [&'static UctComponentOps],
    sections: Vec<Section>,
) -> &'static UctPlugin {
    let config = sections.iter().map(section).collect::<Vec<_>>().leak();
    Box::leak(Box::new(UctPlugin {
        magic: UCT_MAGIC,
        abi_major: UCT_ABI_MAJOR,
        abi_minor: UCT_ABI_MINOR,
        size: size_of::<UctPlugin>(),
        name: text(name),
        version: text(version),
        components: components.as_ptr().cast(),
        component_count: components.len(),
        config: config.as_ptr(),
        config_count: config.len(),
        init: Some(init::<S>),
    }))
}

fn section(section: &Section) -> UctConfigSection {
    let fields = section.fields.iter().map(field).collect::<Vec<_>>().leak();
    UctConfigSection {
        name: kept(&section.name),
        doc: kept(&section.doc),
        fields: fields.as_ptr(),
        count: fields.len(),
    }
}

fn field(field: &Field) -> UctConfigField {
    let clip = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (kind, minimum, maximum) = match field.kind {
        Kind::Bool => (UCT_CONFIG_BOOL, 0, 0),
        Kind::Ternary => (UCT_CONFIG_TERNARY, 0, 0),
        Kind::Int { min, max } => (UCT_CONFIG_INT, min, max),
        Kind::UInt { min, max } => (UCT_CONFIG_UINT, clip(min), clip(max)),
        Kind::Count => (UCT_CONFIG_COUNT, 0, 0),
        Kind::MemSize { min, max } => (UCT_CONFIG_MEMSIZE, clip(min), clip(max)),
        Kind::Time => (UCT_CONFIG_TIME, 0, 0),
        Kind::Bandwidth => (UCT_CONFIG_BANDWIDTH, 0, 0),
        Kind::Real => (UCT_CONFIG_REAL, 0, 0),
        Kind::Path => (UCT_CONFIG_PATH, 0, 0),
        Kind::List => (UCT_CONFIG_LIST, 0, 0),
        Kind::NameList => (UCT_CONFIG_NAMES, 0, 0),
        Kind::Range => (UCT_CONFIG_RANGE, 0, 0),
        Kind::Enum(_) => (UCT_CONFIG_ENUM, 0, 0),
        _ => (UCT_CONFIG_TEXT, 0, 0),
    };
    let choices = match &field.kind {
        Kind::Enum(choices) => choices.join("|"),
        _ => String::new(),
    };
    UctConfigField {
        name: kept(&field.name),
        kind,
        flags: if field.security { UCT_CONFIG_SECURITY } else { 0 },
        minimum,
        maximum,
        choices: text(choices.leak()),
        default_text: kept(&field.default),
        doc: kept(&field.doc),
    }
}

fn kept(words: &str) -> UctStr {
    text(words.to_owned().leak())
}

fn text(words: &'static str) -> UctStr {
    UctStr { data: words.as_ptr(), length: words.len() }
}

/// The `init` of every exported plugin.
unsafe extern "C" fn init<S: Start>(table: *const UctHost, reason: *mut UctText) -> UctStatus {
    guard::explained("init", reason, || {
        // SAFETY: the host's table is valid for ever (`UctHost`).
        let result = match unsafe { table.as_ref() } {
            Some(table) => host::set(table),
            None => Err(Failure::new(ucs::Error::INVALID_PARAM, "the host passed no table")),
        };
        result.and_then(|()| S::start()).map_or_else(|failure| failure.write(reason), |()| UCT_OK)
    })
}
