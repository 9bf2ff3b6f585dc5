//! `libuct_self.so`: the exported function of the plugin. The code is in the crate `uct-self`.

uct_plugin::export_plugin!(uct_plugin_self => transport::plugin);
