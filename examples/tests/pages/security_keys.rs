//! Which keys are security keys, in the schemas of the core and of all transports: a `uct.toml` of the working directory cannot set them.
//!
//! The list is written by hand, so that a key loses its mark only together with its line here. `docs/limits.md` says which keys limit what
//! peers can use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::schema;

/// The keys, by what they decide.
const GUARDS: &[(&str, &[&str])] = &[
    ("which file is written", &["calibration"]),
    ("which code is loaded", &["module_dir", "module_owners", "modules", "module_replace", "ib.library"]),
    ("who may connect, and see what this process does", &["shm.peers", "attach"]),
    ("where sockets and files are that others may reach", &["shm.dir", "posix.dir"]),
    (
        "which memory of a peer is trusted, and who may access that of this process",
        &["posix.segments", "posix.hugetlb_mode", "sysv.hugetlb_mode", "cma.ptracer"],
    ),
    ("what a peer can write to the log", &["log_rate"]),
    (
        "what unauthenticated peers can use",
        &[
            "tcp.hello_timeout",
            "tcp.max_half_open",
            "tcp.cm_max_pending",
            "tcp.cm_max_pending_per_source",
            "shm.hello_timeout",
            "shm.max_half_open",
            "ud_verbs.max_peer_ports",
            "rdmacm.backlog",
        ],
    ),
    (
        "how many connections and descriptors peers can use",
        &[
            "tcp.max_connections",
            "tcp.max_connections_per_source",
            "tcp.unused_timeout",
            "tcp.linger_timeout",
            "tcp.reserved_descriptors",
            "shm.max_connections",
            "shm.max_connections_per_process",
            "shm.max_connections_per_user",
            "shm.reserved_descriptors",
            "ud_verbs.max_connections",
            "ud_verbs.max_connections_per_port",
        ],
    ),
    (
        "how much memory and time peers can use",
        &[
            "tcp.answer_queue_size",
            "tcp.max_announced",
            "tcp.max_announced_per_source",
            "tcp.max_message",
            "shm.max_cached_segments",
            "shm.max_cached_bytes",
            "shm.copy_timeout",
            "ud_verbs.max_answer_bytes",
        ],
    ),
    ("how often a peer can guess a key", &["tcp.max_refused", "ud_verbs.max_refused"]),
];

/// Keys of `docs/limits.md` that are none: sizes of buffers that an interface makes in any case, with a range, how much of them one turn
/// serves, and times after which a silent peer is dead or memory is given back.
const SIZES_AND_TIMES: &[&str] = &[
    "tcp.rx_seg_size",
    "tcp.tx_queue_size",
    "tcp.max_poll",
    "tcp.user_timeout",
    "shm.fifo_size",
    "shm.small_seg_count",
    "shm.seg_count",
    "shm.trim_timeout",
    "ud_verbs.keepalive_timeout",
    "ud_verbs.max_window",
    "ud_verbs.rx_queue_len",
    "rc_verbs.fc_window",
    "rc_verbs.rx_queue_len",
];

/// The names of all keys, `SECTION.KEY` or that of a global one, for which `is_meant` holds.
fn keys(is_meant: impl Fn(&uct_core::configuration::Field) -> bool) -> BTreeSet<String> {
    let schema = schema::schema();
    let meant = schema.keys().filter(|(_, field)| is_meant(field));
    meant
        .map(|(section, field)| match &*section.name {
            "" => field.name.to_string(),
            section => format!("{section}.{}", field.name),
        })
        .collect()
}

fn guards() -> BTreeSet<String> {
    GUARDS.iter().flat_map(|(_, keys)| *keys).map(|key| (*key).to_owned()).collect()
}

#[test]
fn the_keys_that_guard_are_the_security_keys() {
    let (marked, guards) = (keys(|field| field.security), guards());
    let unmarked: Vec<_> = guards.difference(&marked).collect();
    assert!(unmarked.is_empty(), "{unmarked:?}: no security keys, and each decides what the list says of it");
    let unlisted: Vec<_> = marked.difference(&guards).collect();
    assert!(
        unlisted.is_empty(),
        "{unlisted:?}: security keys; add what they decide to the list of this test"
    );
}

#[test]
fn the_keys_of_the_limits_against_peers_are_security_keys_or_sizes_and_times() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits.md");
    let (all, guards) = (keys(|_| true), guards());
    let mut found = BTreeSet::new();
    let mut section = String::new();
    for line in fs::read_to_string(&path).expect("the page").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = match title {
                "All transports" => String::new(),
                "Shared memory" => "shm.".to_owned(),
                transport => format!("{transport}."),
            };
        }
        let Some(cell) = line.strip_suffix('|').and_then(|row| row.rsplit('|').next()) else { continue };
        // Every other piece is between backticks.
        for name in cell.split('`').skip(1).step_by(2) {
            let key = format!("{section}{name}");
            assert!(all.contains(&key), "{}: there is no key {key}", path.display());
            found.insert(key);
        }
    }
    assert!(found.len() > 30, "the tables are read: {found:?}");
    for key in &found {
        let is_size = SIZES_AND_TIMES.contains(&key.as_str());
        assert!(
            guards.contains(key) != is_size,
            "{key} limits peers: list it as a guard, or as a size or time"
        );
    }
    for key in SIZES_AND_TIMES {
        assert!(found.contains(*key), "{key} is not in {}", path.display());
    }
}
