//! The component `rdmacm`, which has a connection manager and no memory domain.

use uct_plugin::{Component, Error, Failure, Md, MdAttr, Result, Settings, attr};

/// The component `rdmacm`.
pub(crate) struct RdmacmComponent;

/// There is none.
pub(crate) enum NoMd {}

impl Component for RdmacmComponent {
    const NAME: &'static str = "rdmacm";
    type Md = NoMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn open(name: &str, _settings: &Settings<'_>) -> Result<NoMd, Failure> {
        Err(Failure::new(Error::NO_DEVICE, format!("rdmacm has no memory domain, so none of name `{name}`")))
    }
}

impl Md for NoMd {
    type Memh = ();
    type Rkey = ();

    fn attributes(&self) -> MdAttr {
        attr::blank_md()
    }
}
