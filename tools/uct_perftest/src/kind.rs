//! What is measured: the tests by UCX's names, the ways to move the data, and how to wait.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uct_core::select::Operation;
use uct_core::{AtomicOp, Capabilities, Iface, IfaceAttr};

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Test {
    /// Active message latency
    AmLat,
    /// Active message bandwidth
    AmBw,
    /// Active message rate
    AmMr,
    /// Put latency
    PutLat,
    /// Put bandwidth
    PutBw,
    /// Get latency
    #[value(alias = "get")]
    GetLat,
    /// Get bandwidth
    GetBw,
    /// Atomic add latency
    AddLat,
    /// Atomic add rate
    AddMr,
    /// Atomic fetch-and-add latency, or rate with -O
    Fadd,
    /// Atomic swap latency, or rate with -O
    Swap,
    /// Atomic compare-and-swap latency, or rate with -O
    Cswap,
    /// Time to connect by uct-net and close again, or rate with -O
    Connect,
    /// Latency of messages of uct-net that are awaited
    AwaitLat,
    /// Stream latency
    StreamLat,
    /// Stream bandwidth
    StreamBw,
}

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Am,
    Put,
    Get,
    /// Without a result.
    Post,
    /// With a result.
    Fetch(AtomicOp),
    /// Connections of `uct-net`.
    Connect,
    /// Messages of `uct-net`.
    Await,
    /// Streams of `uct-net`.
    Stream,
}

impl Class {
    /// Whether it is an operation of `uct-net`, not of an endpoint.
    pub(crate) fn is_net(self) -> bool {
        matches!(self, Class::Connect | Class::Await | Class::Stream)
    }
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Test::AmLat => "am_lat",
            Test::AmBw => "am_bw",
            Test::AmMr => "am_mr",
            Test::PutLat => "put_lat",
            Test::PutBw => "put_bw",
            Test::GetLat => "get_lat",
            Test::GetBw => "get_bw",
            Test::AddLat => "add_lat",
            Test::AddMr => "add_mr",
            Test::Fadd => "fadd",
            Test::Swap => "swap",
            Test::Cswap => "cswap",
            Test::Connect => "connect",
            Test::AwaitLat => "await_lat",
            Test::StreamLat => "stream_lat",
            Test::StreamBw => "stream_bw",
        }
    }

    pub(crate) fn class(self) -> Class {
        match self {
            Test::AmLat | Test::AmBw | Test::AmMr => Class::Am,
            Test::PutLat | Test::PutBw => Class::Put,
            Test::GetLat | Test::GetBw => Class::Get,
            Test::AddLat | Test::AddMr => Class::Post,
            Test::Fadd => Class::Fetch(AtomicOp::Add),
            Test::Swap => Class::Fetch(AtomicOp::Swap),
            Test::Cswap => Class::Fetch(AtomicOp::Cswap),
            Test::Connect => Class::Connect,
            Test::AwaitLat => Class::Await,
            Test::StreamLat | Test::StreamBw => Class::Stream,
        }
    }

    /// Whether the two sides take turns, so that the latency is half a round trip.
    pub(crate) fn is_ping_pong(self) -> bool {
        matches!(self, Test::AmLat | Test::PutLat | Test::AddLat | Test::AwaitLat | Test::StreamLat)
    }

    /// What the time of one operation is called.
    pub(crate) fn time_name(self) -> &'static str {
        match self {
            Test::AmBw | Test::AmMr | Test::PutBw | Test::GetBw | Test::AddMr | Test::StreamBw => "overhead",
            _ => "latency",
        }
    }

    /// Operations that may be outstanding, by default.
    pub(crate) fn outstanding(self) -> u32 {
        match self.time_name() {
            "latency" => 1,
            _ => 32,
        }
    }

    /// Whether a receiver polls memory for what the other side does to it: nothing would wake it.
    pub(crate) fn polls_memory(self) -> bool {
        matches!(self, Test::PutLat | Test::AddLat)
    }

    /// Whether it takes this many bytes; if not, what it takes.
    pub(crate) fn check_size(self, size: usize) -> Result<(), &'static str> {
        match self.class() {
            Class::Post | Class::Fetch(_) if ![4, 8].contains(&size) => Err("4 or 8 bytes"),
            Class::Put | Class::Get | Class::Stream if size == 0 => Err("at least 1 byte"),
            _ => Ok(()),
        }
    }

    /// Whether an interface has the atomics that the test needs, at every size.
    pub(crate) fn has_atomics(self, attr: &IfaceAttr, sizes: &[usize]) -> bool {
        let has = |size: &usize| {
            let able = if *size == 4 { attr.atomic32 } else { attr.atomic64 };
            match self.class() {
                Class::Post => able.post & AtomicOp::Add.bit() != 0,
                Class::Fetch(op) => able.fetch & op.bit() != 0,
                _ => true,
            }
        };
        sizes.iter().all(has)
    }

    /// Whether what is accessed is only reached with the help of its owner's processor.
    pub(crate) fn needs_the_target(self, layout: Layout, iface: &Iface) -> bool {
        match self.class() {
            Class::Am | Class::Connect | Class::Await | Class::Stream => true,
            Class::Put | Class::Get => iface.emulated().contains(self.operation(layout).capability()),
            Class::Post | Class::Fetch(_) => !iface.capabilities().contains(Capabilities::ATOMIC_DEVICE),
        }
    }

    /// The operation with a layout; what is no active message, put or get counts as a short active message, which every transport has.
    pub(crate) fn operation(self, layout: Layout) -> Operation {
        match (self.class(), layout) {
            (Class::Am, Layout::Short | Layout::Auto) => Operation::AmShort,
            (Class::Am, Layout::Bcopy) => Operation::AmBcopy,
            (Class::Am, Layout::Zcopy) => Operation::AmZcopy,
            (Class::Put, Layout::Short | Layout::Auto) => Operation::PutShort,
            (Class::Put, Layout::Bcopy) => Operation::PutBcopy,
            (Class::Put, Layout::Zcopy) => Operation::PutZcopy,
            (Class::Get, Layout::Short | Layout::Auto) => Operation::GetShort,
            (Class::Get, Layout::Bcopy) => Operation::GetBcopy,
            (Class::Get, Layout::Zcopy) => Operation::GetZcopy,
            (Class::Post | Class::Fetch(_) | Class::Connect | Class::Await | Class::Stream, _) => {
                Operation::AmShort
            }
        }
    }
}

/// How the data are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    /// Copied inline
    Short,
    /// Packed into the transport's buffer
    Bcopy,
    /// Moved in place from registered memory
    Zcopy,
    /// As uct-net chooses
    #[value(skip)]
    Auto,
}

impl Layout {
    /// Those to choose from.
    pub(crate) const ALL: [Layout; 3] = [Layout::Short, Layout::Bcopy, Layout::Zcopy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Short => "short",
            Layout::Bcopy => "bcopy",
            Layout::Zcopy => "zcopy",
            Layout::Auto => "auto",
        }
    }
}

/// How to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wait {
    /// Spin
    #[default]
    Poll,
    /// Sleep until there is something to do
    Event,
    /// Spin for a moment, then sleep
    Adaptive,
}

impl Wait {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wait::Poll => "poll",
            Wait::Event => "event",
            Wait::Adaptive => "adaptive",
        }
    }
}
