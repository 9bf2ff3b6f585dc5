//! The headers compile as C99 and as C++11 with every warning an error.

use std::process::{Command, Stdio};

use crate::program::{compiler, is_here, source};

/// All of them, each of which is complete by itself.
const HEADERS: &[&str] = &[
    "ucs/async/async.h",
    "ucs/async/async_fwd.h",
    "ucs/config/types.h",
    "ucs/datastruct/linear_func.h",
    "ucs/memory/memory_type.h",
    "ucs/sys/compiler_def.h",
    "ucs/type/cpu_set.h",
    "ucs/type/status.h",
    "ucs/type/thread_mode.h",
    "uct/api/uct.h",
    "uct/api/uct_def.h",
    "uct/api/v2/uct_v2.h",
    "uct/api/version.h",
];

#[test]
fn each_header_compiles_as_c99_and_cxx11() {
    for (variable, usual, language, standard) in
        [("CC", "cc", "c", "-std=c99"), ("CXX", "c++", "c++", "-std=c++11")]
    {
        let compiler = compiler(variable, usual);
        if !is_here(&compiler) {
            continue;
        }
        // Two at a time: each is complete, and includes what it needs.
        for header in HEADERS {
            let mut compile = Command::new(&compiler);
            compile.args([
                "-x",
                language,
                standard,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-fsyntax-only",
            ]);
            compile.arg("-I").arg(source("include/uct-compat")).arg("-include").arg(header).arg("-");
            let mut compile =
                compile.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the compiler runs");
            let program = b"int main(void) { return 0; }\n";
            std::io::Write::write_all(&mut compile.stdin.take().expect("piped"), program).expect("it reads");
            let output = compile.wait_with_output().expect("its output");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{header} {standard}: {errors}");
        }
    }
}

#[test]
fn each_header_is_in_the_list() {
    fn walk(directory: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => walk(&path, found),
                false => found.push(path.display().to_string()),
            }
        }
    }
    let root = source("include/uct-compat");
    let mut found = Vec::new();
    walk(&root, &mut found);
    let prefix = format!("{}/", root.display());
    let mut found: Vec<&str> = found.iter().filter_map(|path| path.strip_prefix(&prefix)).collect();
    found.sort_unstable();
    assert_eq!(found, HEADERS);
}
