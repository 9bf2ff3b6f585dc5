//! The configuration that the verbs transports and `rdmacm` share.

use crate::error::IbError;
use crate::verbs::{self, Verbs};

ucs::config_struct! {
    /// What the transports and connection managers over verbs share.
    pub struct IbConfig in "ib" {
        /// The library with the verbs: auto is the system's libibverbs, an absolute path that file in its place, and soft a device made of
        /// software inside this process, which needs neither an adapter nor privileges.
        #[security = true]
        pub library: String = "auto",
    }
}

impl IbConfig {
    /// Whether the device in software is asked for.
    pub fn is_software(&self) -> bool {
        self.library == verbs::SOFTWARE
    }

    /// The verbs of the key `library`.
    ///
    /// # Errors
    /// As for [`verbs::load`].
    pub fn verbs(&self) -> Result<Verbs, IbError> {
        verbs::load(&self.library)
    }
}
