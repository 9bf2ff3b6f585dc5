//! The boundary as it was promised: sizes, offsets and constants as Rust has them, as the committed `layout.txt` has them,
//! and as a C compiler reads the header.
//!
//! `UPDATE_LAYOUT=1 cargo test -p uct-abi` writes `layout.txt` anew: for a slot that was added at the end of its table,
//! or a new constant. Anything else breaks plugins that exist, and needs a new `UCT_ABI_MAJOR`.

use std::{any::type_name_of_val, fmt::Write as _, fs, path::Path, process::Command};

macro_rules! constants {
    ($($name:ident)*) => {
        /// Name, type and value of every constant that is a number.
        fn constants() -> Vec<(&'static str, &'static str, String)> {
            vec![$((stringify!($name), type_name_of_val(&uct_abi::$name), uct_abi::$name.to_string())),*]
        }
    };
}

constants! {
    UCT_MAGIC UCT_ABI_MAJOR UCT_ABI_MINOR UCT_OK UCT_INPROGRESS UCT_ERR_NO_MESSAGE UCT_ERR_NO_RESOURCE
    UCT_ERR_IO_ERROR UCT_ERR_NO_MEMORY UCT_ERR_INVALID_PARAM UCT_ERR_UNREACHABLE UCT_ERR_INVALID_ADDR
    UCT_ERR_NOT_IMPLEMENTED UCT_ERR_MESSAGE_TRUNCATED UCT_ERR_NO_PROGRESS UCT_ERR_BUFFER_TOO_SMALL
    UCT_ERR_NO_ELEM UCT_ERR_SOME_CONNECTS_FAILED UCT_ERR_NO_DEVICE UCT_ERR_BUSY UCT_ERR_CANCELED
    UCT_ERR_SHMEM_SEGMENT UCT_ERR_ALREADY_EXISTS UCT_ERR_OUT_OF_RANGE UCT_ERR_TIMED_OUT
    UCT_ERR_EXCEEDS_LIMIT UCT_ERR_UNSUPPORTED UCT_ERR_REJECTED UCT_ERR_NOT_CONNECTED
    UCT_ERR_CONNECTION_RESET UCT_ERR_ENDPOINT_TIMEOUT UCT_CAP_AM_SHORT UCT_CAP_AM_BCOPY UCT_CAP_AM_ZCOPY
    UCT_CAP_PENDING UCT_CAP_PUT_SHORT UCT_CAP_PUT_BCOPY UCT_CAP_PUT_ZCOPY UCT_CAP_GET_SHORT
    UCT_CAP_GET_BCOPY UCT_CAP_GET_ZCOPY UCT_CAP_ATOMIC_CPU UCT_CAP_ATOMIC_DEVICE
    UCT_CAP_ERRHANDLE_SHORT_BUF UCT_CAP_ERRHANDLE_BCOPY_BUF UCT_CAP_ERRHANDLE_ZCOPY_BUF
    UCT_CAP_ERRHANDLE_AM_ID UCT_CAP_ERRHANDLE_REMOTE_MEM UCT_CAP_ERRHANDLE_PEER_FAILURE UCT_CAP_EP_CHECK
    UCT_CAP_CONNECT_TO_IFACE UCT_CAP_CONNECT_TO_EP UCT_CAP_CB_SYNC UCT_CAP_EP_KEEPALIVE
    UCT_CAP_INTER_NODE UCT_EVENT_SEND_COMP UCT_EVENT_RECV UCT_EVENT_RECV_SIG UCT_SEND_SIGNALED
    UCT_PROGRESS_SEND UCT_PROGRESS_RECV UCT_IFACE_ASYNC_IN_PROGRESS UCT_AM_DESC UCT_AM_SHARED UCT_FLUSH_LOCAL UCT_FLUSH_REMOTE
    UCT_FLUSH_CANCEL
    UCT_DEVICE_NET UCT_DEVICE_SHM UCT_DEVICE_ACC UCT_DEVICE_SELF UCT_DEVICE_IS_SOFTWARE UCT_SCOPE_DEVICE UCT_SCOPE_NETWORK
    UCT_ATOMIC_ADD UCT_ATOMIC_AND UCT_ATOMIC_OR UCT_ATOMIC_XOR UCT_ATOMIC_SWAP UCT_ATOMIC_CSWAP
    UCT_MD_ACCESS_REMOTE_PUT UCT_MD_ACCESS_REMOTE_GET UCT_MD_ACCESS_REMOTE_ATOMIC UCT_MD_ACCESS_ALL
    UCT_ADVICE_NORMAL UCT_ADVICE_WILLNEED UCT_MEMORY_HOST UCT_ORIGIN_MODEL UCT_ORIGIN_DEVICE
    UCT_ORIGIN_MEASURED UCT_ORIGIN_CONFIG UCT_ORIGIN_DEFAULT UCT_CONFIG_BOOL UCT_CONFIG_TERNARY
    UCT_CONFIG_INT UCT_CONFIG_UINT UCT_CONFIG_COUNT UCT_CONFIG_MEMSIZE UCT_CONFIG_TIME
    UCT_CONFIG_BANDWIDTH UCT_CONFIG_REAL UCT_CONFIG_TEXT UCT_CONFIG_PATH UCT_CONFIG_LIST
    UCT_CONFIG_NAMES UCT_CONFIG_RANGE UCT_CONFIG_ENUM UCT_CONFIG_SECURITY UCT_CONFIG_INF UCT_CONFIG_AUTO UCT_MD_REG
    UCT_MD_ALLOC UCT_MD_NEED_MEMH UCT_MD_NEED_RKEY UCT_MD_ADVISE UCT_MD_RKEY_PTR UCT_AM_IDS
    UCT_LOG_ERROR UCT_LOG_WARN UCT_LOG_INFO UCT_LOG_DEBUG UCT_LOG_TRACE UCT_FD_READ UCT_FD_WRITE
    UCT_FD_ERROR UCT_PENDING_PRIVATE UCT_IFACE_ATTR_ANY_THREAD UCT_IFACE_ATTR_ADOPTS UCT_IFACE_ATTR_PACK_NONE UCT_IFACE_ATTR_AM_GATHERS UCT_IFACE_ATTR_AM_PLACES UCT_PACK_NONE UCT_SIDE_CALLED UCT_SIDE_ACCEPTED UCT_FAMILY_NONE UCT_FAMILY_IPV4 UCT_FAMILY_IPV6
    UCT_CM_REQUEST UCT_CM_RESOLVED UCT_CM_CONNECTED UCT_CM_NOTIFIED UCT_CM_DISCONNECTED UCT_CM_FAILED
}

