//! Every test on every transport of this machine, with both sides in one process.

use crate::support::process::{command, start};
use crate::support::{PROGRAM, ended, parse, resources, results};
use uct_core::DeviceKind;

const TESTS: [&str; 12] = [
    "am_lat", "am_bw", "am_mr", "put_lat", "put_bw", "get_lat", "get_bw", "add_lat", "add_mr", "fadd",
    "swap", "cswap",
];

#[test]
fn every_transport_runs_every_test() {
    let resources = resources();
    assert!(!resources.is_empty());
    for resource in resources {
        for test in TESTS {
            let (transport, device) = (&resource.transport, &resource.device);
            let ended = ended(&format!("-l -x {transport} -d {device} -t {test} -n 20 -w 5 --json"));
            if ended.code != Some(0) && ended.stderr.contains(" has no ") {
                println!("skipped: {resource} {test}: {}", ended.stderr);
                continue;
            }
            let document = parse(&ended.success());
            assert_eq!(
                (&document["transport"], &document["device"]),
                (&(**transport).into(), &(**device).into())
            );
            let results = results(&document);
            assert_eq!((&results[0]["iterations"], &results[0]["size"]), (&20.into(), &8.into()));
            // A side that talks to itself has no server beside it.
            let alone = resource.kind == DeviceKind::Myself;
            assert_eq!(results[0]["cpu"]["server_ns"].is_null(), alone, "{document:#}");
        }
    }
}

#[test]
fn a_message_that_memory_does_not_suffice_for_is_refused_in_words() {
    let mut refusals = 0;
    for limit in [100_000, 130_000, 160_000, 190_000, 250_000] {
        let script =
            format!("ulimit -v {limit}; exec {PROGRAM} -l -x self -t get_bw -D short -n 2 -w 1 -s 64m");
        let mut command = command("bash", &["-c", &script]);
        let ended = start(command.current_dir("/").env("HOME", "/nonexistent")).end();
        if ended.code != Some(0) {
            assert_eq!(ended.code, Some(1), "{limit} KiB: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{limit} KiB: {}", ended.stderr);
            refusals += 1;
        }
    }
    assert!(refusals > 0, "64 MiB fit into 100 MB twice");
}

#[test]
fn every_transport_moves_every_layout_up_to_its_limit() {
    for resource in resources() {
        for test in ["am_lat", "am_bw", "put_lat", "put_bw", "get_bw"] {
            for layout in ["short", "bcopy", "zcopy"] {
                let (transport, device) = (&resource.transport, &resource.device);
                let line =
                    format!("-l -x {transport} -d {device} -t {test} -D {layout} -s 1:9:1k -n 8 -w 2 --json");
                let ended = ended(&line);
                if ended.code != Some(0)
                    && (ended.stderr.contains(" has no ") || ended.stderr.contains("fewer than"))
                {
                    println!("skipped: {resource} {test} {layout}: {}", ended.stderr);
                    continue;
                }
                let results = results(&parse(&ended.success()));
                assert_eq!(results.len(), 3);
                assert!(results.iter().all(|result| result["layout"] == layout));
            }
        }
    }
}

#[test]
fn without_a_transport_the_cheapest_is_taken_and_the_reason_told() {
    let printed = ended("-l -n 50 -w 5 --explain").success();
    let chosen = printed.lines().find_map(|line| line.strip_prefix("CHOSEN ")).expect("nothing was chosen");
    let name = chosen.split_whitespace().next().unwrap();
    assert!(printed.contains(&format!("over {name}, waiting by poll")), "{printed}");
    assert!(printed.contains("# the "), "{printed}");
}

