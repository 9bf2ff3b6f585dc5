//! Compares the structures and constants of this crate with those of rdma-sys, which has bindgen make them of the installed
//! C headers.
//!
//! Needs the feature `rdma-sys`, and for that the packages libibverbs-dev, librdmacm-dev and libclang of version 14.
//! `cargo xtask test` installs them and runs this. The types of the functions are compared in `functions`.

use std::mem::offset_of;

use uct_ib_abi::*;

/// What is compared, the number here, and that of rdma-sys.
type Check = (String, u64, u64);

/// Offsets of fields, under the name that rdma-sys has for them where that is another. `size_of` where the size matters too:
/// the others are heads of longer structures that the library allocates.
macro_rules! layout {
    ($checks:ident, $($name:ident { $($field:ident $(= $theirs:ident)?),* $(,)? } $($size_of:ident)?;)*) => {
        $(
            $( $checks.push((
                concat!("size of ", stringify!($name)).to_owned(),
                $size_of::<$name>() as u64,
                $size_of::<rdma_sys::$name>() as u64,
            )); )?
            $( $checks.push((
                concat!(stringify!($name), ".", stringify!($field)).to_owned(),
                offset_of!($name, $field) as u64,
                theirs!($name $field $($theirs)?) as u64,
            )); )*
        )*
    };
}

macro_rules! theirs {
    ($name:ident $field:ident $theirs:ident) => {
        offset_of!(rdma_sys::$name, $theirs)
    };
    ($name:ident $field:ident) => {
        offset_of!(rdma_sys::$name, $field)
    };
}

/// Constants of enumerations, which rdma-sys has as modules of numbers, as plain constants, as sets of bits, or as an enumeration.
macro_rules! constants {
    ($checks:ident, $(numbers $module:ident { $($number:ident)* })* $(plain $type:ident { $($constant:ident)* })*
     $(bits $set:ident { $($bit:ident)* })* $(enumeration $enumeration:ident { $($value:ident)* })*) => {
        $($( $checks.push((stringify!($number).to_owned(), $number as u64, rdma_sys::$module::$number as u64)); )*)*
        $($( $checks.push((
            stringify!($constant).to_owned(),
            $constant as u64,
            rdma_sys::$constant as rdma_sys::$type as u64,
        )); )*)*
        $($( $checks.push((stringify!($bit).to_owned(), $bit as u64, rdma_sys::$set::$bit.0 as u64)); )*)*
        $($( $checks.push((
            stringify!($value).to_owned(),
            $value as u64,
            rdma_sys::$enumeration::$value as u64,
        )); )*)*
    };
}

