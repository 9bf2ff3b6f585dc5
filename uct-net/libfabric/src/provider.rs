//! What libfabric finds in the library's file: the provider and its two functions.
//!
//! Built on `info` and `objects`. The file's own name decides the provider's: a copy under the name of another provider's file is its shadow,
//! for programs that have a fixed table of names. libfabric then prefers the shadow, since its version is higher.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use ucs::sys::own_file::own_file;

use crate::abi::*;
use crate::boundary::{Caller, guarded};
use crate::engine::Errno;
use crate::info::{self, Hints, NAME, Request};
use crate::objects;

/// What the name of a provider decides.
struct Identity {
    name: &'static str,
    version: u32,
    protocol: u32,
}

const OWN: Identity = Identity {
    name: NAME,
    version: version(number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR"))),
    // A number of this provider's own: "uct", and the bit that marks such numbers.
    protocol: 1 << 31 | 0x0075_6374,
};

/// Higher than that of any provider with the same name.
const SHADOW_VERSION: u32 = version(999, 0);
const SHADOWS: [Identity; 2] = [
    Identity { name: "tcp", version: SHADOW_VERSION, protocol: FI_PROTO_XNET },
    Identity { name: "sockets", version: SHADOW_VERSION, protocol: FI_PROTO_SOCK_TCP },
];

/// At least what any program asks for: libfabric skips providers that are older.
const API_VERSION: u32 = version(2, 99);

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("cargo's versions are numbers"),
    }
}

/// The one structure of the process. libfabric writes to it.
struct Shared(*mut fi_provider);

// SAFETY: after it is made, only libfabric uses it, under its own lock.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What libfabric calls when it has loaded the file.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    static PROVIDER: OnceLock<Shared> = OnceLock::new();
    let make = || {
        let Identity { name, version, .. } = *identity();
        let name = CString::new(name).expect("a name has no zero byte").into_raw();
        let context = [null_mut(); 4];
        let fi_version = API_VERSION;
        Shared(Box::into_raw(Box::new(fi_provider {
            version,
            fi_version,
            context,
            name,
            getinfo,
            fabric,
            cleanup,
        })))
    };
    PROVIDER.get_or_init(make).0
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<&Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| own_file().and_then(|file| shadow(&file)).unwrap_or(&OWN))
}

fn shadow(file: &Path) -> Option<&'static Identity> {
    let file = file.file_name()?.to_str()?;
    SHADOWS.iter().find(|shadow| file == format!("lib{}-fi.so", shadow.name))
}

unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    answer: *mut *mut fi_info,
) -> c_int {
    let work = |caller: &Caller| {
        caller.put(answer, null_mut())?;
        let Identity { name, protocol, .. } = *identity();
        let (node, service) = (caller.text(node)?, caller.text(service)?);
        let hints = Hints::new(caller, hints)?;
        let found = info::find(&Request { version, node, service, flags, hints, protocol });
        let found = found.map_err(|reason| {
            ucs::log::info!("libfabric: {name} is not offered to this call of fi_getinfo: {reason}");
            Errno(ENODATA)
        })?;
        caller.put(answer, found)?;
        Ok(0)
    };
    // SAFETY: libfabric passes null, or what its program has given it.
    unsafe { guarded(work) }
}

unsafe extern "C" fn fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric passes what its program has given it.
    unsafe { guarded(|caller| objects::fabric::open(caller, attr, fabric, context)) }
}

/// Everything that is open belongs to the program, which closes it.
unsafe extern "C" fn cleanup() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_decides_the_name_of_the_provider() {
        let name = |file| shadow(Path::new(file)).map(|identity| (identity.name, identity.protocol));
        assert_eq!(name("/opt/uct/shadows/libtcp-fi.so"), Some(("tcp", FI_PROTO_XNET)));
        assert_eq!(name("libsockets-fi.so"), Some(("sockets", FI_PROTO_SOCK_TCP)));
        for other in ["libuct_fi.so", "libuct-fi.so", "tcp-fi.so", "/opt/libtcp-fi.so/libuct_fi.so", ""] {
            assert_eq!(name(other), None);
        }
    }
}
