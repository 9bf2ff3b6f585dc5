//! Open devices, and what is asked of them.

use std::ffi::c_int;
use std::sync::Arc;

use uct_ib_abi::*;

use super::device::{driver, guid, release};
use super::limits::{MAX_COMPLETIONS, MAX_PIECES, MAX_REQUESTS};
use super::objects::{Context, context, refused, zeroed};
use super::{queue, work};
use crate::driver::Notices;
use crate::engine::{MAX_READS, to_gid};

/// Entries of the port's table of GIDs.
const GIDS: usize = 1;
const MAX_OBJECTS: c_int = 1 << 20;
/// A vendor that no program takes for hardware that it knows.
const VENDOR: u32 = 0x00ff_fffe;

/// See `ibv_open_device(3)`.
///
/// # Safety
/// The device is one of a list.
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let opened = driver().and_then(|driver| Ok((driver, Arc::new(Notices::new()?))));
    let (driver, events) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            ucs::log::warn!(%error, "softverbs: the device does not open");
            return refused(error.raw_os_error().unwrap_or(libc::EIO));
        }
    };
    driver.lock().targets.contexts.push(events.clone());
    let mut verbs: verbs_context = zeroed();
    verbs.query_port = Some(query_port_sized);
    verbs.query_device_ex = Some(query_device_ex);
    verbs.sz = size_of::<verbs_context>();
    let public = &mut verbs.context;
    public.device = device;
    public.cmd_fd = -1;
    public.async_fd = events.descriptor();
    public.num_comp_vectors = 1;
    public.abi_compat = VERBS_ABI_IS_EXTENDED;
    public.ops.poll_cq = Some(queue::poll_cq);
    public.ops.req_notify_cq = Some(queue::req_notify_cq);
    public.ops.post_send = Some(work::post_send);
    public.ops.post_recv = Some(work::post_recv);
    public.ops.post_srq_recv = Some(work::post_srq_recv);
    let object = Box::into_raw(Box::new(Context { verbs, driver, events }));
    // SAFETY: the object was just made.
    unsafe { &raw mut (*object).verbs.context }
}

/// See `ibv_close_device(3)`.
///
/// # Safety
/// The context came from [`ibv_open_device`]; its objects have ended, and nobody uses it later.
pub unsafe extern "C" fn ibv_close_device(pointer: *mut ibv_context) -> c_int {
    // SAFETY: the caller's promise.
    let object = std::ptr::from_ref(unsafe { context(pointer) }).cast_mut();
    // SAFETY: it was made by a box, and this is its end.
    let Context { driver, events, .. } = *unsafe { Box::from_raw(object) };
    driver.lock().targets.contexts.retain(|other| !Arc::ptr_eq(other, &events));
    release(driver);
    0
}

/// See `ibv_query_device(3)`.
///
/// # Safety
/// The context is open, and `attr` is a place for the attributes.
pub unsafe extern "C" fn ibv_query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { attr.write(attributes()) };
    0
}

unsafe extern "C" fn query_device_ex(
    _: *mut ibv_context,
    _: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    if size < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    // SAFETY: the caller has so many bytes; all that is not classic is "not there".
    unsafe { attr.cast::<u8>().write_bytes(0, size) };
    // SAFETY: the classic attributes are the first member.
    unsafe { attr.cast::<ibv_device_attr>().write(attributes()) };
    0
}

