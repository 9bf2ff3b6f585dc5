//! uct-core/plugin
