//! `uct_info` as its users start it.

#[path = "../support/mod.rs"]
mod support;

mod attach;
mod calibrate;
mod config_template;
mod doctor;
mod explain;
mod privileges;
mod sections;
mod watch;
