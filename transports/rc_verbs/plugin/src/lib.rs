//! `libuct_rc_verbs.so`: the exported function of the plugin. The code is in the crate `uct-rc-verbs`.

uct_plugin::export_plugin!(uct_plugin_rc_verbs => transport::plugin);
