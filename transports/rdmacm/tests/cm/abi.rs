//! Compares structures, constants and function types of `io::abi` and `CmTable` with the installed C header.
//!
//! Needs `rdma/rdma_cma.h` (package librdmacm-dev) and a C compiler; without them it says what it skipped.
//! `UCT_TEST_REQUIRE=verbs-header` turns the skip into a failure.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use crate::skip;
use uct_rdmacm::testing::CmTable;
use uct_rdmacm::testing::abi::*;

/// `_Static_assert` of each offset, and of the size where this crate or the library makes the whole structure.
macro_rules! layout {
    ($text:ident, $($name:ident { $($field:ident $(= $theirs:literal)?),* } $($size_of:ident)?;)*) => {
        $(
            $( assert_equal(&mut $text, concat!("sizeof(struct ", stringify!($name), ")"), $size_of::<$name>()); )?
            $( assert_equal(
                &mut $text,
                concat!("offsetof(struct ", stringify!($name), ", ", theirs!($field $($theirs)?), ")"),
                offset_of!($name, $field),
            ); )*
        )*
    };
}

macro_rules! theirs {
    ($field:ident $theirs:literal) => {
        $theirs
    };
    ($field:ident) => {
        stringify!($field)
    };
}

macro_rules! numbers {
    ($text:ident, $($name:ident)*) => { $( assert_equal(&mut $text, stringify!($name), $name as usize); )* };
}

fn assert_equal(text: &mut String, theirs: &str, ours: usize) {
    writeln!(text, "_Static_assert({theirs} == {ours}, \"{theirs} is not {ours}\");")
        .expect("a string grows");
}

/// The C spelling of a Rust type of the table.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    match rust {
        "" => "void".into(),
        "c_int" => "int".into(),
        // The one use is the port space.
        "c_uint" => "enum rdma_port_space".into(),
        "c_void" => "void".into(),
        "u8" => "uint8_t".into(),
        "usize" => "size_t".into(),
        other => format!("struct {other}"),
    }
}

fn program() -> String {
    let mut text = String::from("#include <rdma/rdma_cma.h>\n#include <stddef.h>\n#include <stdint.h>\n");
    layout! { text,
        rdma_ib_addr { sgid, dgid, pkey } size_of;
        rdma_addr { src_addr, dst_addr, ibaddr = "addr.ibaddr" } size_of;
        rdma_route { addr, path_rec, num_paths } size_of;
        rdma_event_channel { fd } size_of;
        rdma_cm_id { verbs, channel, context, qp, route, ps, port_num };
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
            srq, qp_num
        } size_of;
        rdma_cm_event { id, listen_id, event, status, conn = "param.conn" };
        ibv_qp_attr { qp_state, ah_attr, min_rnr_timer, timeout } size_of;
    }
    numbers! { text,
        RDMA_CM_EVENT_ADDR_RESOLVED RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_RESOLVED RDMA_CM_EVENT_ROUTE_ERROR
        RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE RDMA_CM_EVENT_CONNECT_ERROR RDMA_CM_EVENT_UNREACHABLE
        RDMA_CM_EVENT_REJECTED RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DISCONNECTED RDMA_CM_EVENT_DEVICE_REMOVAL
        RDMA_CM_EVENT_ADDR_CHANGE RDMA_CM_EVENT_TIMEWAIT_EXIT RDMA_PS_TCP RDMA_OPTION_ID RDMA_OPTION_ID_REUSEADDR
        RDMA_OPTION_ID_AFONLY
    }
    // Assigned to a pointer of the type written in Rust: another type in the header is an error of the compiler.
    for (symbol, arguments, result) in CmTable::SIGNATURES {
        let list: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        writeln!(text, "{} (*check_{symbol})({list}) = ({symbol});", c_type(result)).expect("a string grows");
    }
    text
}

fn compile(source: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = directory.path().join("abi.c");
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .args(["-std=c11", "-Werror", "-fsyntax-only"])
        .arg(&file)
        .output()
        .map_err(|error| format!("{compiler}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn structures_constants_and_functions_are_those_of_the_header() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return skip::skip("verbs-header", "rdma/rdma_cma.h is not installed (package librdmacm-dev)");
    }
    if let Err(error) = compile("int main(void) { return 0; }") {
        return skip::skip("verbs-header", format!("no C compiler: {error}"));
    }
    compile(&program()).unwrap_or_else(|error| panic!("{error}"));
    // A check that fails is seen.
    let mut wrong = program();
    assert_equal(&mut wrong, "sizeof(struct rdma_conn_param)", 25);
    assert!(compile(&wrong).is_err(), "a wrong size went unnoticed");
}