fn attributes() -> ibv_device_attr {
    let mut attr: ibv_device_attr = zeroed();
    for (place, byte) in attr.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *place = byte as _;
    }
    let reads = c_int::from(MAX_READS);
    attr.node_guid = guid().to_be();
    attr.sys_image_guid = attr.node_guid;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 0xffff_f000;
    attr.vendor_id = VENDOR;
    attr.max_qp = MAX_OBJECTS;
    attr.max_qp_wr = MAX_REQUESTS as c_int;
    attr.device_cap_flags =
        IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID;
    attr.max_sge = MAX_PIECES as c_int;
    attr.max_sge_rd = MAX_PIECES as c_int;
    attr.max_cq = MAX_OBJECTS;
    attr.max_cqe = MAX_COMPLETIONS;
    attr.max_mr = MAX_OBJECTS;
    attr.max_pd = MAX_OBJECTS;
    attr.max_qp_rd_atom = reads;
    attr.max_res_rd_atom = MAX_OBJECTS;
    attr.max_qp_init_rd_atom = reads;
    // They are atomic with processors, too, which is IBV_ATOMIC_GLOB; but UCX 1.13 knows only this one.
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_ah = MAX_OBJECTS;
    attr.max_srq = MAX_OBJECTS;
    attr.max_srq_wr = MAX_REQUESTS as c_int;
    attr.max_srq_sge = MAX_PIECES as c_int;
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = 15;
    attr.phys_port_cnt = 1;
    attr
}

/// See `ibv_query_port(3)`.
///
/// # Safety
/// The context is open, and `attr` is a place for the attributes.
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    let size = std::mem::offset_of!(ibv_port_attr, flags) + 1;
    // SAFETY: the caller's promise; programs that call this know the structure up to there.
    unsafe { query_port_sized(context, port, attr, size) }
}

unsafe extern "C" fn query_port_sized(
    pointer: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let is_up = unsafe { context(pointer) }.driver.lock().device.is_up();
    let whole = ibv_port_attr {
        state: if is_up { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_4096,
        gid_tbl_len: GIDS as c_int,
        port_cap_flags: IBV_PORT_IP_BASED_GIDS | IBV_PORT_CM_SUP,
        max_msg_sz: 1 << 30,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        // One lane of 2.5 Gbit/s.
        active_width: 1,
        active_speed: 1,
        // The link is up, or disabled.
        phys_state: if is_up { 5 } else { 3 },
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: 0,
        port_cap_flags2: 0,
    };
    let size = size.min(size_of::<ibv_port_attr>());
    // SAFETY: the caller has a place of this size.
    unsafe { std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), attr.cast::<u8>(), size) };
    0
}

/// The GID of the port.
///
/// # Safety
/// The context is open.
unsafe fn gid(pointer: *mut ibv_context) -> ibv_gid {
    // SAFETY: the caller's promise.
    ibv_gid { raw: to_gid(unsafe { context(pointer) }.driver.address()), _align: [] }
}

