//! `libuct_ud_verbs.so`: the exported function of the plugin. The code is in the crate `uct-ud-verbs`.

uct_plugin::export_plugin!(uct_plugin_ud_verbs => transport::plugin);
