//! The numbers of libfabric's interface.

use std::ffi::{c_int, c_uint};

macro_rules! numbers {
    ($type:ty: $($name:ident = $value:expr;)*) => { $(pub const $name: $type = $value;)* };
}

/// A version as libfabric writes it in one number.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

// Capabilities, and flags of operations, of completions and of calls. The upper ones have several meanings.
numbers! { u64:
    FI_MSG = 1 << 1;
    FI_RMA = 1 << 2;
    FI_TAGGED = 1 << 3;
    FI_ATOMIC = 1 << 4;
    FI_READ = 1 << 8;
    FI_WRITE = 1 << 9;
    FI_RECV = 1 << 10;
    FI_SEND = 1 << 11;
    FI_REMOTE_READ = 1 << 12;
    FI_REMOTE_WRITE = 1 << 13;
    FI_MULTI_RECV = 1 << 16;
    FI_REMOTE_CQ_DATA = 1 << 17;
    FI_MORE = 1 << 18;
    FI_PEEK = 1 << 19;
    FI_FENCE = 1 << 21;
    FI_COMPLETION = 1 << 24;
    FI_EVENT = 1 << 24;
    FI_INJECT = 1 << 25;
    FI_INJECT_COMPLETE = 1 << 26;
    FI_TRANSMIT_COMPLETE = 1 << 27;
    FI_DELIVERY_COMPLETE = 1 << 28;
    FI_MATCH_COMPLETE = 1 << 31;
    FI_LOCAL_COMM = 1 << 51;
    FI_REMOTE_COMM = 1 << 52;
    FI_PROV_ATTR_ONLY = 1 << 54;
    FI_NUMERICHOST = 1 << 55;
    FI_SOURCE = 1 << 57;
    FI_DISCARD = 1 << 58;
    FI_DIRECTED_RECV = 1 << 59;
    FI_CLAIM = 1 << 59;
    FI_SELECTIVE_COMPLETION = 1 << 59;
    FI_FETCH_ATOMIC = 1 << 58;
    FI_COMPARE_ATOMIC = 1 << 59;
    FI_SYNC_ERR = 1 << 58;
    FI_ADDR_UNSPEC = u64::MAX;
    FI_ADDR_NOTAVAIL = u64::MAX;
}

/// Flag of a call of `getinfo` that libfabric's own layers make for a provider beneath them. It is in none of its public headers.
pub const OFI_CORE_PROV_ONLY: u64 = 1 << 59;

// Order between operations, the later one first: SAS is send after send.
numbers! { u64:
    FI_ORDER_SAS = 1 << 8;
    FI_ORDER_ATOMIC_RAR = 1 << 36;
    FI_ORDER_ATOMIC_RAW = 1 << 37;
    FI_ORDER_ATOMIC_WAR = 1 << 38;
    FI_ORDER_ATOMIC_WAW = 1 << 39;
}

numbers! { u32:
    FI_FORMAT_UNSPEC = 0;
    FI_SOCKADDR = 1;
    FI_SOCKADDR_IN = 2;
    FI_SOCKADDR_IN6 = 3;
    FI_PROTO_UNSPEC = 0;
    FI_PROTO_SOCK_TCP = 6;
    FI_PROTO_XNET = 25;
}

numbers! { c_int:
    FI_MR_BASIC = 1 << 0;
    FI_MR_SCALABLE = 1 << 1;
}

