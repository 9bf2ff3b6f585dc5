//! A listener in a thread of its own that accepts every caller it admits, and its log, which has the reason of each refusal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uct_net::NetOptions;

use super::log::{self, Log};
use super::{LIMIT, net};

/// Such a listener.
pub struct LoggedListener {
    pub address: String,
    log: Log,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LoggedListener {
    pub fn new(options: NetOptions) -> LoggedListener {
        LoggedListener::at("127.0.0.1:0".to_owned(), options)
    }

    pub fn at(place: String, options: NetOptions) -> LoggedListener {
        let ((log, subscriber), is_over) = (log::recorded(), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = mpsc::channel();
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            tracing::subscriber::with_default(subscriber, || {
                let net = net(options);
                net.block_on(async {
                    let mut listener = net.listen(place).await.expect("a listener");
                    sender.send(listener.address()).expect("it is awaited");
                    while !ends.load(Ordering::Relaxed) {
                        let accepted = net.within(Duration::from_millis(2), listener.accept()).await;
                        let Some(incoming) = accepted else { continue };
                        if let Ok(connection) = incoming.expect("a caller").accept().await {
                            connection.send(b"welcome").await.expect("it is sent");
                            let _ = connection.close().within(LIMIT).await;
                        }
                    }
                });
            });
        });
        let address = receiver.recv_timeout(LIMIT).expect("it listens");
        LoggedListener { address, log, is_over, thread: Some(thread) }
    }

    /// The log, once it has these words.
    pub fn wait_for_log(&self, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = self.log.text();
            if log.contains(words) {
                return log;
            }
            assert!(begun.elapsed() < LIMIT, "{words:?} is expected in: {log}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for LoggedListener {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().expect("once").join();
        assert!(outcome.is_ok() || std::thread::panicking(), "the listener's thread panicked");
    }
}
