//! Compares the declarations of `abi` with the installed headers of libfabric: sizes, offsets, numbers and types of functions.
//!
//! Needs `rdma/fabric.h` (package libfabric-dev) and a C compiler; without them it says what it skipped.
//! `UCT_TEST_REQUIRE=libfabric-header` turns the skip into a failure.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use uct_fi::abi::*;

use crate::skip::skip;

/// The C spelling of a Rust type of a slot. Enumerations, which are open integers in Rust, have GCC's type.
fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(target));
    }
    match rust {
        "c_int" => "int".into(),
        "c_uint" => "unsigned int".into(),
        "c_char" => "char".into(),
        "c_void" => "void".into(),
        "u32" => "uint32_t".into(),
        "u64" => "uint64_t".into(),
        "usize" => "size_t".into(),
        "isize" => "ssize_t".into(),
        "fi_addr_t" => rust.into(),
        _ => format!("struct {rust}"),
    }
}

/// Checks of sizes and offsets. `longer` marks a structure whose declaration ends before the C one does.
macro_rules! layout {
    ($text:ident, $($name:ident { $($field:ident $(= $theirs:literal)?),* $(,)? } $($longer:ident)?;)*) => {
        $(
            let sizes = if stringify!($($longer)?).is_empty() { "==" } else { ">=" };
            let c = concat!("struct ", stringify!($name));
            writeln!($text, "_Static_assert(sizeof({c}) {sizes} {}, \"{c}\");", size_of::<$name>()).unwrap();
            $(
                let field = [$($theirs,)? stringify!($field)][0];
                let offset = offset_of!($name, $field);
                writeln!($text, "_Static_assert(offsetof({c}, {field}) == {offset}, \"{c}.{field}\");").unwrap();
            )*
        )*
    };
}

macro_rules! numbers {
    ($text:ident, $($name:ident $(= $theirs:literal)?)*) => {
        $(
            let c = [$($theirs,)? stringify!($name)][0];
            // Some are enumerations, which are signed.
            writeln!($text, "_Static_assert((uint64_t)({c}) == (uint64_t){}ULL, \"{c}\");", $name as u64).unwrap();
        )*
    };
}

/// Assigns each slot to a pointer of the type written in Rust: another type in the header is an error of the compiler.
macro_rules! tables {
    ($text:ident, $($name:ident)*) => {
        $(
            let c = concat!("struct ", stringify!($name));
            for (slot, arguments, result) in $name::SLOTS {
                let arguments: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
                let (result, arguments) = (c_type(result), arguments.join(", "));
                writeln!(
                    $text,
                    "void check_{}_{slot}({c} *table) {{ {result} (*slot)({arguments}) = table->{slot}; (void)slot; }}",
                    stringify!($name)
                )
                .unwrap();
            }
            // The slots are one behind the other, from the first word on.
            let (last, ..) = $name::SLOTS.last().unwrap();
            let offset = size_of::<$name>() - size_of::<usize>();
            writeln!($text, "_Static_assert(offsetof({c}, {last}) == {offset}, \"{c}.{last}\");").unwrap();
        )*
    };
}

fn program() -> String {
    let mut text = String::new();
    for header in
        ["fabric", "fi_atomic", "fi_cm", "fi_collective", "fi_domain", "fi_endpoint", "fi_eq", "fi_errno"]
    {
        writeln!(text, "#include <rdma/{header}.h>").unwrap();
    }
    for header in ["rdma/fi_rma.h", "rdma/fi_tagged.h", "rdma/providers/fi_prov.h", "stddef.h", "stdint.h"] {
        writeln!(text, "#include <{header}>").unwrap();
    }
    layouts(&mut text);
    constants(&mut text);
    tables!(text, fi_ops fi_ops_fabric fi_ops_domain fi_ops_mr fi_ops_av fi_ops_ep fi_ops_cm fi_ops_msg fi_ops_tagged
        fi_ops_rma fi_ops_atomic fi_ops_collective fi_ops_cq fi_ops_cntr fi_ops_eq);
    text.push_str("int main(void) { return 0; }\n");
    text
}