/// See `ibv_query_gid(3)`.
///
/// # Safety
/// The context is open, and `place` is one for a GID.
pub unsafe extern "C" fn ibv_query_gid(
    pointer: *mut ibv_context,
    port: u8,
    index: c_int,
    place: *mut ibv_gid,
) -> c_int {
    if port != 1 || index != 0 {
        super::objects::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise.
    let found = unsafe { gid(pointer) };
    // SAFETY: the caller's promise.
    unsafe { place.write(found) };
    0
}

/// See `ibv_query_gid_table(3)`.
///
/// # Safety
/// The context is open, and there is room for so many entries of this size.
pub unsafe extern "C" fn ibv_query_gid_table(
    pointer: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 || size < size_of::<ibv_gid_entry>() {
        return -(libc::EINVAL as isize);
    }
    if room == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let gid = unsafe { gid(pointer) };
    let entry =
        ibv_gid_entry { gid, gid_index: 0, port_num: 1, gid_type: IBV_GID_TYPE_ROCE_V2, ndev_ifindex: 0 };
    // SAFETY: there is room for one of at least this size.
    unsafe { entries.write(entry) };
    1
}

/// See `ibv_query_pkey(3)`.
///
/// # Safety
/// The context is open, and `pkey` is a place for one.
pub unsafe extern "C" fn ibv_query_pkey(
    _: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if port != 1 || index != 0 {
        super::objects::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { pkey.write(crate::engine::wire::DEFAULT_PKEY.to_be()) };
    0
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::ptr::null_mut;

    use super::*;
    use crate::abi::{ibv_free_device_list, ibv_get_device_guid, ibv_get_device_list};

    /// A place for a structure of integers.
    fn blank<T>() -> T {
        // SAFETY: the test uses it for C's structures of integers, for which zero is a value.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    #[test]
    fn a_device_reports_itself_and_its_one_port_and_nothing_else() {
        let mut count = 0;
        // SAFETY: the count is a place for an integer.
        let list = unsafe { ibv_get_device_list(&raw mut count) };
        assert_eq!(count, 1);
        // SAFETY: the list has one device.
        let device = unsafe { *list };
        // SAFETY: it came from the call above.
        unsafe { ibv_free_device_list(list) };
        // SAFETY: a device is never freed.
        let opened = unsafe { ibv_open_device(device) };
        assert_ne!(opened, null_mut());

        // SAFETY: as above.
        let number = u64::from_be(unsafe { ibv_get_device_guid(device) });
        let process = u64::from(std::process::id());
        assert_eq!((number >> 24, number & 0xff_ffff), (0x02_0000_fffe, process & 0xff_ffff), "{number:#x}");
        let mut device: ibv_device_attr = blank();
        // SAFETY: the context is open, and the place one for the attributes.
        assert_eq!(unsafe { ibv_query_device(opened, &raw mut device) }, 0);
        assert_eq!([device.node_guid, device.sys_image_guid], [number.to_be(); 2]);
        assert_eq!((device.phys_port_cnt, device.max_pkeys, device.atomic_cap), (1, 1, IBV_ATOMIC_HCA));
        let flags = [IBV_DEVICE_RC_RNR_NAK_GEN, IBV_DEVICE_PORT_ACTIVE_EVENT, IBV_DEVICE_SYS_IMAGE_GUID];
        assert_eq!(device.device_cap_flags, flags.iter().sum());

        for port in [0, 1, 2] {
            let (mut attr, mut gid, mut key): (ibv_port_attr, ibv_gid, u16) = (blank(), blank(), 0);
            // SAFETY: the context is open, and each place one of its kind.
            let found = unsafe { ibv_query_port(opened, port, &raw mut attr) };
            for index in [-1, 0, 1] {
                // SAFETY: as above.
                let of_gid = unsafe { ibv_query_gid(opened, port, index, &raw mut gid) };
                // SAFETY: as above.
                let of_key = unsafe { ibv_query_pkey(opened, port, index, &raw mut key) };
                let expected = if (port, index) == (1, 0) { 0 } else { -1 };
                assert_eq!([of_gid, of_key], [expected; 2], "port {port}, index {index}");
            }
            if port != 1 {
                assert_eq!(found, libc::EINVAL, "port {port}");
                continue;
            }
            assert_eq!((found, attr.state, attr.phys_state), (0, IBV_PORT_ACTIVE, 5));
            assert_eq!((attr.link_layer, attr.active_mtu), (IBV_LINK_LAYER_ETHERNET, IBV_MTU_4096));
            assert_eq!((attr.gid_tbl_len, attr.pkey_tbl_len, key), (1, 1, 0xffff));
            assert_eq!(attr.port_cap_flags, IBV_PORT_IP_BASED_GIDS + IBV_PORT_CM_SUP);
            let mut entries: [ibv_gid_entry; 2] = blank();
            let (places, size) = (entries.as_mut_ptr(), size_of::<ibv_gid_entry>());
            for (room, flags, size, expected) in
                [(2, 0, size, 1), (0, 0, size, 0), (2, 1, size, -22), (2, 0, size - 1, -22)]
            {
                // SAFETY: there is room for two entries.
                let found = unsafe { ibv_query_gid_table(opened, places, room, flags, size) };
                assert_eq!(found, expected, "room {room}, flags {flags}, {size} bytes");
            }
            assert_eq!(
                (entries[0].gid.raw, entries[0].gid_type, entries[0].port_num),
                (gid.raw, IBV_GID_TYPE_ROCE_V2, 1)
            );
            assert_eq!(entries[1].port_num, 0, "there is one");
        }
        // SAFETY: it is open, has no objects, and is not used later.
        assert_eq!(unsafe { ibv_close_device(opened) }, 0);
    }
}
