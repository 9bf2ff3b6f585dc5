//! Compares the structures, constants and function types of `verbs::abi` with the installed C header.
//!
//! Needs `infiniband/verbs.h` (package libibverbs-dev) and a C compiler; without them it says what it skipped.
//! `UCT_TEST_REQUIRE=verbs-header` turns the skip into a failure.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use uct_ib::verbs::VerbsTable;
use uct_ib::verbs::abi::*;

/// A C expression and the number that it must have.
type Check = (String, u64);

macro_rules! layout {
    ($checks:ident, $($c:literal $rust:ident { $($field:ident $(= $c_field:literal)?),* $(,)? } $($size_of:ident)?;)*) => {
        $(
            $( $checks.push((format!("sizeof({})", $c), $size_of::<$rust>() as u64)); )?
            $(
                let c_field = [$($c_field,)? stringify!($field)][0];
                $checks.push((format!("offsetof({}, {c_field})", $c), offset_of!($rust, $field) as u64));
            )*
        )*
    };
}

macro_rules! constants {
    ($checks:ident, $($name:ident)*) => { $($checks.push((stringify!($name).to_owned(), $name as u64));)* };
}

fn layout_checks() -> Vec<Check> {
    let mut checks = Vec::new();
    // `size_of` where the size matters too: the others are heads of longer structures that the library allocates.
    layout! { checks,
        "union ibv_gid" ibv_gid { raw } size_of;
        "struct ibv_gid_entry" ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex } size_of;
        "struct ibv_device" ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path } size_of;
        "struct ibv_context_ops" ibv_context_ops { poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv } size_of;
        "struct ibv_context" ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors };
        "struct ibv_device_attr" ibv_device_attr {
            node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe,
            max_qp_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, atomic_cap, max_ah, max_srq, max_srq_wr, max_srq_sge,
            max_pkeys, local_ca_ack_delay, phys_port_cnt
        } size_of;
        "struct ibv_port_attr" ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, pkey_tbl_len, lid, sm_lid, lmc,
            active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2
        };
        "struct ibv_pd" ibv_pd { context, handle } size_of;
        "struct ibv_mr" ibv_mr { context, pd, addr, length, handle, lkey, rkey } size_of;
        "struct ibv_comp_channel" ibv_comp_channel { context, fd, refcnt } size_of;
        "struct ibv_cq" ibv_cq { context, channel, cq_context, handle, cqe };
        "struct ibv_srq" ibv_srq { context, srq_context, pd, handle };
        "struct ibv_qp" ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type };
        "struct ibv_ah" ibv_ah { context, pd, handle } size_of;
        "struct ibv_global_route" ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } size_of;
        "struct ibv_ah_attr" ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num } size_of;
        "struct ibv_srq_attr" ibv_srq_attr { max_wr, max_sge, srq_limit } size_of;
        "struct ibv_srq_init_attr" ibv_srq_init_attr { srq_context, attr } size_of;
        "struct ibv_qp_cap" ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } size_of;
        "struct ibv_qp_init_attr" ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } size_of;
        "struct ibv_qp_attr" ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit
        } size_of;
        "struct ibv_sge" ibv_sge { addr, length, lkey } size_of;
        "struct ibv_send_wr" ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, _rest = "qp_type"
        } size_of;
        "struct ibv_recv_wr" ibv_recv_wr { wr_id, next, sg_list, num_sge } size_of;
        "struct ibv_wc" ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits
        } size_of;
        "struct ibv_async_event" ibv_async_event { element, event_type } size_of;
    }
    // Members of the unnamed structures inside the send request.
    let wr = offset_of!(ibv_send_wr, wr);
    for (c, offset) in [
        ("wr.rdma.remote_addr", offset_of!(ibv_wr_rdma, remote_addr)),
        ("wr.rdma.rkey", offset_of!(ibv_wr_rdma, rkey)),
        ("wr.atomic.remote_addr", offset_of!(ibv_wr_atomic, remote_addr)),
        ("wr.atomic.compare_add", offset_of!(ibv_wr_atomic, compare_add)),
        ("wr.atomic.swap", offset_of!(ibv_wr_atomic, swap)),
        ("wr.atomic.rkey", offset_of!(ibv_wr_atomic, rkey)),
        ("wr.ud.ah", offset_of!(ibv_wr_ud, ah)),
        ("wr.ud.remote_qpn", offset_of!(ibv_wr_ud, remote_qpn)),
        ("wr.ud.remote_qkey", offset_of!(ibv_wr_ud, remote_qkey)),
    ] {
        checks.push((format!("offsetof(struct ibv_send_wr, {c})"), (wr + offset) as u64));
    }
    constants! { checks,
        IBV_LINK_LAYER_INFINIBAND IBV_LINK_LAYER_ETHERNET IBV_PORT_ACTIVE IBV_PORT_ACTIVE_DEFER IBV_QPT_RC IBV_QPT_UD
        IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_SQE IBV_QPS_ERR
        IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_QKEY IBV_QP_AV IBV_QP_PATH_MTU
        IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN IBV_QP_MAX_QP_RD_ATOMIC IBV_QP_MIN_RNR_TIMER
        IBV_QP_SQ_PSN IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_DEST_QPN IBV_SRQ_LIMIT
        IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
        IBV_WR_RDMA_WRITE IBV_WR_RDMA_WRITE_WITH_IMM IBV_WR_SEND IBV_WR_SEND_WITH_IMM IBV_WR_RDMA_READ
        IBV_WR_ATOMIC_CMP_AND_SWP IBV_WR_ATOMIC_FETCH_AND_ADD
        IBV_SEND_FENCE IBV_SEND_SIGNALED IBV_SEND_SOLICITED IBV_SEND_INLINE
        IBV_WC_RECV IBV_WC_RECV_RDMA_WITH_IMM IBV_WC_GRH IBV_WC_WITH_IMM
        IBV_EVENT_CQ_ERR IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST
        IBV_EVENT_SQ_DRAINED IBV_EVENT_PATH_MIG IBV_EVENT_PATH_MIG_ERR IBV_EVENT_DEVICE_FATAL IBV_EVENT_PORT_ACTIVE
        IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE IBV_EVENT_SM_CHANGE IBV_EVENT_SRQ_ERR
        IBV_EVENT_SRQ_LIMIT_REACHED IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_CLIENT_REREGISTER IBV_EVENT_GID_CHANGE
        IBV_NODE_CA
    }
    // The numbers behind the words of `WcStatus`.
    for (number, name) in (0..24).map(|number| (number, uct_ib::WcStatus::from_raw(number).name())) {
        checks.push((format!("IBV_WC_{name}"), number as u64));
    }
    checks
}

