//! What people write for sizes, times, bandwidths, switches and lists, and what it means.

use std::time::Duration;

use crate::property;
use proptest::prelude::*;
use ucs::units::{
    Bandwidth, Count, MemSize, NameList, Range, Ternary, Time, UnitError, glob_matches, parse_bool,
};

fn size(text: &str) -> u64 {
    text.parse::<MemSize>().unwrap_or_else(|error| panic!("{error}")).bytes()
}

fn seconds(text: &str) -> f64 {
    text.parse::<Time>().unwrap_or_else(|error| panic!("{error}")).seconds()
}

fn bandwidth(text: &str) -> f64 {
    text.parse::<Bandwidth>().unwrap_or_else(|error| panic!("{error}")).bytes_per_second()
}

/// That `text` is refused, by an error that shows it, says what was expected, and whose example is accepted.
fn refused<T: std::str::FromStr<Err = UnitError> + std::fmt::Debug>(text: &str) {
    let error = text.parse::<T>().expect_err(text);
    let message = error.to_string();
    assert!(message.contains(error.given()), "{message}");
    assert!(message.contains(error.expected()), "{message}");
    assert!(!error.expected().is_empty());
    assert!(message.contains(&format!("is not a {}: expected", error.what())), "{message}");
    assert!(message.ends_with(&format!("for example {}", error.example())), "{message}");
    assert!(error.example().parse::<T>().is_ok(), "the example is refused: {message}");
}

#[test]
fn sizes_are_powers_of_1024_in_every_spelling() {
    for text in ["64K", "64k", "64KB", "64kb", "64KiB", "64kib", " 64 k ", "65536", "65536B"] {
        assert_eq!(size(text), 65536, "{text}");
    }
    assert_eq!((size("1m"), size("3G"), size("2TiB")), (1 << 20, 3 << 30, 2 << 40));
    assert_eq!(size("0"), 0);
    assert!(MemSize::INF == "INF".parse().unwrap() && MemSize::INF.is_inf());
    assert!(MemSize::AUTO == "auto".parse().unwrap() && MemSize::AUTO.is_auto());
    assert_eq!(MemSize::INF.to_usize(), usize::MAX);
    assert_eq!(MemSize::AUTO.to_usize(), usize::MAX);
    assert_eq!(MemSize::new(5).to_usize(), 5);
}

#[test]
fn sizes_that_are_not_whole_numbers_or_too_large_are_refused() {
    let texts =
        ["", "k", "64x", "-1", "+1", "1.5k", "64kk", "64ib", "64 k b", "0x10", "1e3", "auto1", "none"];
    for text in texts {
        refused::<MemSize>(text);
    }
    // The numbers that stand for inf and auto are not numbers of bytes.
    for text in ["18446744073709551615", "18446744073709551614", "16777216t", "99999999999999999999"] {
        refused::<MemSize>(text);
    }
    assert_eq!(size("18446744073709551613"), MemSize::MAX.bytes());
}

#[test]
fn sizes_are_written_with_the_largest_unit_that_is_exact() {
    let written = |bytes: u64| MemSize::new(bytes).to_string();
    assert_eq!(written(65536), "64k");
    assert_eq!(written(65537), "65537");
    assert_eq!(written(0), "0");
    assert_eq!(written(5 << 40), "5t");
    assert_eq!(format!("{:>5}|{:<5}|", MemSize::new(1024), MemSize::INF), "   1k|inf  |");
}

#[test]
fn times_have_units_and_are_seconds_without() {
    assert_eq!((seconds("10ms"), seconds("5us"), seconds("100ns"), seconds("30s")), (0.01, 5e-6, 1e-7, 30.0));
    assert_eq!((seconds("2"), seconds("0.5"), seconds("1e-3")), (2.0, 0.5, 0.001));
    assert_eq!(
        (seconds("2m"), seconds("2min"), seconds("1h"), seconds("3 MS")),
        (120.0, 120.0, 3600.0, 0.003)
    );
    assert_eq!(seconds("7µs"), 7e-6);
    assert!("inf".parse::<Time>().unwrap().is_inf());
    for text in ["", "s", "-1s", "nan", "1x", "1e999", "infinite", "1..2", "1h30m", "--1", "auto"] {
        refused::<Time>(text);
    }
    assert_eq!(seconds("-0").to_bits(), 0, "minus zero is zero");
}

