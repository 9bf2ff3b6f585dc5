//! The code of the pages in docs/ compiles and runs, as tests of the documentation. The programs of this crate are the examples.

#![forbid(unsafe_code)]

macro_rules! pages {
    ($($name:ident = $file:literal,)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../docs/", $file))]
            pub struct $name;
        )*
    };
}

pages! {
    EchoServer = "echo-server.md",
    EventLoop = "event-loop.md",
    Inference = "inference.md",
    KeyValue = "key-value.md",
    Tokio = "tokio.md",
    Memory = "memory.md",
    Threads = "threads.md",
    Errors = "errors.md",
    FromUcx = "from-ucx.md",
    FromVerbs = "from-verbs.md",
    Logging = "logging.md",
}

/// The programs that name a transport, over all of them (`build.rs`).
#[cfg(doctest)]
#[doc = include_str!(concat!(env!("OUT_DIR"), "/programs.md"))]
pub struct OverEveryTransport;
