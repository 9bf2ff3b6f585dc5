//! The memory domain of `tcp`: a table of registered regions, against which every access of a peer is checked.

use std::sync::Arc;

use uct_plugin::memory::{KnownDomains, RegionDomain, Regions, RemoteKey};
use uct_plugin::{Component, Failure, Result, Settings};

/// The component `tcp`.
pub(crate) struct TcpComponent;

/// The memory domain `tcp`.
#[derive(Default)]
pub(crate) struct TcpMd {
    pub(crate) regions: Arc<Regions>,
}

/// The memory domains of this process that have interfaces.
pub(crate) static OWN: KnownDomains<TcpMd> = KnownDomains::new();

impl Component for TcpComponent {
    const NAME: &'static str = "tcp";
    type Md = TcpMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        Ok(vec!["tcp".to_owned()])
    }

    fn open(_name: &str, _settings: &Settings<'_>) -> Result<TcpMd, Failure> {
        Ok(TcpMd::default())
    }
}

impl RegionDomain for TcpMd {
    type Key = RemoteKey;

    fn regions(&self) -> &Regions {
        &self.regions
    }
}
