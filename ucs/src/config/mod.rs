//! Configuration: one schema, from which come parsing of a file and of the environment, listings and documents.
//!
//! Built on [`units`](crate::units). Used by the host, which loads it, and by every transport, which adds its
//! section. Each key exists once, in a [`config_struct!`](crate::config_struct) or a [`Field`].
//!
//! ```
//! use ucs::{config::{Config, Schema, Sources}, config_struct, units::MemSize};
//!
//! config_struct! {
//!     /// Sockets.
//!     pub struct TcpConfig in "tcp" {
//!         /// Largest message that is copied.
//!         pub tx_seg_size: MemSize = "8k",
//!         /// Connections that wait to be accepted.
//!         pub backlog: u32 = "64" in 1..=4096,
//!     }
//! }
//!
//! let mut schema = Schema::new();
//! schema.add_section(TcpConfig::section())?;
//! let sources = Sources::default().env([("UCT_TCP_TX_SEG_SIZE", "64k")]).set("tcp.backlog", "8");
//! let loaded = Config::load(&schema, &sources)?;
//! assert!(loaded.warnings.is_empty());
//! let tcp = TcpConfig::from_settings(&loaded.config)?;
//! assert_eq!((tcp.tx_seg_size.bytes(), tcp.backlog), (65536, 8));
//! let setting = loaded.config.value("tcp", "tx_seg_size").unwrap();
//! assert_eq!(setting.to_string(), "64k  # environment UCT_TCP_TX_SEG_SIZE");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where values come from
//!
//! Built-in default < file < environment < program; each [`Setting`] knows which it was. The field `tx_seg_size` of
//! section `tcp` is `tx_seg_size` under `[tcp]` in the file, `UCT_TCP_TX_SEG_SIZE` in the environment and
//! `tcp.tx_seg_size` in the program. The section with the empty name holds the global keys: `net_devices` at the
//! file's top, `UCT_NET_DEVICES`, `net_devices`.
//!
//! # A schema that is not complete yet
//!
//! Transports that are loaded at run time have sections of their own, and where to look for them is configured
//! itself. So load twice: first with [`UnknownSections::Ignore`] and the keys known so far, then with the whole schema.

#![forbid(unsafe_code)]

mod document;
mod environment;
mod error;
mod file;
mod kind;
mod listing;
mod load;
mod lookup;
mod macros;
mod nearest;
mod schema;
mod sources;
mod types;
mod value;

pub use error::{ConfigError, Problem, SchemaError, Warning};
pub use kind::{BadValue, Kind};
pub use load::{Config, Loaded};
pub use lookup::{Defaults, Lookup, Reader};
pub use nearest::nearest;
pub use schema::{ENV_PREFIX, Field, Schema, Section, UnknownSections, env_name, key_name};
pub use sources::{FileSource, Sources, read_trusted};
pub use types::{Bounded, ConfigType};
pub use value::{AbiParts, Origin, Setting, Value};

#[doc(hidden)]
pub use macros::doc_text;
