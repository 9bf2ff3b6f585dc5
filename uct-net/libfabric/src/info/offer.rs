//! What the provider offers, and whether that is what a program asks for.

use crate::abi::*;
use crate::engine::{MAX_BUFFERS, MAX_INJECT};

use super::hints::Hints;
use super::refused;

/// Capabilities that a program gets only if it asks for them, or for nothing.
const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
/// Capabilities that it gets in any case.
const SECONDARY: u64 = FI_MULTI_RECV | FI_SOURCE | REACH;
const BOTH_WAYS: u64 = FI_SEND | FI_RECV;
const ALL_ACCESS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Not a capability by the manual, but asked for as one: every endpoint carries the data.
const TOLERATED: u64 = FI_REMOTE_CQ_DATA;

const TRANSMIT: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
const RECEIVE: u64 = PRIMARY | FI_MULTI_RECV | FI_SOURCE | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
const REACH: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// Flags that may be the default of an endpoint's operations.
pub const TRANSMIT_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
pub const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Order between operations of one endpoint to one peer: that of messages, and that of atomic operations, which the peer's processor carries out as
/// they arrive.
const ORDER: u64 =
    FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
/// Operations that a program may expect to be taken before it reads its queues. More are taken as well.
const DEPTH: usize = 1 << 16;
/// Objects of each kind. Only memory limits them.
const MANY: usize = 1 << 16;
/// Tags have 64 bits, all for the program: libfabric's `FI_TAG_GENERIC`.
const TAG_FORMAT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
/// Bytes of the longest message.
const MAX_MESSAGE: usize = 1 << 40;
/// Bytes of the longest atomic operation.
pub const MAX_ATOMIC: usize = 16 << 20;
/// Version of the protocol that providers of this kind speak.
const PROTOCOL_VERSION: u32 = 1;

/// What a call of `fi_getinfo` returns, without names and addresses.
#[derive(Clone, Copy)]
pub struct Offer {
    pub caps: u64,
    pub transmit: fi_tx_attr,
    pub receive: fi_rx_attr,
    pub endpoint: fi_ep_attr,
    pub domain: fi_domain_attr,
}

impl Offer {
    /// What is offered to a program with these hints, or the first of them that cannot be met.
    pub fn new(version: u32, protocol: u32, hints: Option<&Hints<'_>>) -> Result<Offer, String> {
        let caps = capabilities(hints.map_or(0, |hints| hints.info.caps))?;
        let mut offer = Offer {
            caps,
            transmit: fi_tx_attr {
                caps: caps & TRANSMIT,
                mode: 0,
                op_flags: 0,
                msg_order: ORDER,
                comp_order: 0,
                inject_size: MAX_INJECT,
                size: DEPTH,
                iov_limit: MAX_BUFFERS,
                rma_iov_limit: 1,
                tclass: 0,
            },
            receive: fi_rx_attr {
                caps: caps & RECEIVE,
                mode: 0,
                op_flags: 0,
                msg_order: ORDER,
                comp_order: 0,
                total_buffered_recv: 0,
                size: DEPTH,
                iov_limit: MAX_BUFFERS,
            },
            endpoint: fi_ep_attr {
                r#type: FI_EP_RDM,
                protocol,
                protocol_version: PROTOCOL_VERSION,
                max_msg_size: MAX_MESSAGE,
                msg_prefix_size: 0,
                max_order_raw_size: MAX_ATOMIC,
                max_order_war_size: MAX_ATOMIC,
                max_order_waw_size: MAX_ATOMIC,
                mem_tag_format: TAG_FORMAT,
                tx_ctx_cnt: 1,
                rx_ctx_cnt: 1,
                auth_key_size: 0,
                auth_key: std::ptr::null_mut(),
            },
            domain: domain(version),
        };
        if let Some(hints) = hints {
            offer.meet(version, hints)?;
        }
        Ok(offer)
    }

    fn meet(&mut self, version: u32, hints: &Hints<'_>) -> Result<(), String> {
        if let Some(asked) = hints.endpoint {
            self.meet_endpoint(asked)?;
        }
        if let Some(asked) = hints.transmit {
            self.meet_transmit(asked)?;
        }
        if let Some(asked) = hints.receive {
            self.meet_receive(asked)?;
        }
        if let Some(asked) = hints.domain {
            self.meet_domain(version, asked)?;
        }
        Ok(())
    }