numbers! { c_uint:
    FI_AV_UNSPEC = 0;
    FI_AV_MAP = 1;
    FI_AV_TABLE = 2;
    FI_PROGRESS_UNSPEC = 0;
    FI_PROGRESS_AUTO = 1;
    FI_PROGRESS_MANUAL = 2;
    FI_THREAD_UNSPEC = 0;
    FI_THREAD_SAFE = 1;
    FI_RM_UNSPEC = 0;
    FI_RM_ENABLED = 2;
    FI_EP_UNSPEC = 0;
    FI_EP_MSG = 1;
    FI_EP_RDM = 3;
    FI_WAIT_NONE = 0;
    FI_WAIT_UNSPEC = 1;
    FI_WAIT_FD = 3;
    FI_WAIT_YIELD = 5;
    FI_CQ_FORMAT_UNSPEC = 0;
    FI_CQ_FORMAT_CONTEXT = 1;
    FI_CQ_FORMAT_MSG = 2;
    FI_CQ_FORMAT_DATA = 3;
    FI_CQ_FORMAT_TAGGED = 4;
    FI_CQ_COND_NONE = 0;
    FI_CNTR_EVENTS_COMP = 0;
    FI_HMEM_SYSTEM = 0;
}

// Classes of objects.
numbers! { usize:
    FI_CLASS_FABRIC = 1;
    FI_CLASS_DOMAIN = 2;
    FI_CLASS_EP = 3;
    FI_CLASS_AV = 11;
    FI_CLASS_MR = 12;
    FI_CLASS_EQ = 13;
    FI_CLASS_CQ = 14;
    FI_CLASS_CNTR = 15;
}

// Commands of `control`, and options of endpoints.
numbers! { c_int:
    FI_GETOPSFLAG = 2;
    FI_SETOPSFLAG = 3;
    FI_GETWAIT = 5;
    FI_ENABLE = 6;
    FI_GETWAITOBJ = 16;
    FI_OPT_ENDPOINT = 0;
    FI_OPT_MIN_MULTI_RECV = 0;
    FI_OPT_CM_DATA_SIZE = 1;
}

// Types and operations of atomics.
numbers! { c_uint:
    FI_INT8 = 0;
    FI_UINT8 = 1;
    FI_INT16 = 2;
    FI_UINT16 = 3;
    FI_INT32 = 4;
    FI_UINT32 = 5;
    FI_INT64 = 6;
    FI_UINT64 = 7;
    FI_FLOAT = 8;
    FI_DOUBLE = 9;
    FI_MIN = 0;
    FI_MAX = 1;
    FI_SUM = 2;
    FI_PROD = 3;
    FI_LOR = 4;
    FI_LAND = 5;
    FI_BOR = 6;
    FI_BAND = 7;
    FI_LXOR = 8;
    FI_BXOR = 9;
    FI_ATOMIC_READ = 10;
    FI_ATOMIC_WRITE = 11;
    FI_CSWAP = 12;
    FI_CSWAP_NE = 13;
    FI_CSWAP_LE = 14;
    FI_CSWAP_LT = 15;
    FI_CSWAP_GE = 16;
    FI_CSWAP_GT = 17;
    FI_MSWAP = 18;
}

// Errors: those of the system that the provider returns, and libfabric's own.
numbers! { c_int:
    EIO = libc::EIO;
    EAGAIN = libc::EAGAIN;
    ENOMEM = libc::ENOMEM;
    EBUSY = libc::EBUSY;
    EINVAL = libc::EINVAL;
    EMSGSIZE = libc::EMSGSIZE;
    ENOSYS = libc::ENOSYS;
    ENODATA = libc::ENODATA;
    ENOMSG = libc::ENOMSG;
    ENOENT = libc::ENOENT;
    ENOPROTOOPT = libc::ENOPROTOOPT;
    EOPNOTSUPP = libc::EOPNOTSUPP;
    ETIMEDOUT = libc::ETIMEDOUT;
    EADDRNOTAVAIL = libc::EADDRNOTAVAIL;
    ECANCELED = libc::ECANCELED;
    EOTHER = 256;
    ETOOSMALL = 257;
    EOPBADSTATE = 258;
    EAVAIL = 259;
    EBADFLAGS = 260;
    EDOMAIN = 262;
    ENOCQ = 263;
    ETRUNC = 265;
    ENOKEY = 266;
    ENOAV = 267;
}
