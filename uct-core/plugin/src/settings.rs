//! The plugin's configuration as the host hands it over.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::slice;

use ucs::config::Lookup;

use uct_abi::{UctConfig, UctConfigValue, UctStr};

/// The values of all keys of the plugin, already checked against their kinds and ranges by the host.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    values: &'a [UctConfigValue],
    host: PhantomData<&'a UctConfig>,
}

impl<'a> Settings<'a> {
    /// # Safety
    /// `config` is null or valid for `'a`, with all it points to.
    pub(crate) unsafe fn new(config: *const UctConfig) -> Settings<'a> {
        // SAFETY: the caller's promise.
        let values = match unsafe { config.as_ref() } {
            Some(config) if config.count > 0 => {
                // SAFETY: `values` are `count` entries (`UctConfig`).
                unsafe { slice::from_raw_parts(config.values, config.count) }
            }
            _ => &[],
        };
        Settings { values, host: PhantomData }
    }

    /// Whether memory of peers is to be mapped completely before its first use: the key `populate` of all transports. Not with a host that
    /// does not know it.
    pub fn populates(&self) -> bool {
        self.value("", "populate").is_some_and(|value| value.integer == 1)
    }

    fn value(&self, section: &str, name: &str) -> Option<&'a UctConfigValue> {
        self.values.iter().find(|value| {
            // SAFETY: strings of the host are valid for `'a` (`Settings::new`).
            let in_section = unsafe { words(value.section) } == section;
            // SAFETY: as above.
            in_section && unsafe { words(value.name) } == name
        })
    }
}

/// So that the struct of a [`ucs::config_struct!`] reads itself: `TcpConfig::from_settings(&settings)`.
impl Lookup for Settings<'_> {
    fn text(&self, section: &str, name: &str) -> Option<Cow<'_, str>> {
        // SAFETY: strings of the host are valid for `'a` (`Settings::new`).
        self.value(section, name).map(|value| Cow::Borrowed(unsafe { words(value.text) }))
    }
}

/// # Safety
/// As `tables::words`.
unsafe fn words<'a>(text: UctStr) -> &'a str {
    if text.length == 0 {
        return "";
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(text.data, text.length) };
    std::str::from_utf8(bytes).unwrap_or("")
}