fn layouts(text: &mut String) {
    layout! { text,
        fi_tx_attr {
            caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit, tclass
        };
        fi_rx_attr { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit };
        fi_ep_attr {
            r#type = "type", protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
            max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt, auth_key_size, auth_key
        } longer;
        fi_domain_attr {
            domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode, mr_key_size,
            cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx,
            max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode, auth_key, auth_key_size, max_err_data, mr_cnt, tclass
        } longer;
        fi_fabric_attr { fabric, name, prov_name, prov_version, api_version };
        fi_info {
            next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr,
            ep_attr, domain_attr, fabric_attr, nic
        };
        fi_provider { version, fi_version, context, name, getinfo, fabric, cleanup };
        fid { fclass, context, ops };
        fid_fabric { fid, ops, api_version };
        fid_domain { fid, ops, mr };
        fid_mr { fid, mem_desc, key };
        fi_mr_attr {
            mr_iov, iov_count, access, offset, requested_key, context, auth_key_size, auth_key, iface
        } longer;
        fid_av { fid, ops };
        fi_av_attr { r#type = "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags };
        fid_ep { fid, ops, cm, msg, rma, tagged, atomic, collective };
        fid_cq { fid, ops };
        fi_cq_attr { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set } longer;
        fi_cq_tagged_entry { op_context, flags, len, buf, data, tag };
        fi_cq_err_entry {
            op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size
        } longer;
        fid_cntr { fid, ops };
        fi_cntr_attr { events, wait_obj, wait_set, flags } longer;
        fid_eq { fid, ops };
        fi_eq_attr { size, flags, wait_obj, signaling_vector, wait_set };
        fi_eq_err_entry { fid, context, data, err, prov_errno, err_data, err_data_size };
        fi_msg { msg_iov, desc, iov_count, addr, context, data };
        fi_msg_tagged { msg_iov, desc, iov_count, addr, tag, ignore, context, data };
        fi_rma_iov { addr, len, key };
        fi_msg_rma { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data };
        fi_ioc { addr, count };
        fi_rma_ioc { addr, count, key };
        fi_atomic_attr { count, size };
        fi_msg_atomic {
            msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, datatype, op, context, data
        };
    }
    // The shorter formats of an entry are the beginnings of the longest.
    let formats = [
        ("fi_cq_entry", offset_of!(fi_cq_tagged_entry, flags)),
        ("fi_cq_msg_entry", offset_of!(fi_cq_tagged_entry, buf)),
        ("fi_cq_data_entry", offset_of!(fi_cq_tagged_entry, tag)),
    ];
    for (name, size) in formats {
        writeln!(text, "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");").unwrap();
    }
}

fn constants(text: &mut String) {
    numbers! { text,
        FI_MSG FI_RMA FI_TAGGED FI_ATOMIC FI_READ FI_WRITE FI_RECV FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_MULTI_RECV
        FI_REMOTE_CQ_DATA FI_MORE FI_PEEK FI_FENCE FI_EVENT FI_COMPLETION FI_INJECT FI_INJECT_COMPLETE FI_TRANSMIT_COMPLETE
        FI_DELIVERY_COMPLETE FI_MATCH_COMPLETE FI_LOCAL_COMM FI_REMOTE_COMM FI_PROV_ATTR_ONLY FI_NUMERICHOST FI_SOURCE
        FI_DISCARD FI_DIRECTED_RECV FI_CLAIM FI_SELECTIVE_COMPLETION FI_FETCH_ATOMIC FI_COMPARE_ATOMIC FI_SYNC_ERR
        FI_ADDR_UNSPEC FI_ADDR_NOTAVAIL FI_ORDER_SAS FI_ORDER_ATOMIC_RAR FI_ORDER_ATOMIC_RAW FI_ORDER_ATOMIC_WAR FI_ORDER_ATOMIC_WAW FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IN FI_SOCKADDR_IN6
        FI_PROTO_UNSPEC FI_PROTO_SOCK_TCP FI_PROTO_XNET FI_MR_BASIC FI_MR_SCALABLE FI_AV_UNSPEC
        FI_AV_MAP FI_AV_TABLE FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO FI_PROGRESS_MANUAL FI_THREAD_UNSPEC FI_THREAD_SAFE
        FI_RM_UNSPEC FI_RM_ENABLED FI_EP_UNSPEC FI_EP_MSG FI_EP_RDM FI_WAIT_NONE FI_WAIT_UNSPEC FI_WAIT_FD
        FI_WAIT_YIELD FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT FI_CQ_FORMAT_MSG FI_CQ_FORMAT_DATA
        FI_CQ_FORMAT_TAGGED FI_CQ_COND_NONE FI_CNTR_EVENTS_COMP FI_HMEM_SYSTEM FI_CLASS_FABRIC FI_CLASS_DOMAIN
        FI_CLASS_EP FI_CLASS_AV FI_CLASS_MR FI_CLASS_EQ FI_CLASS_CQ FI_CLASS_CNTR FI_GETOPSFLAG FI_SETOPSFLAG
        FI_GETWAIT FI_ENABLE FI_GETWAITOBJ FI_OPT_ENDPOINT FI_OPT_MIN_MULTI_RECV FI_OPT_CM_DATA_SIZE
        FI_INT8 FI_UINT8 FI_INT16 FI_UINT16 FI_INT32 FI_UINT32 FI_INT64 FI_UINT64 FI_FLOAT FI_DOUBLE FI_MIN FI_MAX
        FI_SUM FI_PROD FI_LOR FI_LAND FI_BOR FI_BAND FI_LXOR FI_BXOR FI_ATOMIC_READ FI_ATOMIC_WRITE FI_CSWAP
        FI_CSWAP_NE FI_CSWAP_LE FI_CSWAP_LT FI_CSWAP_GE FI_CSWAP_GT FI_MSWAP
        EOTHER = "FI_EOTHER" ETOOSMALL = "FI_ETOOSMALL" EOPBADSTATE = "FI_EOPBADSTATE" EAVAIL = "FI_EAVAIL"
        EBADFLAGS = "FI_EBADFLAGS" EDOMAIN = "FI_EDOMAIN" ENOCQ = "FI_ENOCQ" ETRUNC = "FI_ETRUNC"
        ENOKEY = "FI_ENOKEY" ENOAV = "FI_ENOAV"
    }
}

fn compile(directory: &Path, source: &str) -> Result<(), String> {
    let (file, object) = (directory.join("layout.c"), directory.join("layout.o"));
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .args(["-c", "-Werror=incompatible-pointer-types", "-I", &headers(), "-o"])
        .args([&object, &file])
        .output()
        .map_err(|error| format!("{compiler} does not run: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// The folder that has `rdma/fabric.h`.
fn headers() -> String {
    std::env::var("UCT_TEST_LIBFABRIC_HEADERS").unwrap_or_else(|_| "/usr/include".to_owned())
}

#[test]
fn the_declarations_are_those_of_the_c_headers() {
    let header = Path::new(&headers()).join("rdma/fabric.h");
    if !header.exists() {
        let reason =
            format!("{} is not there: install libfabric-dev to compare the declarations", header.display());
        skip("libfabric-header", reason);
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    compile(directory.path(), &program()).unwrap_or_else(|error| panic!("{error}"));
}
