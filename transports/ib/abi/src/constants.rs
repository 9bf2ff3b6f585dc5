//! The numbers of the classic verbs ABI.
//!
//! Facts of the binary interface of libibverbs.so.1, under their C names.

// They mean what the manual pages of the functions that take and return them say.
#![allow(missing_docs)]

use std::ffi::{c_int, c_uint};

// What an entry of a GID table is.
pub const IBV_GID_TYPE_IB: u32 = 0;
pub const IBV_GID_TYPE_ROCE_V1: u32 = 1;
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;

// Node types.
pub const IBV_NODE_UNKNOWN: c_int = -1;
pub const IBV_NODE_CA: c_int = 1;
pub const IBV_NODE_SWITCH: c_int = 2;
pub const IBV_NODE_ROUTER: c_int = 3;
pub const IBV_NODE_RNIC: c_int = 4;
pub const IBV_NODE_USNIC: c_int = 5;
pub const IBV_NODE_USNIC_UDP: c_int = 6;
pub const IBV_NODE_UNSPECIFIED: c_int = 7;

// Transport types.
pub const IBV_TRANSPORT_UNKNOWN: c_int = -1;
pub const IBV_TRANSPORT_IB: c_int = 0;
pub const IBV_TRANSPORT_IWARP: c_int = 1;
pub const IBV_TRANSPORT_USNIC: c_int = 2;
pub const IBV_TRANSPORT_USNIC_UDP: c_int = 3;
pub const IBV_TRANSPORT_UNSPECIFIED: c_int = 4;

// What a device can do.
pub const IBV_DEVICE_RESIZE_MAX_WR: c_uint = 1 << 0;
pub const IBV_DEVICE_BAD_PKEY_CNTR: c_uint = 1 << 1;
pub const IBV_DEVICE_BAD_QKEY_CNTR: c_uint = 1 << 2;
pub const IBV_DEVICE_RAW_MULTI: c_uint = 1 << 3;
pub const IBV_DEVICE_AUTO_PATH_MIG: c_uint = 1 << 4;
pub const IBV_DEVICE_CHANGE_PHY_PORT: c_uint = 1 << 5;
pub const IBV_DEVICE_UD_AV_PORT_ENFORCE: c_uint = 1 << 6;
pub const IBV_DEVICE_CURR_QP_STATE_MOD: c_uint = 1 << 7;
pub const IBV_DEVICE_SHUTDOWN_PORT: c_uint = 1 << 8;
pub const IBV_DEVICE_INIT_TYPE: c_uint = 1 << 9;
pub const IBV_DEVICE_PORT_ACTIVE_EVENT: c_uint = 1 << 10;
pub const IBV_DEVICE_SYS_IMAGE_GUID: c_uint = 1 << 11;
pub const IBV_DEVICE_RC_RNR_NAK_GEN: c_uint = 1 << 12;
pub const IBV_DEVICE_SRQ_RESIZE: c_uint = 1 << 13;
pub const IBV_DEVICE_N_NOTIFY_CQ: c_uint = 1 << 14;
pub const IBV_DEVICE_MEM_WINDOW: c_uint = 1 << 17;
pub const IBV_DEVICE_UD_IP_CSUM: c_uint = 1 << 18;
pub const IBV_DEVICE_XRC: c_uint = 1 << 20;
pub const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub const IBV_DEVICE_MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
pub const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
pub const IBV_DEVICE_RC_IP_CSUM: c_uint = 1 << 25;
pub const IBV_DEVICE_RAW_IP_CSUM: c_uint = 1 << 26;
pub const IBV_DEVICE_MANAGED_FLOW_STEERING: c_uint = 1 << 29;

// With what atomics are atomic: nothing, the device, all of the memory.
pub const IBV_ATOMIC_NONE: c_int = 0;
pub const IBV_ATOMIC_HCA: c_int = 1;
pub const IBV_ATOMIC_GLOB: c_int = 2;

