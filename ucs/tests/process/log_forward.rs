//! The plugin's end of the log: the process of the test plays a plugin's image.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::alone::is_alone;
use ucs::log::{Record, forward};

static SENT: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HOST_LEVEL: AtomicU32 = AtomicU32::new(3);

fn send(record: &Record<'_>) {
    let Record { level, target, line, message, file } = record;
    assert!(file.ends_with("forward.rs") && *line > 0);
    SENT.lock().unwrap().push(format!("{level} {target} {message}"));
}

fn sent() -> Vec<String> {
    std::mem::take(&mut *SENT.lock().unwrap())
}

#[test]
fn a_plugins_events_are_sent_with_their_fields_up_to_the_hosts_level() {
    if !is_alone() {
        return;
    }
    assert!(forward::install(send, || HOST_LEVEL.load(Ordering::Relaxed)));
    assert!(!forward::install(send, || 5), "a second subscriber was accepted");

    let port = 7;
    let error = std::io::Error::from_raw_os_error(11);
    let emit = || {
        tracing::info!(target: "uct_tcp::iface", port, name = "lo", %error, "listening on {}", "::");
        tracing::debug!(target: "uct_tcp::iface", "details");
        tracing::error!(target: "uct_tcp", count = 3_u64);
        let _span = tracing::error_span!("a span").entered();
    };
    let line = "3 uct_tcp::iface listening on :: port=7 name=\"lo\" error=Resource temporarily unavailable (os error 11)";
    emit();
    assert_eq!(sent(), [line, "1 uct_tcp count=3"]);

    HOST_LEVEL.store(4, Ordering::Relaxed);
    emit();
    assert_eq!(sent().len(), 2, "the level is copied, not asked for each time");
    forward::refresh();
    emit();
    assert_eq!(sent(), [line, "4 uct_tcp::iface details", "1 uct_tcp count=3"]);
    assert!(tracing::enabled!(tracing::Level::DEBUG) && !tracing::enabled!(tracing::Level::TRACE));

    HOST_LEVEL.store(0, Ordering::Relaxed);
    forward::refresh();
    emit();
    assert!(sent().is_empty());
}