#[test]
fn times_become_durations_and_back() {
    assert_eq!(Duration::from("10ms".parse::<Time>().unwrap()), Duration::from_millis(10));
    assert_eq!(Duration::from(Time::INF), Duration::MAX);
    assert_eq!(Time::from_seconds(1e300).to_duration(), Duration::MAX);
    assert_eq!(Time::from(Duration::MAX), Time::INF);
    assert_eq!(Time::from(Duration::from_micros(5)).to_string(), "5us");
    assert_eq!(Time::from_seconds(-3.0), Time::ZERO);
    assert_eq!(Time::from_seconds(f64::NAN), Time::ZERO);
}

#[test]
fn times_are_written_as_people_write_them() {
    for text in ["10ms", "5us", "30s", "100ns", "inf", "2m", "1h", "0s", "1.5s"] {
        assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
    }
}

#[test]
fn bandwidths_of_bytes_are_binary_and_of_bits_decimal() {
    let mega = f64::from(1 << 20);
    for text in ["100MBs", "100MB/s", "100MBps", "100 mB/s", "100MiB/s"] {
        assert_eq!(bandwidth(text), 100.0 * mega, "{text}");
    }
    assert_eq!(bandwidth("10Gbps"), 1.25e9);
    assert_eq!(bandwidth("8b/s"), 1.0);
    assert_eq!(bandwidth("1.5GB/s"), 1.5 * 1024.0 * mega);
    assert_eq!((bandwidth("500"), bandwidth("500B/s"), bandwidth("0")), (500.0, 500.0, 0.0));
    assert!("inf".parse::<Bandwidth>().unwrap().is_inf());
    let auto = "auto".parse::<Bandwidth>().unwrap();
    assert!(auto.is_auto() && !auto.is_inf() && auto.bytes_per_second() == -1.0);
    for text in
        ["", "MB/s", "-1", "-1MB/s", "10G", "10Mib/s", "iB/s", "1XB/s", "1MB", "nan", "1e999B/s", "1µB/s"]
    {
        refused::<Bandwidth>(text);
    }
}

#[test]
fn bandwidths_are_written_as_people_write_them() {
    for text in ["100MB/s", "10Gbps", "inf", "auto", "1.5GB/s", "100Gbps", "0B/s"] {
        assert_eq!(text.parse::<Bandwidth>().unwrap().to_string(), text);
    }
}

#[test]
fn switches_know_many_words() {
    for text in ["y", "Yes", "on", "TRUE", "1", " yes "] {
        assert_eq!(parse_bool(text), Ok(true), "{text}");
        assert_eq!(text.parse(), Ok(Ternary::Yes), "{text}");
    }
    for text in ["n", "No", "off", "false", "0"] {
        assert_eq!(parse_bool(text), Ok(false), "{text}");
        assert_eq!(text.parse(), Ok(Ternary::No), "{text}");
    }
    assert_eq!(("Try".parse(), "auto".parse()), (Ok(Ternary::Try), Ok(Ternary::Auto)));
    for text in ["", "2", "yess", "tryauto", "o n"] {
        refused::<Ternary>(text);
        assert!(parse_bool(text).is_err(), "{text}");
    }
    assert!(parse_bool("try").is_err());
    for ternary in [Ternary::No, Ternary::Yes, Ternary::Try, Ternary::Auto] {
        assert_eq!(ternary.to_string().parse(), Ok(ternary));
        assert_eq!(Ternary::from_number(ternary.number()), Some(ternary));
    }
    assert_eq!(Ternary::from_number(4), None);
    assert_eq!((Ternary::Yes.decided(), Ternary::Try.decided()), (Some(true), None));
}

