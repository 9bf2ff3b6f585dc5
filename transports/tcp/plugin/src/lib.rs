//! `libuct_tcp.so`: the exported function of the plugin. The code is in the crate `uct-tcp`.

uct_plugin::export_plugin!(uct_plugin_tcp => transport::plugin);
