//! What a thread logs.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;

/// The lines so far.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A log, and the subscriber that writes it: all lines, down to level debug.
pub fn recorded() -> (Log, impl Subscriber + Send + Sync) {
    recorded_at(LevelFilter::DEBUG)
}

/// The same for lines that a program has by default.
pub fn warnings() -> (Log, impl Subscriber + Send + Sync) {
    recorded_at(LevelFilter::WARN)
}

fn recorded_at(level: LevelFilter) -> (Log, impl Subscriber + Send + Sync) {
    let log = Log::default();
    let to_log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
    let subscriber = to_log.with_writer(Mutex::new(log.clone())).finish();
    (log, subscriber)
}
