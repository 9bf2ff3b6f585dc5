//! The host's end of the log under a plugin that misbehaves, which uses up what all share.

use crate::alone::is_alone;
use crate::log_record::RECORD;
use crate::page::printed;
use ucs::log::Record;
use ucs::log::receive::{self, COMMON_TARGET, MAX_CALLSITES};

#[test]
fn a_plugin_that_makes_places_up_does_not_fill_the_memory() {
    if !is_alone() {
        return;
    }
    let long = "x".repeat(100_000);
    let text = printed("error", || {
        receive::emit(&Record { level: 1, target: &long, ..RECORD });
        for line in 0..2 * MAX_CALLSITES {
            let line = u32::try_from(line).unwrap() + 1000;
            receive::emit(&Record { level: 1, target: "flood", line, ..RECORD });
        }
    });
    let from_common = text.lines().filter(|line| line.contains(&format!(" {COMMON_TARGET}: "))).count();
    assert!(from_common > MAX_CALLSITES, "{from_common} came from the common place");
    assert_eq!(text.lines().count(), 2 * MAX_CALLSITES + 1, "records were lost");
    assert!(text.lines().next().unwrap().len() < 1000, "a target without end was printed");
    assert!(text.lines().last().unwrap().ends_with("plugin: flood: sent {8} bytes"), "{text}");
}
