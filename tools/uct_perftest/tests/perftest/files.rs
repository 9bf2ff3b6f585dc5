//! Plots, comparisons, and what else is written.

use crate::support::{ended, parse};

#[test]
fn a_plot_is_a_picture_of_every_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plot.svg");
    for (test, lines) in [("put_lat", 2), ("put_bw", 1)] {
        ended(&format!("-l -x self -t {test} -s 8..256 -n 20 -w 2 -f --plot {}", path.display())).success();
        let picture = std::fs::read_to_string(&path).unwrap();
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<polyline").count(), lines);
        assert_eq!(picture.matches("<circle").count(), 6 * lines);
        assert!(picture.contains(&format!("{test} over self/memory")));
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }
}

#[test]
fn the_page_of_the_programs_names_every_field_of_a_result() {
    fn check(value: &serde_json::Value) {
        let page = include_str!("../../../../docs/tools.md");
        for (name, inner) in value.as_object().into_iter().flatten() {
            assert!(page.contains(&format!("`{name}`")), "docs/tools.md has no `{name}`");
            check(inner.as_array().and_then(|all| all.first()).unwrap_or(inner));
        }
    }
    check(&parse(&ended("-l -x self -t am_lat -n 20 -w 2 --json").success()));
}

#[test]
fn two_results_are_compared_size_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let measure = |name: &str, options: &str| {
        let printed = ended(&format!("-l -x self {options} -n 100 -w 10 --json")).success();
        std::fs::write(path(name), printed).unwrap();
    };
    measure("a.json", "-t am_lat -D short -s 8:64:100");
    measure("b.json", "-t am_lat -D bcopy -s 8:64");
    let table = ended(&format!("--compare {} {}", path("a.json"), path("b.json"))).success();
    assert!(table.contains("latency, median (us)") && table.contains("B : A"), "{table}");
    assert_eq!(table.lines().filter(|line| line.contains("99% (us)")).count(), 2, "{table}");

    let compared =
        parse(&ended(&format!("--compare {} {} --json", path("a.json"), path("b.json"))).success());
    let rows = compared["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let (a, b) = (row["a"].as_f64().unwrap(), row["b"].as_f64().unwrap());
        assert!((row["ratio"].as_f64().unwrap() - b / a).abs() < 1e-9);
        assert_eq!(row["b_is_better"], if a == b { serde_json::Value::Null } else { (b < a).into() });
    }

    measure("c.json", "-t am_bw");
    let line = ended(&format!("--compare {} {}", path("a.json"), path("c.json"))).failure();
    assert!(line.contains("am_lat") && line.contains("am_bw"), "{line}");
    measure("d.json", "-t am_lat -s 9");
    let line = ended(&format!("--compare {} {}", path("a.json"), path("d.json"))).failure();
    assert!(line.contains("no size in common"), "{line}");
    std::fs::write(path("e.json"), "{}").unwrap();
    let line = ended(&format!("--compare {} {}", path("a.json"), path("e.json"))).failure();
    assert!(line.contains("e.json") && line.contains("--json"), "{line}");
}

#[test]
fn manual_page_and_completions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    ended(&format!("--generate-man {path}")).success();
    ended(&format!("--generate-completions {path}")).success();
    assert!(std::fs::read_to_string(dir.path().join("uct_perftest.1")).unwrap().contains("am_lat"));
    assert!(dir.path().join("uct_perftest.bash").exists());
}