// How forking is made safe.
pub const IBV_FORK_DISABLED: c_int = 0;
pub const IBV_FORK_ENABLED: c_int = 1;
pub const IBV_FORK_UNNEEDED: c_int = 2;

// Codes of the maximum transfer unit.
pub const IBV_MTU_256: c_int = 1;
pub const IBV_MTU_512: c_int = 2;
pub const IBV_MTU_1024: c_int = 3;
pub const IBV_MTU_2048: c_int = 4;
pub const IBV_MTU_4096: c_int = 5;

// States of a port.
pub const IBV_PORT_NOP: c_int = 0;
pub const IBV_PORT_DOWN: c_int = 1;
pub const IBV_PORT_INIT: c_int = 2;
pub const IBV_PORT_ARMED: c_int = 3;
pub const IBV_PORT_ACTIVE: c_int = 4;
pub const IBV_PORT_ACTIVE_DEFER: c_int = 5;

// Link layers of a port.
pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

// What a port can do.
pub const IBV_PORT_SM: u32 = 1 << 1;
pub const IBV_PORT_NOTICE_SUP: u32 = 1 << 2;
pub const IBV_PORT_TRAP_SUP: u32 = 1 << 3;
pub const IBV_PORT_OPT_IPD_SUP: u32 = 1 << 4;
pub const IBV_PORT_AUTO_MIGR_SUP: u32 = 1 << 5;
pub const IBV_PORT_SL_MAP_SUP: u32 = 1 << 6;
pub const IBV_PORT_MKEY_NVRAM: u32 = 1 << 7;
pub const IBV_PORT_PKEY_NVRAM: u32 = 1 << 8;
pub const IBV_PORT_LED_INFO_SUP: u32 = 1 << 9;
pub const IBV_PORT_SYS_IMAGE_GUID_SUP: u32 = 1 << 11;
pub const IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP: u32 = 1 << 12;
pub const IBV_PORT_EXTENDED_SPEEDS_SUP: u32 = 1 << 14;
pub const IBV_PORT_CAP_MASK2_SUP: u32 = 1 << 15;
pub const IBV_PORT_CM_SUP: u32 = 1 << 16;
pub const IBV_PORT_SNMP_TUNNEL_SUP: u32 = 1 << 17;
pub const IBV_PORT_REINIT_SUP: u32 = 1 << 18;
pub const IBV_PORT_DEVICE_MGMT_SUP: u32 = 1 << 19;
pub const IBV_PORT_VENDOR_CLASS_SUP: u32 = 1 << 20;
pub const IBV_PORT_DR_NOTICE_SUP: u32 = 1 << 21;
pub const IBV_PORT_CAP_MASK_NOTICE_SUP: u32 = 1 << 22;
pub const IBV_PORT_BOOT_MGMT_SUP: u32 = 1 << 23;
pub const IBV_PORT_LINK_LATENCY_SUP: u32 = 1 << 24;
pub const IBV_PORT_CLIENT_REG_SUP: u32 = 1 << 25;
pub const IBV_PORT_IP_BASED_GIDS: u32 = 1 << 26;

// How a memory region may be accessed.
pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1 << 0;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const IBV_ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;
pub const IBV_ACCESS_MW_BIND: c_int = 1 << 4;
pub const IBV_ACCESS_ZERO_BASED: c_int = 1 << 5;
pub const IBV_ACCESS_ON_DEMAND: c_int = 1 << 6;
pub const IBV_ACCESS_HUGETLB: c_int = 1 << 7;
pub const IBV_ACCESS_RELAXED_ORDERING: c_int = 1 << 20;

// Types of queue pairs.
pub const IBV_QPT_RC: c_int = 2;
pub const IBV_QPT_UC: c_int = 3;
pub const IBV_QPT_UD: c_int = 4;
pub const IBV_QPT_RAW_PACKET: c_int = 8;
pub const IBV_QPT_XRC_SEND: c_int = 9;
pub const IBV_QPT_XRC_RECV: c_int = 10;
pub const IBV_QPT_DRIVER: c_int = 0xff;

