//! Warnings, and what else is wanted, of a program that has no subscriber of `tracing`, and that what is logged is a sentence. Each program is this test once more,
//! since a process has one subscriber and one standard error.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use uct_core::select::{Operation, Request, Selector};
use uct_core::{Access, Context, Ep, Error, IfaceOptions, Worker};

/// What the program is to do.
const PROGRAM: &str = "UCT_TEST_UNHEARD";

/// Runs one test of this program with the part that `PROGRAM` names, and returns what it wrote to standard error.
fn stderr_of(test: &str, part: &str, variables: &[(&str, &str)]) -> String {
    let mut program = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UCT_")) {
        program.env_remove(name);
    }
    program
        .args(["--exact", &format!("log_without_subscriber::{test}"), "--nocapture"])
        .env(PROGRAM, part)
        .envs(variables.iter().copied());
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn part() -> Option<String> {
    std::env::var(PROGRAM).ok()
}

/// Counts warnings, and lines of debug about `INVALID_PARAM`.
struct Counting;

static WARNINGS: AtomicU32 = AtomicU32::new(0);
static REASONS: AtomicU32 = AtomicU32::new(0);

impl Subscriber for Counting {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        match *level {
            Level::WARN => WARNINGS.fetch_add(1, Ordering::Relaxed),
            Level::DEBUG if target.starts_with("uct_host::ep") => REASONS.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn context() -> Context {
    Context::builder().build().expect("a context")
}

#[test]
fn warnings_reach_standard_error_where_nobody_listens() {
    const NAME: &str = "warnings_reach_standard_error_where_nobody_listens";
    // A transport that does not exist is a warning.
    const MISSPELT: (&str, &str) = ("UCT_TLS", "self,tpc");
    match part().as_deref() {
        Some("nobody") => drop(context()),
        Some("later") => {
            drop(context());
            tracing::subscriber::set_global_default(Counting).expect("the library has installed none");
            drop(context());
            assert_eq!(WARNINGS.load(Ordering::Relaxed), 1);
        }
        _ => {
            let warnings = |text: &str| text.lines().filter(|line| line.contains("tpc")).count();
            let text = stderr_of(NAME, "nobody", &[MISSPELT]);
            assert_eq!(warnings(&text), 1, "{text}");
            assert!(text.contains("WARN uct_host::"), "{text}");
            let text = stderr_of(NAME, "later", &[MISSPELT]);
            assert_eq!(warnings(&text), 1, "{text}");
            for level in ["off", "error"] {
                let text = stderr_of(NAME, "nobody", &[MISSPELT, ("UCT_LOG_LEVEL", level)]);
                assert_eq!(warnings(&text), 0, "{text}");
            }
        }
    }
}

/// An endpoint of `self` to itself.
fn loopback(worker: &Worker) -> Ep {
    let iface = worker.open("self", "memory").expect("an interface");
    iface.connect(&iface.address().expect("its address")).expect("an endpoint")
}

/// Three operations that are refused.
fn be_refused() {
    let [worker, other] = [0, 1].map(|_| Worker::new(&context()).expect("a worker"));
    let ep = loopback(&worker);
    let id = uct_core::AmId::new(0).expect("an id");
    assert_eq!(ep.am_short(id, 0, &vec![0; 1 << 20]), Err(Error::INVALID_PARAM));
    assert_eq!(ep.am_short_iov(id, &[b"".as_slice(); 65]), Err(Error::INVALID_PARAM));
    let other = loopback(&other);
    let memory = other.iface().memory_domain().register(vec![0; 8], Access::ALL).expect("memory");
    let key = memory.domain().unpack(&memory.packed_key().expect("a key")).expect("a key");
    // Seven bytes: not one word, which the host could access itself.
    assert_eq!(ep.get_short(&mut [0; 7], memory.address(), &key), Err(Error::INVALID_PARAM));
}

#[test]
fn the_reason_of_invalid_param_is_logged() {
    const NAME: &str = "the_reason_of_invalid_param_is_logged";
    match part().as_deref() {
        Some("nobody") => be_refused(),
        Some(_) => {
            tracing::subscriber::set_global_default(Counting).expect("the first");
            be_refused();
            assert_eq!(REASONS.load(Ordering::Relaxed), 3);
        }
        None => {
            stderr_of(NAME, "log", &[]);
            let reasons = |level| {
                let text = stderr_of(NAME, "nobody", &[("UCT_LOG_LEVEL", level)]);
                let lines = text.lines().filter(|line| line.starts_with("DEBUG uct_host::ep"));
                lines.map(str::to_owned).collect::<Vec<String>>()
            };
            assert_eq!(reasons("warn"), [""; 0]);
            assert_eq!(reasons("uct_host::loader=debug,info"), [""; 0]);
            for level in ["uct_host::ep=debug", "debug,uct_host::loader=warn"] {
                let lines = reasons(level);
                assert_eq!(lines.len(), 3, "{lines:?}");
                assert!(lines.iter().all(|line| line.contains("INVALID_PARAM")));
                assert!(lines[2].contains("self/self of another context"), "{lines:?}");
            }
        }
    }
}

#[test]
fn a_main_that_returns_an_error_prints_its_sentence() {
    let context = Context::builder().set("tls", "self").set("log_level", "off").build().expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let selector = Selector::open(&worker, &IfaceOptions::default()).expect("a transport");
    let nothing = selector.choose(&Request::new(Operation::AmShort, usize::MAX), None).expect_err("too much");
    let error: Box<dyn std::error::Error> = Box::new(nothing);
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(error.to_string().starts_with("no transport for am_short"), "{error}");
    let error = worker.open("slef", "memory").expect_err("no such transport");
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = Context::builder().set("log_rate", "many").build().expect_err("not a number");
    assert_eq!(format!("{error:?}"), error.to_string());
}
