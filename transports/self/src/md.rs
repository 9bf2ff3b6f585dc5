//! The memory domain of `self`: all memory of the process, and keys that are checked all the same.

use std::sync::{Arc, LazyLock};

use uct_plugin::memory::{Region, RegionDomain, Regions};
use uct_plugin::{Component, Failure, Result, Settings};

/// The component `self`.
pub(crate) struct SelfComponent;

/// The memory domain `self`.
pub(crate) struct SelfMd;

/// One table for the process, so that contexts of one process reach each other's memory.
static REGIONS: LazyLock<Regions> = LazyLock::new(Regions::default);

impl Component for SelfComponent {
    const NAME: &'static str = "self";
    type Md = SelfMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        Ok(vec!["self".to_owned()])
    }

    fn open(_name: &str, _settings: &Settings<'_>) -> Result<SelfMd, Failure> {
        Ok(SelfMd)
    }
}

impl RegionDomain for SelfMd {
    type Key = Arc<Region>;

    fn regions(&self) -> &Regions {
        &REGIONS
    }
}
