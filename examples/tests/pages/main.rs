//! The pages of this workspace say what is so.

#[path = "../schema/mod.rs"]
mod schema;

mod configuration_page;
mod links;
mod matrix;
mod security_keys;
mod transports_readme;
mod tutorials;
