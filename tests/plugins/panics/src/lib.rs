//! Two plugins that panic, in one library: `panics_init` when it starts, `panics_slot` in every slot it is asked in.
//!
//! For the tests of the loader, which copy the library to `libuct_panics_init.so` and `libuct_panics_slot.so`. Built on
//! `uct-plugin`, whose guard is what is tested.

mod slots;

uct_plugin::export_plugin!(uct_plugin_panics_init => panics_init::plugin);
uct_plugin::export_plugin!(uct_plugin_panics_slot => panics_slot::plugin);

/// The plugin that panics when it starts.
pub mod panics_init {
    use crate::slots::{PanickingComponent, PanickingTransport};

    uct_plugin::define_plugin! {
        name: "panics_init",
        init: panics,
        config: [],
        components: [PanickingComponent => [PanickingTransport]],
    }

    fn panics() -> uct_plugin::Result<(), uct_plugin::Failure> {
        panic!("there is no {} here", "init");
    }
}

/// The plugin that panics in its slots.
pub mod panics_slot {
    use crate::slots::{PanickingComponent, PanickingTransport};

    uct_plugin::define_plugin! {
        name: "panics_slot",
        config: [],
        components: [PanickingComponent => [PanickingTransport]],
    }
}