fn layouts() -> Vec<Check> {
    let mut checks = Vec::new();
    layout! { checks,
        ibv_gid { raw } size_of;
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex } size_of;
        ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path } size_of;
        ibv_context_ops { poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv } size_of;
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat } size_of;
        verbs_context {
            query_port, create_cq_ex, private = priv_, query_device_ex, create_qp_ex, create_srq_ex, sz, context
        } size_of;
        ibv_query_device_ex_input { comp_mask } size_of;
        ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps,
            rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size,
            pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex
        } size_of;
        ibv_odp_caps { general_caps, per_transport_caps } size_of;
        ibv_tso_caps { max_tso, supported_qpts } size_of;
        ibv_rss_caps {
            supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size, rx_hash_fields_mask,
            rx_hash_function
        } size_of;
        ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts } size_of;
        ibv_tm_caps { max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge } size_of;
        ibv_cq_moderation_caps { max_cq_count, max_cq_period } size_of;
        ibv_pci_atomic_caps { fetch_add, swap, compare_swap } size_of;
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
            max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
            phys_port_cnt
        } size_of;
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2
        };
        ibv_pd { context, handle } size_of;
        ibv_mr { context, pd, addr, length, handle, lkey, rkey } size_of;
        ibv_comp_channel { context, fd, refcnt } size_of;
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed
        } size_of;
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed } size_of;
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed
        } size_of;
        ibv_ah { context, pd, handle } size_of;
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } size_of;
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num } size_of;
        ibv_srq_attr { max_wr, max_sge, srq_limit } size_of;
        ibv_srq_init_attr { srq_context, attr } size_of;
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } size_of;
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } size_of;
        ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags,
            max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags
        } size_of;
        ibv_rx_hash_conf { rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask } size_of;
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit
        } size_of;
        ibv_sge { addr, length, lkey } size_of;
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data = imm_data_invalidated_rkey_union, wr,
            _rest = qp_type
        } size_of;
        ibv_recv_wr { wr_id, next, sg_list, num_sge } size_of;
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data = imm_data_invalidated_rkey_union, qp_num, src_qp,
            wc_flags, pkey_index, slid, sl, dlid_path_bits
        } size_of;
        ibv_async_event { element, event_type } size_of;
    }
    // The unnamed structures inside the send request.
    for (name, ours, theirs) in [
        ("rdma.remote_addr", offset_of!(ibv_wr_rdma, remote_addr), offset_of!(rdma_sys::rdma_t, remote_addr)),
        ("rdma.rkey", offset_of!(ibv_wr_rdma, rkey), offset_of!(rdma_sys::rdma_t, rkey)),
        (
            "atomic.remote_addr",
            offset_of!(ibv_wr_atomic, remote_addr),
            offset_of!(rdma_sys::atomic_t, remote_addr),
        ),
        (
            "atomic.compare_add",
            offset_of!(ibv_wr_atomic, compare_add),
            offset_of!(rdma_sys::atomic_t, compare_add),
        ),
        ("atomic.swap", offset_of!(ibv_wr_atomic, swap), offset_of!(rdma_sys::atomic_t, swap)),
        ("atomic.rkey", offset_of!(ibv_wr_atomic, rkey), offset_of!(rdma_sys::atomic_t, rkey)),
        ("ud.ah", offset_of!(ibv_wr_ud, ah), offset_of!(rdma_sys::ud_t, ah)),
        ("ud.remote_qpn", offset_of!(ibv_wr_ud, remote_qpn), offset_of!(rdma_sys::ud_t, remote_qpn)),
        ("ud.remote_qkey", offset_of!(ibv_wr_ud, remote_qkey), offset_of!(rdma_sys::ud_t, remote_qkey)),
    ] {
        checks.push((format!("ibv_send_wr.wr.{name}"), ours as u64, theirs as u64));
    }
    checks
}

