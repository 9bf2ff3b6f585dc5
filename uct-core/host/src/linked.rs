//! Transports that are linked into the program.
//!
//! The host names no transport. A crate that links some registers them with [`link_transports!`](crate::link_transports), as `uct-core`
//! does for those of its features. Built on `inventory`; used by the context.

use uct_abi::UctPlugin;

#[doc(hidden)]
pub use inventory;

/// Plugins of a crate that is linked into the program, in the order in which they are listed.
#[derive(Debug)]
pub struct Linked(
    /// Returns their tables.
    pub fn() -> Vec<&'static UctPlugin>,
);

inventory::collect!(Linked);

/// All that are linked. Crates come in the linker's order.
pub(crate) fn plugins() -> Vec<&'static UctPlugin> {
    inventory::iter::<Linked>.into_iter().flat_map(|linked| (linked.0)()).collect()
}

/// Registers plugins that are linked into the program: a path of a function without arguments that returns a vector of their tables.
///
/// Each [`Context`](crate::Context) of the process then loads them as it loads files. Registration happens before `main`, in every
/// program that the crate with this call is linked into.
///
/// ```
/// uct_host::link_transports!(plugins);
///
/// fn plugins() -> Vec<&'static uct_abi::UctPlugin> {
///     vec![uct_self::plugin()]
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = uct_host::Context::builder().build()?;
/// assert!(context.plugins().iter().any(|plugin| plugin.name == "self"));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! link_transports {
    ($plugins:path) => {
        $crate::linked::inventory::submit! { $crate::linked::Linked($plugins) }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::link_transports!(of_these_tests);

    fn of_these_tests() -> Vec<&'static UctPlugin> {
        vec![uct_self::plugin(), uct_tcp::plugin(), uct_shm::plugin()]
    }

    #[test]
    fn what_a_crate_registers_is_loaded_in_its_order() {
        let context = crate::Context::builder().sources(ucs::config::Sources::default()).build().unwrap();
        let built_in =
            |plugin: &&crate::loader::Plugin| plugin.origin == crate::loader::PluginOrigin::BuiltIn;
        let names: Vec<&str> =
            context.plugins().iter().filter(built_in).map(|plugin| plugin.name.as_str()).collect();
        assert_eq!(names, ["self", "tcp", "shm"]);
    }
}