#[test]
fn a_sweep_goes_from_layout_to_layout_where_no_other_is_named() {
    let resource = &resources()[0];
    let line =
        format!("-l -x {} -d {} -t put_bw -s 8..64:1k -n 5 -w 1 --json", resource.transport, resource.device);
    let results = results(&parse(&ended(&line).success()));
    let sizes: Vec<u64> = results.iter().map(|result| result["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [8, 16, 32, 64, 1024]);
}

#[test]
fn a_size_that_does_not_fit_is_left_out_and_named_and_the_others_are_measured() {
    for resource in resources() {
        let (transport, device) = (&resource.transport, &resource.device);
        // More than any transport sends in place, beside the header too; a list in each of its forms.
        let line = format!("-l -x {transport} -d {device} -t am_lat -D bcopy -s 8,16:1k..1m -n 5 -w 1");
        let document = parse(&ended(&format!("{line} --json")).success());
        let sizes = |part: &str| -> Vec<u64> {
            let all = document[part].as_array().unwrap();
            all.iter().map(|it| it["size"].as_u64().unwrap()).collect()
        };
        let (measured, left_out) = (sizes("results"), sizes("left_out"));
        assert_eq!([&measured[..], &left_out[..]].concat().len(), 13, "{document:#}");
        assert_eq!(measured[..3], [8, 16, 1024]);
        assert_eq!(left_out.last(), Some(&(1 << 20)), "{document:#}");
        let reason = document["left_out"][0]["reason"].as_str().unwrap();
        assert!(reason.contains("more than the") && reason.contains("am_bcopy"), "{reason}");
        let printed = ended(&line).success();
        assert!(printed.contains("# 1m left out: 1048576 bytes are more than the"), "{printed}");
    }
    let line = ended("-l -x self -t fadd -s 4..16 -n 5 -w 1 -f").success();
    assert!(line.contains("# 16 left out: fadd takes 4 or 8 bytes"), "{line}");
}

/// The limit of a message without a copy holds for the header, too.
#[test]
fn the_largest_message_that_fits_is_measured_and_one_byte_more_is_left_out() {
    for resource in resources() {
        let (transport, device) = (&resource.transport, &resource.device);
        let line = |size: &str| {
            ended(&format!("-l -x {transport} -d {device} -t am_lat -D zcopy -s {size} -n 2 -w 1 --json"))
        };
        let probe = line("64,1g");
        if probe.code != Some(0) && probe.stderr.contains(" has no ") {
            println!("skipped: {resource}: {}", probe.stderr);
            continue;
        }
        let document = parse(&probe.success());
        let reason = document["left_out"][0]["reason"].as_str().unwrap().to_owned();
        let (_, most) = reason.split_once("more than the ").unwrap();
        let most: u64 = most.split(' ').next().unwrap().parse().unwrap();
        if most > 1 << 20 {
            println!("skipped: {resource}: {most} bytes take too long");
            continue;
        }
        let document = parse(&line(&format!("{most},{}", most + 1)).success());
        assert_eq!(document["results"][0]["size"], most);
        assert_eq!(document["left_out"][0]["size"], most + 1);
    }
}

#[test]
fn where_a_transport_is_named_no_other_one_is_explained() {
    for resource in resources() {
        let transport = &resource.transport;
        let printed = ended(&format!("-l -x {transport} -n 5 -w 1 --explain")).success();
        let verdicts = printed
            .lines()
            .filter(|line| ["CHOSEN", "USABLE", "REJECTED"].iter().any(|verdict| line.starts_with(verdict)));
        for line in verdicts {
            assert!(line.split_whitespace().nth(1).unwrap().starts_with(transport.as_str()), "{line}");
        }
        let refused = ended(&format!("-l -x {transport} -D short -s 1g -n 5")).failure();
        assert!(!refused.contains("tls = "), "{refused}");
    }
}

#[test]
fn a_batch_may_be_given_and_a_window_keeps_messages_back_without_losing_any() {
    for resource in resources() {
        let (transport, device) = (&resource.transport, &resource.device);
        let line = format!("-l -x {transport} -d {device} -t am_mr -n 1000 -w 10 -W 4 --batch 10 --json");
        let document = parse(&ended(&line).success());
        let results = results(&document);
        assert_eq!((&results[0]["batch"], &results[0]["iterations"]), (&10.into(), &1000.into()));
        assert_eq!(document["window"], 4);
    }
}

#[test]
fn a_side_that_sleeps_spends_less_of_the_processor_than_the_time_that_goes_by() {
    for resource in resources().into_iter().filter(|resource| resource.kind != DeviceKind::Myself) {
        for mode in ["event", "adaptive"] {
            let (transport, device) = (&resource.transport, &resource.device);
            let line = format!("-l -x {transport} -d {device} -E {mode} -n 200 -w 10 --json");
            let ended = ended(&line);
            if ended.code != Some(0) && ended.stderr.contains("no events") {
                println!("skipped: {resource} {mode}: {}", ended.stderr);
                continue;
            }
            let document = parse(&ended.success());
            assert_eq!(document["wait"], mode);
            let result = &results(&document)[0];
            // A round trip is two latencies.
            let elapsed = 2.0 * result["latency"]["average_ns"].as_f64().unwrap();
            let spent = result["cpu"]["client_ns"].as_f64().unwrap();
            assert!(spent < elapsed * 1.05, "{spent} of {elapsed} ns: {document:#}");
        }
    }
}

#[test]
fn processors_may_be_given() {
    let cpu = uct_core::system::cpu::affinity().unwrap()[0];
    let document = parse(&ended(&format!("-l -x self -n 20 -c {cpu} --json")).success());
    assert_eq!(document["host"]["cpus"], serde_json::json!([cpu]));
    let line = ended("-l -x self -n 20 -c 1023").failure();
    assert!(line.contains("1023") && line.contains("may use"), "{line}");
}

#[test]
fn a_table_like_ucxs_or_comma_separated_values_are_printed() {
    let table = ended("-l -x self -n 100").success();
    assert!(table.contains("|    Stage     | # iterations | 50.0%ile | average | overall |"), "{table}");
    let figures = table.lines().find_map(|line| line.strip_prefix("Final:")).expect("no final figures");
    let figures: Vec<f64> = figures.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
    assert_eq!((figures.len(), figures[0]), (8, 100.0), "{table}");

    let values = ended("-l -x self -n 100 -s 8:64 -v").success();
    let lines: Vec<Vec<&str>> = values.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    assert_eq!((lines[0][0], lines[1][0], lines[2][0]), ("size", "8", "64"));
}

#[test]
fn connections_awaited_messages_and_streams_are_measured_over_each_transport() {
    for resource in resources() {
        let (transport, device) = (&resource.transport, &resource.device);
        for test in ["connect", "await_lat", "stream_lat", "stream_bw"] {
            let line = format!("-l -x {transport} -d {device} -t {test} -s 1:100:100000 -n 20 -w 2");
            if resource.kind == DeviceKind::Myself {
                let refused = ended(&line).failure();
                assert!(refused.contains("two sides") && refused.contains("-x"), "{refused}");
                continue;
            }
            let document = parse(&ended(&format!("{line} --json")).success());
            let results = results(&document);
            let sizes: Vec<u64> = results.iter().map(|result| result["size"].as_u64().unwrap()).collect();
            let expected: &[u64] = if test == "connect" { &[0] } else { &[1, 100, 100_000] };
            assert_eq!((&document["transport"], &*sizes), (&transport.as_str().into(), expected));
            for result in results {
                assert_eq!((&result["layout"], &result["iterations"]), (&"auto".into(), &20.into()));
                assert!(result["cpu"]["server_ns"].as_f64().unwrap() > 0.0);
            }
            let values = ended(&format!("{line} -v")).success();
            assert_eq!(values.lines().count(), expected.len() + 1, "{values}");
            let table = ended(&line).success();
            assert!(table.contains(&format!("# {test}: ")), "{table}");
        }
    }
}

#[test]
fn many_connections_are_made_at_once() {
    for resource in resources().into_iter().filter(|resource| resource.kind != DeviceKind::Myself) {
        let (transport, device) = (&resource.transport, &resource.device);
        let line = format!("-l -x {transport} -d {device} -t connect -O 16 -n 50 -w 0 --json");
        let document = parse(&ended(&line).success());
        assert_eq!(
            (&document["outstanding"], &document["results"][0]["iterations"]),
            (&16.into(), &50.into())
        );
    }
}

#[test]
fn a_side_that_sleeps_measures_awaited_messages_and_streams_too() {
    for mode in ["event", "adaptive"] {
        for test in ["connect", "await_lat", "stream_bw"] {
            let document = parse(&ended(&format!("-l -t {test} -E {mode} -n 50 --json")).success());
            assert_eq!((&document["wait"], &document["test"]), (&mode.into(), &test.into()));
            results(&document);
        }
    }
}