#[test]
fn ranges_have_both_ends_in_them() {
    let range: Range = "8-64".parse().unwrap();
    assert!(range.contains(8) && range.contains(64) && !range.contains(7) && !range.contains(65));
    let open: Range = " 8 - INF ".parse().unwrap();
    assert!(open.contains(u64::MAX) && !open.contains(7));
    assert_eq!("7".parse(), Ok(Range::new(7, 7).unwrap()));
    for text in ["", "-", "8-", "-8", "64-8", "a-b", "1-2-3", "1.5-2"] {
        refused::<Range>(text);
    }
    assert_eq!(Range::new(2, 1), None);
}

#[test]
fn counts_are_whole_and_may_have_no_limit() {
    assert_eq!("16".parse(), Ok(Count::new(16)));
    assert!("inf".parse::<Count>().unwrap().is_inf() && "AUTO".parse::<Count>().unwrap().is_auto());
    for text in ["", "-1", "1k", "1.0", "18446744073709551615", "18446744073709551614"] {
        refused::<Count>(text);
    }
}

#[test]
fn a_list_of_names_permits_those_in_it() {
    let list: NameList = "mlx5_0:1, eth*,ib?".parse().unwrap();
    for name in ["mlx5_0:1", "eth0", "eth", "ib0"] {
        assert!(list.contains(name), "{name}");
    }
    for name in ["mlx5_0:2", "mlx5_0", "ib", "ib10", "xeth0", ""] {
        assert!(!list.contains(name), "{name}");
    }
    assert!(!list.is_negated() && !list.is_all());
}

#[test]
fn a_list_with_a_caret_permits_all_but_those_in_it() {
    let list: NameList = "^tcp,ud_*".parse().unwrap();
    assert!(list.contains("self") && !list.contains("tcp") && !list.contains("ud_verbs"));
    assert!(list.is_negated());
    assert_eq!(list.entries().collect::<Vec<_>>(), ["tcp", "ud_*"]);
}

#[test]
fn all_permits_everything_also_among_others() {
    for text in ["all", "*", "tcp,all"] {
        let list: NameList = text.parse().unwrap();
        assert!(list.is_all() && list.contains("anything"), "{text}");
    }
    assert!(NameList::default().is_all());
    let none: NameList = "^all".parse().unwrap();
    assert!(!none.contains("tcp") && !none.is_all());
}

#[test]
fn a_list_with_an_empty_name_or_a_second_caret_is_refused() {
    for text in ["", "^", ",", "a,", ",a", "a,^b", "^^a", "a b", "a,,b"] {
        refused::<NameList>(text);
    }
}

#[test]
fn a_list_tells_which_of_its_entries_match_nothing() {
    let list: NameList = "tcp,ibv*,all,tpc,eth0".parse().unwrap();
    assert_eq!(list.unmatched(&["tcp", "ibv0", "self"]), ["tpc", "eth0"]);
}

#[test]
fn patterns_match_as_in_a_shell() {
    let cases = [
        ("*", "", true),
        ("", "", true),
        ("", "a", false),
        ("a*b*c", "a1b2c", true),
        ("a*b*c", "abcb", false),
        ("*a", "baaa", true),
        ("**a", "a", true),
        ("?", "é", true),
        ("?", "", false),
        ("eth[0-3]", "eth2", true),
        ("eth[0-3]", "eth4", false),
        ("eth[!0-3]", "eth4", true),
        ("eth[!0-3]", "eth0", false),
        ("[]a]", "]", true),
        ("[a-]", "-", true),
        ("[ab]", "b", true),
        ("[ab]", "c", false),
        ("[!ab]", "c", true),
        ("[!ab]", "a", false),
        ("[", "[", true),
        ("a[b", "a[b", true),
        ("[z-a]", "m", false),
        ("a*[0-9]", "ab12", true),
        ("mlx5_*:1", "mlx5_0:1", true),
        ("mlx5_*:1", "mlx5_0:11", false),
    ];
    for (pattern, name, expected) in cases {
        assert_eq!(glob_matches(pattern, name), expected, "{pattern} {name}");
    }
}

