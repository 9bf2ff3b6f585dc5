//! Advertised operations work, others return `UNSUPPORTED`, and the attributes are consistent.

use uct_host::{
    AmId, AtomicOp, AtomicOps, Capabilities, Completion, Ep, Error, Events, Flush, IfaceAttr, Memory,
    OpLimits, Pending, RemoteKey, Result, SendFlags,
};

use super::case;
use crate::case::{Case, Needs};
use crate::pair::Pair;
use crate::setup::Setup;

const ID: AmId = AmId::new(0).unwrap();

/// Something that an endpoint can be asked for, and the capability that says so.
struct Ask<'a> {
    name: &'static str,
    has: bool,
    call: Box<dyn Fn() -> Result<()> + 'a>,
}

fn advertised(setup: &Setup) {
    let pair = Pair::new(setup);
    let _inbox = pair.receiver.inbox(ID);
    let domain = pair.receiver.iface.memory_domain();
    let target = pair.receiver.iface.memory_domain().register(vec![0; 64], uct_host::Access::ALL);
    let source = pair.sender.iface.memory_domain().register(vec![0; 64], uct_host::Access::ALL);
    let has = pair.sender.iface.capabilities();
    let completion = pair.sender.completion();
    let key = target.as_ref().ok().and_then(|memory| memory.packed_key().ok());
    let key = key.and_then(|packed| pair.sender.iface.memory_domain().unpack(&packed).ok());
    let mut asks = messages(&pair, has, &completion, source.as_ref().ok());
    asks.extend(control(&pair, has));
    let remote = Capabilities::all() & remote_capabilities();
    match (&key, &target, &source) {
        (Some(key), Ok(target), Ok(source)) => {
            asks.extend(remote_access(&pair, &completion, target, source, key));
        }
        _ => {
            assert!(
                !has.intersects(remote),
                "put, get or atomics, and no key to memory of {}",
                domain.name()
            );
            assert!(!has_atomics(pair.sender.attributes()), "atomics, and no key to memory");
        }
    }
    for ask in &asks {
        let answer = pair.retry(ask.name, || (ask.call)());
        pair.until(ask.name, || completion.is_done());
        match (ask.has, answer) {
            (true, Ok(())) => completion.result().unwrap_or_else(|error| panic!("{}: {error}", ask.name)),
            (true, Err(error)) => panic!("{} is advertised and answers {error}", ask.name),
            (false, answer) => assert_eq!(answer, Err(Error::UNSUPPORTED), "{} is not advertised", ask.name),
        }
    }
    pair.settle();
    pair.to.check_alive();
}

fn remote_capabilities() -> Capabilities {
    Capabilities::PUT_SHORT
        | Capabilities::PUT_BCOPY
        | Capabilities::PUT_ZCOPY
        | Capabilities::GET_SHORT
        | Capabilities::GET_BCOPY
        | Capabilities::GET_ZCOPY
}

fn has_atomics(attributes: &IfaceAttr) -> bool {
    [attributes.atomic32, attributes.atomic64].iter().any(|ops| ops.post != 0 || ops.fetch != 0)
}

fn messages<'a>(
    pair: &'a Pair,
    has: Capabilities,
    completion: &'a Completion,
    source: Option<&'a Memory>,
) -> Vec<Ask<'a>> {
    let ep: &Ep = &pair.to;
    let mut asks = vec![
        Ask {
            name: "am_short",
            has: has.contains(Capabilities::AM_SHORT),
            call: Box::new(|| ep.am_short(ID, 1, b"")),
        },
        Ask {
            name: "am_short_iov",
            has: has.contains(Capabilities::AM_SHORT),
            call: Box::new(|| ep.am_short_iov(ID, &[&[0; 8]])),
        },
        Ask {
            name: "am_bcopy",
            has: has.contains(Capabilities::AM_BCOPY),
            call: Box::new(|| ep.am_bcopy(ID, SendFlags::empty(), |_| 0).map(drop)),
        },
    ];
    if let Some(source) = source {
        let length = pair.sender.attributes().am.min_zcopy.max(8).min(source.len());
        asks.push(Ask {
            name: "am_zcopy",
            has: has.contains(Capabilities::AM_ZCOPY),
            call: Box::new(move || {
                ep.am_zcopy(ID, &[], &[source.slice(..length)], SendFlags::empty(), completion).map(drop)
            }),
        });
    }
    asks
}

