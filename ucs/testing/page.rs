//! A host's subscriber that prints into memory.
//!
//! Used by the tests of this crate, which include this file by its path. Built on `tracing-subscriber`.

use std::io;
use std::sync::{Arc, Mutex};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Page {
    type Writer = Page;

    fn make_writer(&'a self) -> Page {
        self.clone()
    }
}

/// Runs `body` with a host's subscriber that has this filter; answers what it printed.
pub fn printed(filter: &str, body: impl FnOnce()) -> String {
    let page = Page::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(page.clone())
        .with_ansi(false)
        .without_time()
        .with_file(true)
        .with_line_number(true)
        .finish();
    tracing::subscriber::with_default(subscriber, body);
    page.take()
}