// States of a queue pair.
pub const IBV_QPS_RESET: c_int = 0;
pub const IBV_QPS_INIT: c_int = 1;
pub const IBV_QPS_RTR: c_int = 2;
pub const IBV_QPS_RTS: c_int = 3;
pub const IBV_QPS_SQD: c_int = 4;
pub const IBV_QPS_SQE: c_int = 5;
pub const IBV_QPS_ERR: c_int = 6;
pub const IBV_QPS_UNKNOWN: c_int = 7;

// States of path migration.
pub const IBV_MIG_MIGRATED: c_int = 0;
pub const IBV_MIG_REARM: c_int = 1;
pub const IBV_MIG_ARMED: c_int = 2;

// Attributes of a queue pair.
pub const IBV_QP_STATE: c_int = 1 << 0;
pub const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub const IBV_QP_ACCESS_FLAGS: c_int = 1 << 3;
pub const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
pub const IBV_QP_PORT: c_int = 1 << 5;
pub const IBV_QP_QKEY: c_int = 1 << 6;
pub const IBV_QP_AV: c_int = 1 << 7;
pub const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub const IBV_QP_ALT_PATH: c_int = 1 << 14;
pub const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub const IBV_QP_SQ_PSN: c_int = 1 << 16;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const IBV_QP_PATH_MIG_STATE: c_int = 1 << 18;
pub const IBV_QP_CAP: c_int = 1 << 19;
pub const IBV_QP_DEST_QPN: c_int = 1 << 20;
pub const IBV_QP_RATE_LIMIT: c_int = 1 << 25;

// Attributes of a shared receive queue.
pub const IBV_SRQ_MAX_WR: c_int = 1 << 0;
pub const IBV_SRQ_LIMIT: c_int = 1 << 1;

// Operations of work requests.
pub const IBV_WR_RDMA_WRITE: c_int = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub const IBV_WR_SEND: c_int = 2;
pub const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub const IBV_WR_RDMA_READ: c_int = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub const IBV_WR_LOCAL_INV: c_int = 7;
pub const IBV_WR_BIND_MW: c_int = 8;
pub const IBV_WR_SEND_WITH_INV: c_int = 9;
pub const IBV_WR_TSO: c_int = 10;
pub const IBV_WR_DRIVER1: c_int = 11;
pub const IBV_WR_ATOMIC_WRITE: c_int = 15;

// Flags of work requests.
pub const IBV_SEND_FENCE: c_uint = 1 << 0;
pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub const IBV_SEND_SOLICITED: c_uint = 1 << 2;
pub const IBV_SEND_INLINE: c_uint = 1 << 3;
pub const IBV_SEND_IP_CSUM: c_uint = 1 << 4;

// How a work request ended.
pub const IBV_WC_SUCCESS: c_int = 0;
pub const IBV_WC_LOC_LEN_ERR: c_int = 1;
pub const IBV_WC_LOC_QP_OP_ERR: c_int = 2;
pub const IBV_WC_LOC_EEC_OP_ERR: c_int = 3;
pub const IBV_WC_LOC_PROT_ERR: c_int = 4;
pub const IBV_WC_WR_FLUSH_ERR: c_int = 5;
pub const IBV_WC_MW_BIND_ERR: c_int = 6;
pub const IBV_WC_BAD_RESP_ERR: c_int = 7;
pub const IBV_WC_LOC_ACCESS_ERR: c_int = 8;
pub const IBV_WC_REM_INV_REQ_ERR: c_int = 9;
pub const IBV_WC_REM_ACCESS_ERR: c_int = 10;
pub const IBV_WC_REM_OP_ERR: c_int = 11;
pub const IBV_WC_RETRY_EXC_ERR: c_int = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: c_int = 13;
pub const IBV_WC_LOC_RDD_VIOL_ERR: c_int = 14;
pub const IBV_WC_REM_INV_RD_REQ_ERR: c_int = 15;
pub const IBV_WC_REM_ABORT_ERR: c_int = 16;
pub const IBV_WC_INV_EECN_ERR: c_int = 17;
pub const IBV_WC_INV_EEC_STATE_ERR: c_int = 18;
pub const IBV_WC_FATAL_ERR: c_int = 19;
pub const IBV_WC_RESP_TIMEOUT_ERR: c_int = 20;
pub const IBV_WC_GENERAL_ERR: c_int = 21;
pub const IBV_WC_TM_ERR: c_int = 22;
pub const IBV_WC_TM_RNDV_INCOMPLETE: c_int = 23;