/// The C spelling of a Rust type of the table.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    match rust {
        "" => "void".into(),
        "c_int" => "int".into(),
        "c_void" => "void".into(),
        "u8" => "uint8_t".into(),
        "u16" => "uint16_t".into(),
        "u32" => "uint32_t".into(),
        // The one use is a GUID, which the header marks as big-endian.
        "u64" => "__be64".into(),
        "usize" => "size_t".into(),
        "ibv_gid" => "union ibv_gid".into(),
        // The exported function takes the shorter structure of old; the header's macro hides it.
        "ibv_port_attr" => "struct _compat_ibv_port_attr".into(),
        other => {
            assert!(other.starts_with("ibv_"), "no C spelling known for `{other}`");
            format!("struct {other}")
        }
    }
}

fn program(checks: &[Check]) -> String {
    let mut text = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n",
    );
    // Assigned to a pointer of the type written in Rust: another type in the header is an error of the compiler.
    for (symbol, arguments, result) in VerbsTable::SIGNATURES {
        let list: Vec<_> = arguments.iter().map(|argument| c_type(argument)).collect();
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        writeln!(text, "{} (*check_{symbol})({list}) = ({symbol});", c_type(result)).expect("a string grows");
    }
    text.push_str("int main(void) {\n");
    for (expression, _) in checks {
        writeln!(text, "  printf(\"%llu\\n\", (unsigned long long)({expression}));").expect("a string grows");
    }
    text.push_str("  return 0;\n}\n");
    text
}

fn compile(directory: &Path, source: &str) -> Result<PathBuf, String> {
    let (file, binary) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        // Only the types of the functions are wanted, not their code: what is left undefined is never called.
        .args(["-Wl,--unresolved-symbols=ignore-all", "-Werror=incompatible-pointer-types"])
        .args(["-Werror=implicit-function-declaration", "-o"])
        .args([&binary, &file])
        .output()
        .map_err(|error| format!("{compiler} does not run: {error}"))?;
    if output.status.success() {
        Ok(binary)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn the_layout_is_that_of_the_c_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        let reason =
            "/usr/include/infiniband/verbs.h is not there: install libibverbs-dev to compare the layouts";
        let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "verbs-header"), "{reason}");
        eprintln!("SKIPPED: {reason}");
        return;
    }
    let checks = layout_checks();
    let directory = tempfile::tempdir().expect("a directory");
    let binary = compile(directory.path(), &program(&checks)).unwrap_or_else(|error| panic!("{error}"));
    let output = Command::new(binary).output().expect("the program runs");
    assert!(output.status.success(), "the program failed: {output:?}");
    let answers: Vec<u64> = String::from_utf8(output.stdout)
        .expect("numbers")
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(answers.len(), checks.len());
    let wrong: Vec<_> = checks
        .iter()
        .zip(&answers)
        .filter(|((_, ours), c)| ours != *c)
        .map(|((expression, ours), c)| format!("{expression}: {ours} here, {c} in the header"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
