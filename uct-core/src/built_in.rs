//! The transports that are linked in: those of the crate's features, in the order in which they are listed.
//! Registered with the host, which meets them through `uct-abi` alone.

use uct_abi::UctPlugin;

uct_host::link_transports!(plugins);

fn plugins() -> Vec<&'static UctPlugin> {
    vec![
        #[cfg(feature = "self")]
        uct_self::plugin(),
        #[cfg(feature = "tcp")]
        uct_tcp::plugin(),
        #[cfg(feature = "shm")]
        uct_shm::plugin(),
        #[cfg(feature = "rc_verbs")]
        uct_rc_verbs::plugin(),
        #[cfg(feature = "rdmacm")]
        uct_rdmacm::plugin(),
        #[cfg(feature = "ud_verbs")]
        uct_ud_verbs::plugin(),
    ]
}