fn control(pair: &Pair, has: Capabilities) -> Vec<Ask<'_>> {
    let ep: &Ep = &pair.to;
    let iface = &pair.sender.iface;
    let events = Events::from_bits_retain(pair.sender.attributes().events);
    vec![
        Ask {
            name: "pending_add",
            has: has.contains(Capabilities::PENDING),
            call: Box::new(|| match ep.pending_add(|_| Pending::Done) {
                Ok(()) | Err((Error::BUSY, _)) => Ok(()),
                Err((error, _)) => Err(error),
            }),
        },
        Ask {
            name: "flush of an endpoint",
            has: true,
            call: Box::new(|| ep.flush(Flush::empty(), None).map(drop)),
        },
        Ask {
            name: "remote flush of an endpoint",
            has: true,
            call: Box::new(|| ep.flush(Flush::REMOTE, None).map(drop)),
        },
        Ask { name: "fence of an endpoint", has: true, call: Box::new(|| ep.fence()) },
        Ask {
            name: "flush of an interface",
            has: true,
            call: Box::new(|| iface.flush(Flush::empty(), None).map(drop)),
        },
        Ask { name: "fence of an interface", has: true, call: Box::new(|| iface.fence()) },
        Ask {
            name: "check",
            has: has.contains(Capabilities::EP_CHECK),
            call: Box::new(|| ep.check(None).map(drop)),
        },
        Ask {
            name: "address of an endpoint",
            has: has.contains(Capabilities::CONNECT_TO_EP),
            call: Box::new(|| ep.address().map(drop)),
        },
        Ask { name: "event_fd", has: !events.is_empty(), call: Box::new(|| iface.event_fd().map(drop)) },
        Ask {
            name: "arm",
            has: !events.is_empty(),
            call: Box::new(move || match iface.arm(events) {
                Err(Error::BUSY) => Ok(()),
                answer => answer,
            }),
        },
    ]
}

fn remote_access<'a>(
    pair: &'a Pair,
    completion: &'a Completion,
    target: &'a Memory,
    source: &'a Memory,
    key: &'a RemoteKey,
) -> Vec<Ask<'a>> {
    let (ep, at): (&Ep, u64) = (&pair.to, target.address().next_multiple_of(8));
    let attributes = pair.sender.attributes();
    let has = pair.sender.iface.capabilities();
    let (put, get) = (attributes.put.min_zcopy.max(8), attributes.get.min_zcopy.max(8));
    let mut asks = vec![
        Ask {
            name: "put_short",
            has: has.contains(Capabilities::PUT_SHORT),
            call: Box::new(move || ep.put_short(&[1; 8], at, key)),
        },
        Ask {
            name: "put_bcopy",
            has: has.contains(Capabilities::PUT_BCOPY),
            call: Box::new(move || ep.put_bcopy(at, key, |_| 8).map(drop)),
        },
        Ask {
            name: "put_zcopy",
            has: has.contains(Capabilities::PUT_ZCOPY),
            call: Box::new(move || ep.put_zcopy(&[source.slice(..put)], at, key, completion).map(drop)),
        },
        Ask {
            name: "put_from",
            has: has.intersects(Capabilities::PUT_SHORT | Capabilities::PUT_BCOPY),
            call: Box::new(move || ep.put_from(&[1; 8], at, key)),
        },
        Ask {
            name: "get_bcopy",
            has: has.contains(Capabilities::GET_BCOPY),
            call: Box::new(move || ep.get_bcopy(8, at, key, completion, |_| ()).map(drop)),
        },
        Ask {
            name: "get_zcopy",
            has: has.contains(Capabilities::GET_ZCOPY),
            call: Box::new(move || ep.get_zcopy(&[source.slice(..get)], at, key, completion).map(drop)),
        },
    ];
    // An emulated one would wait for this thread.
    if !pair.sender.iface.emulated().contains(Capabilities::GET_SHORT) {
        asks.push(Ask {
            name: "get_short",
            has: has.contains(Capabilities::GET_SHORT),
            call: Box::new(move || ep.get_short(&mut [0; 8], at, key)),
        });
    }
    let can = |ops: u32, op: AtomicOp| ops & op.bit() != 0;
    let AtomicOps { post: post32, fetch: fetch32, .. } = attributes.atomic32;
    let AtomicOps { post: post64, fetch: fetch64, .. } = attributes.atomic64;
    for op in [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap] {
        if op != AtomicOp::Swap {
            asks.push(Ask {
                name: "a 32-bit atomic",
                has: can(post32, op),
                call: Box::new(move || ep.atomic32_post(op, 1, at, key)),
            });
            asks.push(Ask {
                name: "a 64-bit atomic",
                has: can(post64, op),
                call: Box::new(move || ep.atomic64_post(op, 1, at, key)),
            });
        }
        asks.push(Ask {
            name: "a 32-bit fetching atomic",
            has: can(fetch32, op),
            call: Box::new(move || ep.atomic32_fetch(op, 1, at, key, completion).map(drop)),
        });
        asks.push(Ask {
            name: "a 64-bit fetching atomic",
            has: can(fetch64, op),
            call: Box::new(move || ep.atomic64_fetch(op, 1, at, key, completion).map(drop)),
        });
    }
    asks.push(Ask {
        name: "a 32-bit compare and swap",
        has: can(fetch32, AtomicOp::Cswap),
        call: Box::new(move || ep.atomic32_cswap(1, 2, at, key, completion).map(drop)),
    });
    asks.push(Ask {
        name: "a 64-bit compare and swap",
        has: can(fetch64, AtomicOp::Cswap),
        call: Box::new(move || ep.atomic64_cswap(1, 2, at, key, completion).map(drop)),
    });
    asks
}