fn numbers() -> Vec<Check> {
    let mut checks = Vec::new();
    constants! { checks,
        numbers ibv_node_type {
            IBV_NODE_UNKNOWN IBV_NODE_CA IBV_NODE_SWITCH IBV_NODE_ROUTER IBV_NODE_RNIC IBV_NODE_USNIC
            IBV_NODE_USNIC_UDP IBV_NODE_UNSPECIFIED
        }
        numbers ibv_transport_type {
            IBV_TRANSPORT_UNKNOWN IBV_TRANSPORT_IB IBV_TRANSPORT_IWARP IBV_TRANSPORT_USNIC IBV_TRANSPORT_USNIC_UDP
            IBV_TRANSPORT_UNSPECIFIED
        }
        numbers ibv_atomic_cap { IBV_ATOMIC_NONE IBV_ATOMIC_HCA IBV_ATOMIC_GLOB }
        numbers ibv_mtu { IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048 IBV_MTU_4096 }
        numbers ibv_port_state {
            IBV_PORT_NOP IBV_PORT_DOWN IBV_PORT_INIT IBV_PORT_ARMED IBV_PORT_ACTIVE IBV_PORT_ACTIVE_DEFER
        }
        numbers ibv_qp_type {
            IBV_QPT_RC IBV_QPT_UC IBV_QPT_UD IBV_QPT_RAW_PACKET IBV_QPT_XRC_SEND IBV_QPT_XRC_RECV IBV_QPT_DRIVER
        }
        numbers ibv_qp_state {
            IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_SQD IBV_QPS_SQE IBV_QPS_ERR IBV_QPS_UNKNOWN
        }
        numbers ibv_mig_state { IBV_MIG_MIGRATED IBV_MIG_REARM IBV_MIG_ARMED }
        numbers ibv_wr_opcode {
            IBV_WR_RDMA_WRITE IBV_WR_RDMA_WRITE_WITH_IMM IBV_WR_SEND IBV_WR_SEND_WITH_IMM IBV_WR_RDMA_READ
            IBV_WR_ATOMIC_CMP_AND_SWP IBV_WR_ATOMIC_FETCH_AND_ADD IBV_WR_LOCAL_INV IBV_WR_BIND_MW
            IBV_WR_SEND_WITH_INV IBV_WR_TSO IBV_WR_DRIVER1 IBV_WR_ATOMIC_WRITE
        }
        numbers ibv_wc_status {
            IBV_WC_SUCCESS IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_EEC_OP_ERR IBV_WC_LOC_PROT_ERR
            IBV_WC_WR_FLUSH_ERR IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_LOC_ACCESS_ERR IBV_WC_REM_INV_REQ_ERR
            IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR IBV_WC_RNR_RETRY_EXC_ERR
            IBV_WC_LOC_RDD_VIOL_ERR IBV_WC_REM_INV_RD_REQ_ERR IBV_WC_REM_ABORT_ERR IBV_WC_INV_EECN_ERR
            IBV_WC_INV_EEC_STATE_ERR IBV_WC_FATAL_ERR IBV_WC_RESP_TIMEOUT_ERR IBV_WC_GENERAL_ERR IBV_WC_TM_ERR
            IBV_WC_TM_RNDV_INCOMPLETE
        }
        numbers ibv_wc_opcode {
            IBV_WC_SEND IBV_WC_RDMA_WRITE IBV_WC_RDMA_READ IBV_WC_COMP_SWAP IBV_WC_FETCH_ADD IBV_WC_BIND_MW
            IBV_WC_LOCAL_INV IBV_WC_TSO IBV_WC_ATOMIC_WRITE IBV_WC_RECV IBV_WC_RECV_RDMA_WITH_IMM IBV_WC_TM_ADD
            IBV_WC_TM_DEL IBV_WC_TM_SYNC IBV_WC_TM_RECV IBV_WC_TM_NO_TAG IBV_WC_DRIVER1 IBV_WC_DRIVER2
            IBV_WC_DRIVER3
        }
        plain ibv_gid_type { IBV_GID_TYPE_IB IBV_GID_TYPE_ROCE_V1 IBV_GID_TYPE_ROCE_V2 }
        plain ibv_fork_status { IBV_FORK_DISABLED IBV_FORK_ENABLED IBV_FORK_UNNEEDED }
        bits ibv_device_cap_flags {
            IBV_DEVICE_RESIZE_MAX_WR IBV_DEVICE_BAD_PKEY_CNTR IBV_DEVICE_BAD_QKEY_CNTR IBV_DEVICE_RAW_MULTI
            IBV_DEVICE_AUTO_PATH_MIG IBV_DEVICE_CHANGE_PHY_PORT IBV_DEVICE_UD_AV_PORT_ENFORCE
            IBV_DEVICE_CURR_QP_STATE_MOD IBV_DEVICE_SHUTDOWN_PORT IBV_DEVICE_INIT_TYPE IBV_DEVICE_PORT_ACTIVE_EVENT
            IBV_DEVICE_SYS_IMAGE_GUID IBV_DEVICE_RC_RNR_NAK_GEN IBV_DEVICE_SRQ_RESIZE IBV_DEVICE_N_NOTIFY_CQ
            IBV_DEVICE_MEM_WINDOW IBV_DEVICE_UD_IP_CSUM IBV_DEVICE_XRC IBV_DEVICE_MEM_MGT_EXTENSIONS
            IBV_DEVICE_MEM_WINDOW_TYPE_2A IBV_DEVICE_MEM_WINDOW_TYPE_2B IBV_DEVICE_RC_IP_CSUM IBV_DEVICE_RAW_IP_CSUM
            IBV_DEVICE_MANAGED_FLOW_STEERING
        }
        bits ibv_port_cap_flags {
            IBV_PORT_SM IBV_PORT_NOTICE_SUP IBV_PORT_TRAP_SUP IBV_PORT_OPT_IPD_SUP IBV_PORT_AUTO_MIGR_SUP
            IBV_PORT_SL_MAP_SUP IBV_PORT_MKEY_NVRAM IBV_PORT_PKEY_NVRAM IBV_PORT_LED_INFO_SUP
            IBV_PORT_SYS_IMAGE_GUID_SUP IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP IBV_PORT_EXTENDED_SPEEDS_SUP
            IBV_PORT_CAP_MASK2_SUP IBV_PORT_CM_SUP IBV_PORT_SNMP_TUNNEL_SUP IBV_PORT_REINIT_SUP
            IBV_PORT_DEVICE_MGMT_SUP IBV_PORT_VENDOR_CLASS_SUP IBV_PORT_DR_NOTICE_SUP IBV_PORT_CAP_MASK_NOTICE_SUP
            IBV_PORT_BOOT_MGMT_SUP IBV_PORT_LINK_LATENCY_SUP IBV_PORT_CLIENT_REG_SUP IBV_PORT_IP_BASED_GIDS
        }
        bits ibv_access_flags {
            IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
            IBV_ACCESS_MW_BIND IBV_ACCESS_ZERO_BASED IBV_ACCESS_ON_DEMAND IBV_ACCESS_HUGETLB
            IBV_ACCESS_RELAXED_ORDERING
        }
        bits ibv_qp_attr_mask {
            IBV_QP_STATE IBV_QP_CUR_STATE IBV_QP_EN_SQD_ASYNC_NOTIFY IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX
            IBV_QP_PORT IBV_QP_QKEY IBV_QP_AV IBV_QP_PATH_MTU IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY
            IBV_QP_RQ_PSN IBV_QP_MAX_QP_RD_ATOMIC IBV_QP_ALT_PATH IBV_QP_MIN_RNR_TIMER IBV_QP_SQ_PSN
            IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_PATH_MIG_STATE IBV_QP_CAP IBV_QP_DEST_QPN IBV_QP_RATE_LIMIT
        }
        bits ibv_srq_attr_mask { IBV_SRQ_MAX_WR IBV_SRQ_LIMIT }
        bits ibv_send_flags {
            IBV_SEND_FENCE IBV_SEND_SIGNALED IBV_SEND_SOLICITED IBV_SEND_INLINE IBV_SEND_IP_CSUM
        }
        bits ibv_wc_flags {
            IBV_WC_GRH IBV_WC_WITH_IMM IBV_WC_IP_CSUM_OK IBV_WC_WITH_INV IBV_WC_TM_SYNC_REQ IBV_WC_TM_MATCH
            IBV_WC_TM_DATA_VALID
        }
        enumeration ibv_event_type {
            IBV_EVENT_CQ_ERR IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST
            IBV_EVENT_SQ_DRAINED IBV_EVENT_PATH_MIG IBV_EVENT_PATH_MIG_ERR IBV_EVENT_DEVICE_FATAL
            IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE IBV_EVENT_SM_CHANGE
            IBV_EVENT_SRQ_ERR IBV_EVENT_SRQ_LIMIT_REACHED IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_CLIENT_REREGISTER
            IBV_EVENT_GID_CHANGE IBV_EVENT_WQ_FATAL
        }
    }
    checks
}

#[test]
fn structures_and_constants_are_those_of_rdma_sys() {
    let checks: Vec<Check> = layouts().into_iter().chain(numbers()).collect();
    let wrong: Vec<_> = checks
        .iter()
        .filter(|(_, ours, theirs)| ours != theirs)
        .map(|(what, ours, theirs)| format!("{what}: {ours} here, {theirs} in rdma-sys"))
        .collect();
    assert!(wrong.is_empty(), "of {} checks: {}", checks.len(), wrong.join("\n"));
}