#[test]
fn a_pattern_made_to_run_away_does_not() {
    let start = std::time::Instant::now();
    assert!(!glob_matches(&"a*".repeat(2000), &"a".repeat(1500)));
    assert!(!glob_matches(&format!("{}b", "*a".repeat(1000)), &"a".repeat(3000)));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn errors_show_long_and_unprintable_texts_on_one_short_line() {
    let error = format!("x\n{}", "y".repeat(10_000)).parse::<MemSize>().unwrap_err().to_string();
    assert!(error.len() < 400 && !error.contains('\n'), "{error}");
    assert!(error.starts_with("\"x\\nyyy"), "{error}");
    let error = "64x".parse::<MemSize>().unwrap_err();
    assert_eq!((error.what(), error.given()), ("memory size", "\"64x\""));
    let error = error.to_string();
    assert!(error.starts_with("\"64x\" is not a memory size: expected a whole number"), "{error}");
}

proptest! {
    #![proptest_config(property::config())]

    #[test]
    fn every_size_reads_back(bytes in any::<u64>(), shift in 0_u32..64) {
        let own = MemSize::new(bytes >> shift << (shift / 2));
        prop_assert_eq!(own.to_string().parse(), Ok(own));
    }

    #[test]
    fn every_count_reads_back(number in any::<u64>()) {
        let own = Count::new(number);
        prop_assert_eq!(own.to_string().parse(), Ok(own));
    }

    #[test]
    fn every_time_reads_back(seconds in prop_oneof![0.0..1e9_f64, any::<f64>()]) {
        let own = Time::from_seconds(seconds);
        prop_assert_eq!(own.to_string().parse(), Ok(own), "{}", own);
    }

    #[test]
    fn whole_times_read_back_in_their_unit(number in 1_u32..1000, unit in prop_oneof!["ns", "us", "ms"]) {
        let text = format!("{number}{unit}");
        let own: Time = text.parse().unwrap();
        prop_assert_eq!(own.to_string().parse(), Ok(own));
        prop_assert!(own.to_string().len() <= text.len());
    }

    #[test]
    fn every_bandwidth_reads_back(bytes in prop_oneof![0.0..1e13_f64, any::<f64>()]) {
        let own = Bandwidth::from_bytes_per_second(bytes);
        prop_assert_eq!(own.to_string().parse(), Ok(own), "{}", own);
    }

    #[test]
    fn every_range_reads_back(one in any::<u64>(), other in prop_oneof![any::<u64>(), Just(u64::MAX)]) {
        let own = Range::new(one.min(other), one.max(other)).unwrap();
        prop_assert_eq!(own.to_string().parse(), Ok(own));
    }

    #[test]
    fn every_list_reads_back(negated in any::<bool>(), names in prop::collection::vec("[a-z0-9_:*?.-]{1,8}", 1..5)) {
        let text = format!("{}{}", if negated { "^" } else { "" }, names.join(","));
        let own: NameList = text.parse().unwrap();
        prop_assert_eq!(own.to_string(), text);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in ".{0,24}", start in "[0-9.eE+-]{0,6}") {
        let text = format!("{start}{text}");
        let _ = text.parse::<MemSize>();
        let _ = text.parse::<Count>();
        let _ = text.parse::<Time>();
        let _ = text.parse::<Bandwidth>();
        let _ = text.parse::<Ternary>();
        let _ = text.parse::<Range>();
        let _ = text.parse::<NameList>();
    }

    #[test]
    fn a_pattern_without_signs_matches_itself_only(name in "[a-z0-9_:]{0,8}", other in "[a-z0-9_:]{0,8}") {
        prop_assert!(glob_matches(&name, &name));
        prop_assert_eq!(glob_matches(&name, &other), name == other);
    }

    #[test]
    fn stars_match_as_a_plain_search_does(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
        prop_assert_eq!(glob_matches(&pattern, &name), slow_match(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn no_pattern_makes_the_matcher_panic(pattern in "[ab*?!éü\\[\\]-]{0,12}", name in "[abéü\\]-]{0,8}") {
        let _ = glob_matches(&pattern, &name);
    }
}

/// The definition of `*` and `?`, as plain as can be.
fn slow_match(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            slow_match(rest, name) || name.split_first().is_some_and(|(_, name)| slow_match(pattern, name))
        }
        (Some((b'?', rest)), Some((_, name))) => slow_match(rest, name),
        (Some((one, rest)), Some((other, name))) => one == other && slow_match(rest, name),
        _ => false,
    }
}