fn attributes(setup: &Setup) {
    let pair = Pair::new(setup);
    let attributes = pair.sender.attributes();
    let has = pair.sender.iface.capabilities();
    let emulated = pair.sender.iface.emulated();
    assert!(has.contains(emulated), "emulated and not there: {:?}", emulated - has);
    for ops in [attributes.atomic32, attributes.atomic64] {
        assert_eq!(ops.post_emulated & !ops.post, 0, "an atomic is emulated and not there");
        assert_eq!(ops.fetch_emulated & !ops.fetch, 0, "an atomic is emulated and not there");
    }
    let connects = Capabilities::CONNECT_TO_IFACE | Capabilities::CONNECT_TO_EP;
    assert!(has.intersects(connects), "neither interfaces nor endpoints can be connected");
    let zero = |name: &str, has: bool, limit: usize| {
        assert_eq!(has, limit > 0, "{name}: {limit} bytes");
        assert!(isize::try_from(limit).is_ok(), "{name}: {limit} bytes are more than any memory has");
    };
    let class = |name: &str, limits: &OpLimits, short, bcopy, zcopy| {
        zero(&format!("{name} max_short"), has.contains(short), limits.max_short);
        zero(&format!("{name} max_bcopy"), has.contains(bcopy), limits.max_bcopy);
        zero(&format!("{name} max_zcopy"), has.contains(zcopy), limits.max_zcopy);
        if has.contains(zcopy) {
            assert!(limits.min_zcopy <= limits.max_zcopy, "{name}: min_zcopy is above max_zcopy");
            assert!(limits.max_iov >= 1, "{name}: zero copy without a vector");
        }
    };
    use Capabilities as Can;
    class("am", &attributes.am, Can::AM_SHORT, Can::AM_BCOPY, Can::AM_ZCOPY);
    class("put", &attributes.put, Can::PUT_SHORT, Can::PUT_BCOPY, Can::PUT_ZCOPY);
    class("get", &attributes.get, Can::GET_SHORT, Can::GET_BCOPY, Can::GET_ZCOPY);
    for (name, figure) in [
        ("overhead", attributes.overhead),
        ("latency", attributes.latency),
        ("bandwidth_dedicated", attributes.bandwidth_dedicated),
        ("bandwidth_shared", attributes.bandwidth_shared),
    ] {
        assert!(figure.value.is_finite() && figure.value >= 0.0, "{name} is {}", figure.value);
    }
    assert!(
        attributes.bandwidth_dedicated.value + attributes.bandwidth_shared.value > 1e6,
        "a bandwidth below 1 MB/s was guessed, not known"
    );
    assert!(attributes.latency.value < 0.1, "a latency of {} s", attributes.latency.value);
    assert!(attributes.overhead.value > 0.0, "sending costs time");
    assert!(attributes.latency.value > 0.0 || pair.is_loop, "a way costs time");
    let domain = pair.sender.iface.memory_domain().attributes();
    for (name, seconds) in [
        ("reg_cost", domain.reg_cost),
        ("reg_growth", domain.reg_growth),
        ("rkey_cost", domain.rkey_cost),
        ("rkey_map_cost", domain.rkey_map_cost),
        ("rkey_map_growth", domain.rkey_map_growth),
    ] {
        assert!((0.0..1.0).contains(&seconds), "{name} is {seconds}");
    }
    assert!(attributes.device_addr_len <= 255 && attributes.iface_addr_len <= 255);
    let long = pair.sender.iface.address().expect("an address").pack().expect("it packs").len();
    assert!(long <= 4 + 10 + 2 * 255);
}

pub(super) const CASES: &[Case] = &[
    case("every advertised capability works and every other answers UNSUPPORTED", Needs::NOTHING, advertised),
    case("the attributes of an interface agree with each other", Needs::NOTHING, attributes),
];