    fn meet_endpoint(&mut self, asked: &fi_ep_attr) -> Result<(), String> {
        let own = &mut self.endpoint;
        one_of("ep_attr.type", asked.r#type, &[FI_EP_UNSPEC, FI_EP_RDM])?;
        one_of("ep_attr.protocol", asked.protocol, &[FI_PROTO_UNSPEC, own.protocol])?;
        within("ep_attr.protocol_version", asked.protocol_version as usize, own.protocol_version as usize)?;
        within("ep_attr.max_msg_size", asked.max_msg_size, own.max_msg_size)?;
        within("ep_attr.msg_prefix_size", asked.msg_prefix_size, own.msg_prefix_size)?;
        within("ep_attr.max_order_raw_size", asked.max_order_raw_size, own.max_order_raw_size)?;
        within("ep_attr.max_order_war_size", asked.max_order_war_size, own.max_order_war_size)?;
        within("ep_attr.max_order_waw_size", asked.max_order_waw_size, own.max_order_waw_size)?;
        within("ep_attr.tx_ctx_cnt", asked.tx_ctx_cnt, own.tx_ctx_cnt)?;
        within("ep_attr.rx_ctx_cnt", asked.rx_ctx_cnt, own.rx_ctx_cnt)?;
        within("ep_attr.auth_key_size", asked.auth_key_size, own.auth_key_size)?;
        take(&mut own.mem_tag_format, asked.mem_tag_format);
        Ok(())
    }

    fn meet_transmit(&mut self, asked: &fi_tx_attr) -> Result<(), String> {
        let own = &mut self.transmit;
        bits("tx_attr.caps", asked.caps, self.caps | TOLERATED)?;
        bits("tx_attr.op_flags", asked.op_flags, TRANSMIT_FLAGS)?;
        bits("tx_attr.msg_order", asked.msg_order, own.msg_order)?;
        bits("tx_attr.comp_order", asked.comp_order, own.comp_order)?;
        within("tx_attr.inject_size", asked.inject_size, own.inject_size)?;
        within("tx_attr.size", asked.size, own.size)?;
        within("tx_attr.iov_limit", asked.iov_limit, own.iov_limit)?;
        within("tx_attr.rma_iov_limit", asked.rma_iov_limit, own.rma_iov_limit)?;
        own.op_flags = asked.op_flags;
        take(&mut own.size, asked.size);
        take(&mut own.caps, asked.caps & TRANSMIT);
        Ok(())
    }

    fn meet_receive(&mut self, asked: &fi_rx_attr) -> Result<(), String> {
        let own = &mut self.receive;
        bits("rx_attr.caps", asked.caps, self.caps | TOLERATED)?;
        bits("rx_attr.op_flags", asked.op_flags, RECEIVE_FLAGS)?;
        bits("rx_attr.msg_order", asked.msg_order, own.msg_order)?;
        bits("rx_attr.comp_order", asked.comp_order, own.comp_order)?;
        within("rx_attr.size", asked.size, own.size)?;
        within("rx_attr.iov_limit", asked.iov_limit, own.iov_limit)?;
        own.op_flags = asked.op_flags;
        take(&mut own.size, asked.size);
        take(&mut own.caps, asked.caps & RECEIVE);
        Ok(())
    }

    fn meet_domain(&mut self, version: u32, asked: &fi_domain_attr) -> Result<(), String> {
        let own = &mut self.domain;
        meet_memory_mode(version, asked.mr_mode, &mut own.mr_mode)?;
        within("domain_attr.mr_key_size", asked.mr_key_size, own.mr_key_size)?;
        within("domain_attr.cq_data_size", asked.cq_data_size, own.cq_data_size)?;
        within("domain_attr.cq_cnt", asked.cq_cnt, own.cq_cnt)?;
        within("domain_attr.ep_cnt", asked.ep_cnt, own.ep_cnt)?;
        within("domain_attr.tx_ctx_cnt", asked.tx_ctx_cnt, own.tx_ctx_cnt)?;
        within("domain_attr.rx_ctx_cnt", asked.rx_ctx_cnt, own.rx_ctx_cnt)?;
        within("domain_attr.max_ep_tx_ctx", asked.max_ep_tx_ctx, own.max_ep_tx_ctx)?;
        within("domain_attr.max_ep_rx_ctx", asked.max_ep_rx_ctx, own.max_ep_rx_ctx)?;
        within("domain_attr.max_ep_stx_ctx", asked.max_ep_stx_ctx, own.max_ep_stx_ctx)?;
        within("domain_attr.max_ep_srx_ctx", asked.max_ep_srx_ctx, own.max_ep_srx_ctx)?;
        within("domain_attr.cntr_cnt", asked.cntr_cnt, own.cntr_cnt)?;
        within("domain_attr.mr_iov_limit", asked.mr_iov_limit, own.mr_iov_limit)?;
        within("domain_attr.auth_key_size", asked.auth_key_size, own.auth_key_size)?;
        within("domain_attr.mr_cnt", asked.mr_cnt, own.mr_cnt)?;
        bits("domain_attr.caps", asked.caps, own.caps)?;
        one_of("domain_attr.av_type", asked.av_type, &[FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE])?;
        own.av_type = asked.av_type;
        // Every thread may call everything, and progress is made without calls: all that a program can ask for.
        take(&mut own.threading, asked.threading);
        take(&mut own.control_progress, asked.control_progress);
        take(&mut own.data_progress, asked.data_progress);
        Ok(())
    }
}

fn domain(version: u32) -> fi_domain_attr {
    fi_domain_attr {
        domain: std::ptr::null_mut(),
        name: std::ptr::null_mut(),
        threading: FI_THREAD_SAFE,
        control_progress: FI_PROGRESS_AUTO,
        data_progress: FI_PROGRESS_AUTO,
        resource_mgmt: FI_RM_ENABLED,
        av_type: FI_AV_UNSPEC,
        mr_mode: if version < NAMED_MODES { FI_MR_SCALABLE } else { 0 },
        mr_key_size: size_of::<u64>(),
        cq_data_size: size_of::<u64>(),
        cq_cnt: MANY,
        ep_cnt: MANY,
        tx_ctx_cnt: MANY,
        rx_ctx_cnt: MANY,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: MANY,
        mr_iov_limit: 1,
        caps: REACH,
        mode: 0,
        auth_key: std::ptr::null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: MANY,
        tclass: 0,
    }
}

/// From this version on programs name each property of a memory mode.
const NAMED_MODES: u32 = crate::abi::version(1, 5);

/// The program chooses keys, and offsets begin at 0 with each region: mode 0, of old called scalable. A mode that a program can work in
/// does not have to be used.
fn meet_memory_mode(version: u32, asked: i32, own: &mut i32) -> Result<(), String> {
    match asked {
        FI_MR_BASIC => {
            refused("domain_attr.mr_mode", "FI_MR_BASIC", "0: keys of the program, offsets from 0 on")
        }
        FI_MR_SCALABLE => {
            *own = FI_MR_SCALABLE;
            Ok(())
        }
        _ if version >= NAMED_MODES || asked == 0 => Ok(()),
        other => refused("domain_attr.mr_mode", other, "FI_MR_SCALABLE"),
    }
}

fn capabilities(asked: u64) -> Result<u64, String> {
    if asked == 0 {
        return Ok(PRIMARY | SECONDARY | BOTH_WAYS | ALL_ACCESS);
    }
    bits("caps", asked, PRIMARY | SECONDARY | BOTH_WAYS | ALL_ACCESS | TOLERATED)?;
    let mut caps = asked | SECONDARY;
    if asked & (FI_MSG | FI_TAGGED) != 0 && asked & BOTH_WAYS == 0 {
        caps |= BOTH_WAYS;
    }
    if asked & (FI_RMA | FI_ATOMIC) != 0 && asked & ALL_ACCESS == 0 {
        caps |= ALL_ACCESS;
    }
    Ok(caps)
}

fn bits(name: &str, asked: u64, offered: u64) -> Result<(), String> {
    match asked & !offered {
        0 => Ok(()),
        missing => Err(format!("hints: {name} has the bits {missing:#x}, which are not offered")),
    }
}

fn within(name: &str, asked: usize, offered: usize) -> Result<(), String> {
    if asked <= offered { Ok(()) } else { refused(name, asked, format_args!("at most {offered}")) }
}

fn one_of(name: &str, asked: u32, offered: &[u32]) -> Result<(), String> {
    if offered.contains(&asked) { Ok(()) } else { refused(name, asked, format_args!("one of {offered:?}")) }
}

/// A program's own value in place of the default.
fn take<T: Default + PartialEq>(own: &mut T, asked: T) {
    if asked != T::default() {
        *own = asked;
    }
}
