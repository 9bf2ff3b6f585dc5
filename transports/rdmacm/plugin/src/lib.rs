//! `libuct_rdmacm.so`: the exported function of the plugin. The code is in the crate `uct-rdmacm`.

uct_plugin::export_plugin!(uct_plugin_rdmacm => transport::plugin);
