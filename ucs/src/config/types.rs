//! Types that a configuration key may have.
//!
//! Built on [`Kind`]. The fields of every [`config_struct!`](crate::config_struct) use it.

use std::{ops::RangeInclusive, path::PathBuf};

use super::{BadValue, Kind, Value};
use crate::units::{Bandwidth, Count, MemSize, NameList, Range, Ternary, Time};

/// A type that a configuration key may have. [`config_enum!`](crate::config_enum) makes enums that are one.
pub trait ConfigType: Sized {
    /// What a key of this type accepts.
    fn kind() -> Kind;

    /// The value from its text alone: what a plugin has.
    ///
    /// # Errors
    ///
    /// The text is none of what [`kind`](Self::kind) accepts.
    fn parse(text: &str) -> Result<Self, BadValue>;
}

/// A type whose keys may have bounds: `tx_depth: u32 = "64" in 1..=1024`.
pub trait Bounded: ConfigType {
    /// The type of the bounds: that of the numbers in the code.
    type Bound;

    /// What a key with these bounds accepts.
    fn bounded(bounds: RangeInclusive<Self::Bound>) -> Kind;
}

macro_rules! plain_types {
    ($($type:ty = $kind:expr, $variant:ident;)*) => {$(
        impl ConfigType for $type {
            fn kind() -> Kind {
                $kind
            }

            fn parse(text: &str) -> Result<Self, BadValue> {
                match Self::kind().parse(text)? {
                    Value::$variant(value) => Ok(value),
                    other => Err(Self::kind().refuse(other.to_string())),
                }
            }
        }
    )*};
}

plain_types! {
    bool = Kind::Bool, Bool;
    Ternary = Kind::Ternary, Ternary;
    Count = Kind::Count, Count;
    MemSize = Kind::MEM_SIZE, MemSize;
    Time = Kind::Time, Time;
    Bandwidth = Kind::Bandwidth, Bandwidth;
    f64 = Kind::Real, Real;
    String = Kind::Text, Text;
    PathBuf = Kind::Path, Path;
    Vec<String> = Kind::List, List;
    NameList = Kind::NameList, NameList;
    Range = Kind::Range, Range;
}

macro_rules! whole_numbers {
    ($($type:ty = $variant:ident($wide:ty);)*) => {$(
        impl ConfigType for $type {
            fn kind() -> Kind {
                Self::bounded(<$type>::MIN..=<$type>::MAX)
            }

            fn parse(text: &str) -> Result<Self, BadValue> {
                text.trim().parse().map_err(|_| Self::kind().refuse(crate::units::shown(text)))
            }
        }

        impl Bounded for $type {
            type Bound = $type;

            fn bounded(bounds: RangeInclusive<$type>) -> Kind {
                let (min, max) = bounds.into_inner();
                Kind::$variant { min: min as $wide, max: max as $wide }
            }
        }
    )*};
}

whole_numbers! {
    u8 = UInt(u64);
    u16 = UInt(u64);
    u32 = UInt(u64);
    u64 = UInt(u64);
    usize = UInt(u64);
    i8 = Int(i64);
    i16 = Int(i64);
    i32 = Int(i64);
    i64 = Int(i64);
    isize = Int(i64);
}

impl Bounded for MemSize {
    type Bound = u64;

    fn bounded(bounds: RangeInclusive<u64>) -> Kind {
        let (min, max) = bounds.into_inner();
        Kind::MemSize { min, max }
    }
}