#[test]
fn the_layout_is_the_committed_one() {
    let path = root().join("layout.txt");
    let now = layout();
    if std::env::var_os("UPDATE_LAYOUT").is_some() {
        fs::write(&path, &now).expect("layout.txt can be written");
    }
    let committed = fs::read_to_string(&path).expect("layout.txt is there");
    assert_same(&committed, &now, "layout.txt", "the crate (UPDATE_LAYOUT=1 writes layout.txt anew)");
}

#[test]
fn a_c_compiler_reads_the_same_from_the_header() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join("layout.c"), directory.join("layout"));
    fs::write(&source, c_program()).expect("the program can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .args(["-o".as_ref(), program.as_os_str(), source.as_os_str()])
        .output()
        .unwrap_or_else(|error| panic!("a C compiler is needed ({compiler:?}, or set CC): {error}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program).output().expect("the program runs");
    assert!(ran.status.success(), "the program ended with {}", ran.status);
    let in_c = String::from_utf8(ran.stdout).expect("it prints text");
    assert_same(&in_c, &layout(), "the header", "the crate (`cargo xtask header` writes the header anew)");
}

#[test]
fn the_layout_has_every_structure_and_every_constant() {
    let sources: String =
        ["plugin", "status", "flags", "config", "md", "iface", "ep", "host", "primitive", "cm"]
            .iter()
            .map(|module| {
                fs::read_to_string(root().join(format!("src/{module}.rs"))).expect("a source of the crate")
            })
            .collect();
    let mut items = 0;
    for (at, _) in sources.match_indices("\npub ") {
        let item = &sources[at + 5..];
        let name = |keyword| {
            let rest = item.strip_prefix(keyword)?;
            rest.split(|end: char| !end.is_alphanumeric() && end != '_').next()
        };
        if let Some(structure) = name("struct ") {
            let opaque = item.split('}').next().is_some_and(|body| body.contains("_opaque"));
            assert!(opaque || structures().contains(&structure), "LAYOUT lacks {structure}");
            items += 1;
        } else if let Some(constant) = name("const ") {
            let text = item.split('=').next().is_some_and(|head| head.contains("&str"));
            assert!(
                text || constants().iter().any(|(name, ..)| *name == constant),
                "this test lacks {constant}"
            );
            items += 1;
        }
    }
    assert!(items > 100, "only {items} items were found in the sources");
}

fn structures() -> Vec<&'static str> {
    uct_abi::LAYOUT.iter().map(|(name, ..)| *name).collect()
}

/// One line for each structure, field and constant.
fn layout() -> String {
    let mut text = String::new();
    for (name, size, alignment, fields) in uct_abi::LAYOUT {
        writeln!(text, "{name} size {size} alignment {alignment}").expect("a String takes all");
        for (field, offset) in *fields {
            writeln!(text, "{name}.{field} {offset}").expect("a String takes all");
        }
    }
    for (name, kind, value) in constants() {
        writeln!(text, "{name} {kind} {value}").expect("a String takes all");
    }
    text
}

/// Prints the same lines.
fn c_program() -> String {
    let mut body = String::new();
    for (name, _, _, fields) in uct_abi::LAYOUT {
        let line = format!("printf(\"{name} size %zu alignment %zu\\n\", sizeof({name}), _Alignof({name}));");
        writeln!(body, "    {line}").expect("a String takes all");
        for (field, _) in *fields {
            let line = format!("printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));");
            writeln!(body, "    {line}").expect("a String takes all");
        }
    }
    for (name, kind, _) in constants() {
        let (format, cast) = match kind {
            "i32" => ("PRId32", "int32_t"),
            "u16" => ("PRIu16", "uint16_t"),
            "u32" => ("PRIu32", "uint32_t"),
            "u64" | "usize" => ("PRIu64", "uint64_t"),
            other => panic!("{name} has the type {other}, for which this test knows no format"),
        };
        let line = format!("printf(\"{name} {kind} %\" {format} \"\\n\", ({cast})({name}));");
        writeln!(body, "    {line}").expect("a String takes all");
    }
    format!(
        "#include <inttypes.h>\n#include <stdio.h>\n#include \"uct_abi.h\"\n\nint main(void)\n{{\n{body}    return 0;\n}}\n"
    )
}

#[track_caller]
fn assert_same(left: &str, right: &str, left_is: &str, right_is: &str) {
    for (number, (left, right)) in left.lines().zip(right.lines()).enumerate() {
        assert_eq!(left, right, "line {}: left is {left_is}, right is {right_is}", number + 1);
    }
    let (left, right) = (left.lines().count(), right.lines().count());
    assert_eq!(left, right, "number of lines: left is {left_is}, right is {right_is}");
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
