//! A listener in a thread of its own that accepts every caller it admits, and its log, which has the reason of each refusal.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uct_net::NetOptions;

use super::support::{LIMIT, net};

/// Such a listener.
pub struct LoggedListener {
    pub address: String,
    log: Log,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LoggedListener {
    pub fn new(options: NetOptions) -> LoggedListener {
        LoggedListener::at("127.0.0.1:0".to_owned(), options)
    }

    pub fn at(place: String, options: NetOptions) -> LoggedListener {
        let (log, is_over) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = mpsc::channel();
        let (writer, ends) = (log.clone(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let to_log =
                tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG);
            let subscriber = to_log.with_ansi(false).with_writer(Mutex::new(writer)).finish();
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
            let log = String::from_utf8_lossy(&self.log.0.lock().expect("no panic")).into_owned();
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
