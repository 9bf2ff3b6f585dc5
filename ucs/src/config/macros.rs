//! The macros with which a key is written once: type, default, bounds and doc in one line.
//!
//! Built on the [`Schema`](super::Schema) and on [`Reader`](super::Reader). Every transport's `config` uses it.

/// A struct of settings and its section of the schema.
///
/// ```
/// use ucs::{config::Defaults, config_struct, units::{MemSize, Time}};
///
/// config_struct! {
///     /// What the section is for.
///     #[derive(PartialEq)]
///     pub struct TcpConfig in "tcp" {
///         /// What the key is for; this is its text in the documents, too.
///         pub tx_seg_size: MemSize = "8k" in 64..=1 << 30,
///         /// How long to wait for a peer.
///         pub timeout: Time = "30s",
///     }
/// }
///
/// let tcp = TcpConfig::from_settings(&Defaults)?;
/// assert_eq!(tcp.tx_seg_size.bytes(), 8192);
/// assert_eq!(TcpConfig::section().fields.len(), 2);
/// # Ok::<(), ucs::config::ConfigError>(())
/// ```
///
/// `#[security = true]` behind a field's doc marks a [security key](crate::config::Field::security).
///
/// The section of global keys is `""`. A field's type is a [`ConfigType`](crate::config::ConfigType), its default a text,
/// its bounds (behind `in`, for a [`Bounded`](crate::config::Bounded) type) a range with both ends. It makes:
///
/// - the struct, `Clone` and `Debug`;
/// - `SECTION: &'static str`, its name;
/// - `fields() -> Vec<Field>` and `section() -> Section`, for [`Schema::add_section`](crate::config::Schema::add_section);
/// - `from_settings(&impl Lookup) -> Result<Self, ConfigError>`.
#[macro_export]
macro_rules! config_struct {
    (
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:path),* $(,)?)])?
        $vis:vis struct $name:ident in $section:literal {
            $(
                $(#[doc = $field_doc:literal])*
                $(#[security = $security:literal])?
                $field_vis:vis $field:ident : $type:ty = $default:literal $(in $bounds:expr)?
            ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug $($(, $derive)*)?)]
        $vis struct $name {
            $(
                $(#[doc = $field_doc])*
                $field_vis $field: $type,
            )*
        }

        #[allow(dead_code)]
        impl $name {
            /// The name of its section; empty for the global keys.
            $vis const SECTION: &'static str = $section;

            /// Its keys.
            $vis fn fields() -> ::std::vec::Vec<$crate::config::Field> {
                ::std::vec![$(
                    $crate::config::Field::new(
                        ::core::stringify!($field),
                        $crate::__config_kind!($type $(, $bounds)?),
                        $default,
                        $crate::config::doc_text(&[$($field_doc),*]),
                    )$(.security($security))?,
                )*]
            }

            /// Its section of the schema.
            $vis fn section() -> $crate::config::Section {
                $crate::config::Section::new(
                    $section,
                    $crate::config::doc_text(&[$($doc),*]),
                    Self::fields(),
                )
            }

            /// Its values, read from their texts; a key without one has its default.
            ///
            /// # Errors
            ///
            /// All values that are not accepted.
            $vis fn from_settings<L: $crate::config::Lookup>(
                lookup: &L,
            ) -> ::core::result::Result<Self, $crate::config::ConfigError> {
                #[allow(unused_mut)]
                let mut reader = $crate::config::Reader::new($section, lookup);
                $(
                    let $field: ::core::option::Option<$type> = reader.read(
                        ::core::stringify!($field),
                        &$crate::__config_kind!($type $(, $bounds)?),
                        $default,
                    );
                )*
                reader.finish(|| ::core::option::Option::Some($name { $($field: $field?),* }))
            }
        }
    };
}

/// An enum that a configuration key may have, each variant with its word.
///
/// ```
/// use ucs::{config::ConfigType, config_enum};
///
/// config_enum! {
///     /// What becomes of a fallback.
///     pub enum Fallback {
///         /// It is an error.
///         Error = "error",
///         /// It is said.
///         Warn = "warn",
///     }
/// }
///
/// assert_eq!(Fallback::parse("WARN"), Ok(Fallback::Warn));
/// assert_eq!(Fallback::Error.to_string(), "error");
/// ```
///
/// It makes the enum (`Clone`, `Copy`, `Debug`, `PartialEq`, `Eq`, `Hash`), `ALL: &[Self]`, `name()`, `Display`, `FromStr`
/// and [`ConfigType`](crate::config::ConfigType).
#[macro_export]
macro_rules! config_enum {
    (
        $(#[doc = $doc:literal])*
        $vis:vis enum $name:ident {
            $(
                $(#[doc = $variant_doc:literal])*
                $variant:ident = $word:literal
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $(
                $(#[doc = $variant_doc])*
                $variant,
            )+
        }

        #[allow(dead_code)]
        impl $name {
            /// All of them, in their order.
            $vis const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its word in the configuration.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, out: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                out.pad(self.name())
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = $crate::config::BadValue;

            fn from_str(text: &str) -> ::core::result::Result<Self, $crate::config::BadValue> {
                <Self as $crate::config::ConfigType>::parse(text)
            }
        }

        impl $crate::config::ConfigType for $name {
            fn kind() -> $crate::config::Kind {
                $crate::config::Kind::words([$($word),+])
            }

            fn parse(text: &str) -> ::core::result::Result<Self, $crate::config::BadValue> {
                let value = Self::kind().parse(text)?;
                let index = value.as_enum_index().unwrap_or_default();
                ::core::result::Result::Ok(Self::ALL[index])
            }
        }
    };
}

/// The kind of a key: that of its type, or that of its type with bounds.
#[doc(hidden)]
#[macro_export]
macro_rules! __config_kind {
    ($type:ty) => {
        <$type as $crate::config::ConfigType>::kind()
    };
    ($type:ty, $bounds:expr) => {
        <$type as $crate::config::Bounded>::bounded($bounds)
    };
}

/// The lines of a doc comment as one text, without the space that follows the slashes.
#[doc(hidden)]
pub fn doc_text(lines: &[&str]) -> String {
    let lines: Vec<&str> =
        lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n").trim().to_owned()
}
