//! The library as it was promised: functions, structures and constants as the committed `layout.txt` has them, as Rust
//! has them, as C and C++ read the header, and as the file exports them.
//!
//! `UPDATE_LAYOUT=1 cargo test -p uct-net-c` writes `layout.txt` anew: for a function or a constant that was added.
//! Anything else breaks programs that exist, and needs a new name of the library.

use std::collections::BTreeSet;
use std::fs;
use std::mem::offset_of;

use ucs::Status;
use uct_net_c::abi::*;

use crate::compiled::{NAME, Place, WARNINGS, compiler, library, run, sources};
use crate::skip::skip;

fn header() -> String {
    fs::read_to_string(sources().join("include/uct.h")).expect("the header")
}

/// The header without comments.
fn code() -> String {
    let mut code = String::new();
    let header = header();
    let mut rest = header.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").expect("the end of a comment").1;
    }
    code + rest
}

/// The declarations of functions, one a line.
fn functions() -> Vec<String> {
    let code: String = code().lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let declared = code.split(';').map(words).filter(|text| text.contains(") ") || text.ends_with(')'));
    declared.map(|text| text.rsplit("{ ").next().unwrap_or_default().to_owned()).collect()
}

fn name(function: &str) -> &str {
    let (before, _) = function.split_once('(').expect("a function");
    before.rsplit([' ', '*']).next().expect("a name")
}

/// Name and value of each constant.
fn constants() -> Vec<(String, i64)> {
    let code = code();
    let defined = code.lines().filter_map(|line| line.strip_prefix("#define UCT_")?.split_once(' '));
    defined.map(|(name, value)| (format!("UCT_{name}"), value.trim().parse().expect("a number"))).collect()
}

macro_rules! structures {
    ($($name:ident: $($field:ident)*;)*) => {
        /// Sizes, and the offsets of fields.
        fn structures() -> Vec<String> {
            vec![$(
                format!("{} size {} alignment {}", stringify!($name), size_of::<$name>(), align_of::<$name>()),
                $(format!("{}.{} {}", stringify!($name), stringify!($field), offset_of!($name, $field)),)*
            )*]
        }

        /// A program that prints the same.
        fn program() -> String {
            let mut text = "#include <stdio.h>\n#include <uct.h>\nint main(void) {\n".to_owned();
            $(
                let name = stringify!($name);
                text += &format!("struct alignment_{name} {{ char before; {name} it; }};\n");
                text += &format!("printf(\"{name} size %d alignment %d\\n\", (int)sizeof({name}), ");
                text += &format!("(int)offsetof(struct alignment_{name}, it));\n");
                $({
                    let field = stringify!($field);
                    text += &format!("printf(\"{name}.{field} %d\\n\", (int)offsetof({name}, {field}));\n");
                })*
            )*
            text + "return 0;\n}\n"
        }
    };
}

structures! {
    uct_event: op user length data result status kind;
    uct_block: local remote length;
}

#[test]
fn the_layout_is_the_committed_one() {
    let constants = constants().into_iter().map(|(name, value)| format!("{name} {value}"));
    let lines: Vec<String> = structures().into_iter().chain(constants).chain(functions()).collect();
    let now = lines.join("\n") + "\n";
    let path = sources().join("layout.txt");
    if std::env::var_os("UPDATE_LAYOUT").is_some() {
        fs::write(&path, &now).expect("layout.txt can be written");
    }
    let committed = fs::read_to_string(&path).expect("layout.txt is there");
    for (committed, now) in committed.lines().zip(now.lines()) {
        assert_eq!(committed, now, "layout.txt and the header (UPDATE_LAYOUT=1 writes layout.txt anew)");
    }
    assert_eq!(committed.lines().count(), now.lines().count());
}

#[test]
fn c_and_rust_have_the_same_structures() {
    let place = Place::new();
    let Some(program) = place.compile_text("layout", &program()) else { return };
    let printed = run(&mut std::process::Command::new(program));
    assert_eq!(printed.lines().collect::<Vec<_>>(), structures());
}

#[test]
fn the_header_has_the_constants_of_the_library() {
    let constants = constants();
    let value = |name: &str| constants.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
    for status in Status::ALL {
        // The first and the last number of a range are no statuses.
        if let Some(status_name) = status.name().filter(|name| !name.ends_with("_FAILURE")) {
            let prefix = if status.raw() < 0 { "UCT_ERR_" } else { "UCT_" };
            assert_eq!(
                value(&format!("{prefix}{status_name}")),
                Some(i64::from(status.raw())),
                "{status_name}"
            );
        }
    }
    let kinds = [
        UCT_EV_CONNECT,
        UCT_EV_LISTEN,
        UCT_EV_ACCEPT,
        UCT_EV_SEND,
        UCT_EV_RECV,
        UCT_EV_RECV_INTO,
        UCT_EV_CONN_CLOSE,
        UCT_EV_SHARE,
        UCT_EV_SHARED,
        UCT_EV_PUT,
        UCT_EV_GET,
        UCT_EV_FETCH_ADD,
        UCT_EV_FLUSH,
        UCT_EV_PUT_BLOCKS,
        UCT_EV_GET_BLOCKS,
        UCT_EV_NOTIFIED,
    ];
    let in_header: Vec<i64> =
        constants.iter().filter(|(name, _)| name.starts_with("UCT_EV_")).map(|(_, value)| *value).collect();
    assert_eq!(in_header, kinds.map(i64::from));
}

#[test]
fn the_file_exports_the_functions_of_the_header_and_nothing_else() {
    let Ok(output) = std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output()
    else {
        return skip("binutils", "there is no nm, of the package binutils");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let exported: BTreeSet<&str> =
        printed.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let functions = functions();
    let declared: BTreeSet<&str> = functions.iter().map(|function| name(function)).collect();
    assert_eq!(exported, declared);
    assert!(declared.iter().all(|name| name.starts_with("uct_")));
    let output = run(std::process::Command::new("readelf").arg("-d").arg(library()));
    assert!(output.contains(&format!("[{NAME}]")) && output.contains("NODELETE"), "{output}");
}

#[test]
fn the_header_is_c99_and_cxx11() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "#include <uct.h>\nuct_event event;\nuct_op start(uct_conn *conn) { return uct_send(conn, 0, 0, 1); }\n";
    for (variable, default, standard, suffix) in [("CC", "cc", "c99", "c"), ("CXX", "c++", "c++11", "cc")] {
        let source = directory.path().join(format!("header.{suffix}"));
        fs::write(&source, text).expect("a source");
        let Some(mut compile) = compiler(variable, default) else { continue };
        compile.arg(format!("-std={standard}")).args(WARNINGS).arg("-fsyntax-only").arg(&source);
        run(&mut compile);
        // Beside the header of the plugin boundary.
        let both = format!("#include <uct_abi.h>\n{text}");
        fs::write(&source, both).expect("a source");
        let plugin = sources().join("../../uct-core/abi/include");
        let Some(mut compile) = compiler(variable, default) else { continue };
        let standard = if suffix == "c" { "c11" } else { standard };
        compile.arg(format!("-std={standard}")).args(["-Wall", "-Werror"]).arg("-I").arg(plugin);
        run(compile.arg("-fsyntax-only").arg(&source));
    }
}
