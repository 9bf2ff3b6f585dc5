//! The host's end of the log.

use crate::log_record::RECORD;
use crate::page::printed;
use ucs::log::receive;
use ucs::log::{self, Record};

#[test]
fn the_host_prints_a_record_with_the_place_it_comes_from() {
    let text = printed("debug", || receive::emit(&RECORD));
    assert_eq!(text, "DEBUG uct_tcp::ep: src/ep.rs:42: sent {8} bytes\n");
}

#[test]
fn the_hosts_filter_works_by_the_plugins_module() {
    let emit = || {
        receive::emit(&RECORD);
        receive::emit(&Record { target: "uct_shm", ..RECORD });
        receive::emit(&Record { level: 1, target: "uct_shm", ..RECORD });
        // A second time, from the place that is known now.
        receive::emit(&RECORD);
    };
    let text = printed("warn,uct_tcp=debug", emit);
    let targets: Vec<_> =
        text.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert_eq!(
        targets,
        [["DEBUG", "uct_tcp::ep:"], ["ERROR", "uct_shm:"], ["DEBUG", "uct_tcp::ep:"]],
        "{text}"
    );
    assert_eq!(printed("off", emit), "");
}

#[test]
fn levels_keep_their_meaning_and_unknown_ones_are_seen() {
    for (number, name) in [(0, "ERROR"), (1, "ERROR"), (2, "WARN"), (3, "INFO"), (5, "TRACE"), (99, "TRACE")]
    {
        let text = printed("trace", || receive::emit(&Record { level: number, ..RECORD }));
        assert!(text.trim_start().starts_with(name), "{number}: {text}");
    }
    for number in 1..=5 {
        assert_eq!(log::level_number(log::level(number)), number);
    }
}