// Operations of work completions.
pub const IBV_WC_SEND: c_int = 0;
pub const IBV_WC_RDMA_WRITE: c_int = 1;
pub const IBV_WC_RDMA_READ: c_int = 2;
pub const IBV_WC_COMP_SWAP: c_int = 3;
pub const IBV_WC_FETCH_ADD: c_int = 4;
pub const IBV_WC_BIND_MW: c_int = 5;
pub const IBV_WC_LOCAL_INV: c_int = 6;
pub const IBV_WC_TSO: c_int = 7;
pub const IBV_WC_ATOMIC_WRITE: c_int = 9;
pub const IBV_WC_RECV: c_int = 1 << 7;
pub const IBV_WC_RECV_RDMA_WITH_IMM: c_int = (1 << 7) + 1;
pub const IBV_WC_TM_ADD: c_int = (1 << 7) + 2;
pub const IBV_WC_TM_DEL: c_int = (1 << 7) + 3;
pub const IBV_WC_TM_SYNC: c_int = (1 << 7) + 4;
pub const IBV_WC_TM_RECV: c_int = (1 << 7) + 5;
pub const IBV_WC_TM_NO_TAG: c_int = (1 << 7) + 6;
pub const IBV_WC_DRIVER1: c_int = (1 << 7) + 7;
pub const IBV_WC_DRIVER2: c_int = (1 << 7) + 8;
pub const IBV_WC_DRIVER3: c_int = (1 << 7) + 9;

// What else a work completion has.
pub const IBV_WC_GRH: c_uint = 1 << 0;
pub const IBV_WC_WITH_IMM: c_uint = 1 << 1;
pub const IBV_WC_IP_CSUM_OK: c_uint = 1 << 2;
pub const IBV_WC_WITH_INV: c_uint = 1 << 3;
pub const IBV_WC_TM_SYNC_REQ: c_uint = 1 << 4;
pub const IBV_WC_TM_MATCH: c_uint = 1 << 5;
pub const IBV_WC_TM_DATA_VALID: c_uint = 1 << 6;

// Asynchronous events.
pub const IBV_EVENT_CQ_ERR: c_int = 0;
pub const IBV_EVENT_QP_FATAL: c_int = 1;
pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
pub const IBV_EVENT_COMM_EST: c_int = 4;
pub const IBV_EVENT_SQ_DRAINED: c_int = 5;
pub const IBV_EVENT_PATH_MIG: c_int = 6;
pub const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub const IBV_EVENT_PORT_ACTIVE: c_int = 9;
pub const IBV_EVENT_PORT_ERR: c_int = 10;
pub const IBV_EVENT_LID_CHANGE: c_int = 11;
pub const IBV_EVENT_PKEY_CHANGE: c_int = 12;
pub const IBV_EVENT_SM_CHANGE: c_int = 13;
pub const IBV_EVENT_SRQ_ERR: c_int = 14;
pub const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;
pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
pub const IBV_EVENT_CLIENT_REREGISTER: c_int = 17;
pub const IBV_EVENT_GID_CHANGE: c_int = 18;
pub const IBV_EVENT_WQ_FATAL: c_int = 19;
