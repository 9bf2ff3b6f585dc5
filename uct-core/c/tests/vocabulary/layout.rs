//! The structures of the library are those of the headers.

use std::mem::offset_of;

use uct_compat::types::*;

use crate::program::Program;

macro_rules! layout {
    ($list:ident, $c:literal, $rust:ty $(, $field:literal = $($place:tt).+)*) => {
        $list.push(format!("{} {}", $c, size_of::<$rust>()));
        $($list.push(format!("{}.{} {}", $c, $field, offset_of!($rust, $($place).+)));)*
    };
}

#[test]
fn structures_have_the_same_layout_on_both_sides() {
    let Some(program) = Program::compile("tests/programs/layout.c") else { return };
    let mut ours = Vec::new();
    layout!(ours, "uct_md_resource_desc_t", MdResourceDesc);
    layout!(ours, "uct_component_attr_t", ComponentAttr, "md_resources" = md_resources, "flags" = flags);
    layout!(ours, "uct_tl_resource_desc_t", TlResourceDesc, "dev_name" = dev_name, "dev_type" = dev_type);
    layout!(
        ours,
        "uct_md_attr_t",
        MdAttr,
        "cap.access_mem_types" = cap.access_mem_types,
        "reg_cost" = reg_cost,
        "rkey_packed_size" = rkey_packed_size,
        "local_cpus" = local_cpus
    );
    layout!(ours, "uct_rkey_bundle_t", RkeyBundle, "handle" = handle);
    layout!(ours, "uct_allocated_memory_t", AllocatedMemory, "md" = md, "memh" = memh);
    layout!(ours, "uct_md_mem_reg_params_t", MemRegParams, "mem_type" = mem_type);
    layout!(ours, "uct_md_mkey_pack_params_t", MkeyPackParams, "flags" = flags);
    layout!(
        ours,
        "uct_iface_params_t",
        IfaceParams,
        "open_mode" = open_mode,
        "mode.device.dev_name" = dev_name,
        "rx_headroom" = rx_headroom,
        "err_handler" = err_handler,
        "features" = features
    );
    layout!(
        ours,
        "uct_iface_attr_t",
        IfaceAttr,
        "cap.get" = cap.get,
        "cap.am.max_hdr" = cap.am.max_hdr,
        "cap.atomic64.fop_flags" = cap.atomic64.fop_flags,
        "cap.event_flags" = cap.event_flags,
        "ep_addr_len" = ep_addr_len,
        "bandwidth" = bandwidth,
        "priority" = priority,
        "dev_num_paths" = dev_num_paths
    );
    layout!(
        ours,
        "uct_ep_params_t",
        EpParams,
        "dev_addr" = dev_addr,
        "iface_addr_length" = iface_addr_length
    );
    layout!(ours, "uct_iov_t", UctIov, "memh" = memh, "count" = count);
    layout!(ours, "uct_completion_t", UctCompletion, "count" = count, "status" = status);
    layout!(ours, "uct_pending_req_t", UctPendingReq, "priv" = reserved);
    let printed = program.run(&[]);
    assert_eq!(printed.lines().collect::<Vec<_>>(), ours);
}
