//! Latency histograms of an interface.

use std::time::Duration;

use uct_core::configuration::Sources;
use uct_core::{Access, Completion, Context, Ep, Iface, Memory, MemoryKind, Posted, RemoteKey, Worker};

const LIMIT: Duration = Duration::from_secs(60);
const BYTES: usize = 4096;

/// An endpoint of an interface that is connected to itself, and memory with its key.
struct Side {
    worker: Worker,
    iface: Iface,
    ep: Ep,
    memory: Memory,
    key: RemoteKey,
}

impl Side {
    /// Over TCP, whose puts and gets complete in a later progress.
    fn new(histograms: &str) -> Side {
        let sources = Sources::default().set("latency_histograms", histograms).set("modules", "tcp");
        let context = Context::builder().sources(sources).build().expect("a context");
        let worker = Worker::new(&context).expect("a worker");
        let iface = worker.open("tcp", "lo").expect("an interface");
        let ep = iface.connect(&iface.address().expect("an address")).expect("an endpoint");
        let domain = iface.memory_domain();
        let memory = domain.allocate(2 * BYTES, Access::ALL, MemoryKind::Host).expect("memory");
        let key = domain.unpack(&memory.packed_key().expect("a key")).expect("a key");
        Side { worker, iface, ep, memory, key }
    }

    fn put(&self, completion: &Completion) {
        let slice = self.memory.slice(..BYTES);
        let target = self.memory.address() + BYTES as u64;
        let posted = self.ep.put_zcopy(&[slice], target, &self.key, completion);
        assert_eq!(posted, Ok(Posted::InProgress));
    }

    /// Kind and number of what was measured.
    fn measured(&self) -> Vec<(&'static str, u64)> {
        self.iface.latencies().iter().map(|latency| (latency.kind, latency.operations)).collect()
    }
}

#[test]
fn each_completion_is_one_latency_of_the_kind_of_its_first_operation() {
    let side = Side::new("yes");
    assert_eq!(side.measured(), []);
    let completion = Completion::new(&side.worker);
    for operations in [1, 3] {
        (0..operations).for_each(|_| side.put(&completion));
        completion.wait(LIMIT).expect("they complete");
    }
    assert_eq!(side.measured(), [("put", 2)]);
    let latency = side.iface.latencies()[0];
    let quantiles = [Duration::ZERO, latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
    assert!(quantiles.is_sorted() && latency.p50 > Duration::ZERO && latency.max < LIMIT, "{latency:?}");
}

#[test]
fn without_the_key_there_are_no_latencies() {
    let side = Side::new("no");
    let completion = Completion::new(&side.worker);
    side.put(&completion);
    completion.wait(LIMIT).expect("it completes");
    assert_eq!(side.measured(), []);
}
