//! `libuct_shm.so`: the exported function of the plugin. The code is in the crate `uct-shm`.

uct_plugin::export_plugin!(uct_plugin_shm => transport::plugin);
