//! What programs may look for and the device does not offer.

/// Functions of these names, which only refuse: those of `not_supported` with an error number, those of `no_object` with a null pointer.
macro_rules! refused {
    ($result:ty = $how:ident: $($name:ident)*) => {
        $(
            // SAFETY: no other code of this library has the name. Arguments of a caller in C are not looked at.
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> $result {
                uct_ib_soft::abi::$how()
            }
        )*
    };
}
pub(crate) use refused;

refused! { std::ffi::c_int = not_supported:
    ibv_attach_mcast ibv_detach_mcast
    ibv_resize_cq ibv_rereg_mr
    ibv_query_ece ibv_set_ece
    ibv_resolve_eth_l2_from_gid
    ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern
    ibv_unimport_mr ibv_unimport_pd ibv_unimport_dm
}

refused! { *mut std::ffi::c_void = no_object:
    ibv_import_device ibv_import_mr ibv_import_pd ibv_import_dm ibv_reg_dmabuf_mr
}
