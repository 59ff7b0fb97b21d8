//! Numbers of the interface: capability and operation flags, enumerations, error codes.

/// `FI_VERSION(major, minor)`.
pub const fn fi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

// Capabilities and operation flags (one 64-bit space).
pub const FI_MSG: u64 = 1 << 1;
pub const FI_RMA: u64 = 1 << 2;
pub const FI_TAGGED: u64 = 1 << 3;
pub const FI_ATOMIC: u64 = 1 << 4;
pub const FI_COLLECTIVE: u64 = 1 << 6;
pub const FI_READ: u64 = 1 << 8;
pub const FI_WRITE: u64 = 1 << 9;
pub const FI_RECV: u64 = 1 << 10;
pub const FI_SEND: u64 = 1 << 11;
pub const FI_REMOTE_READ: u64 = 1 << 12;
pub const FI_REMOTE_WRITE: u64 = 1 << 13;
pub const FI_MULTI_RECV: u64 = 1 << 16;
pub const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub const FI_MORE: u64 = 1 << 18;
pub const FI_PEEK: u64 = 1 << 19;
pub const FI_COMPLETION: u64 = 1 << 24;
pub const FI_EVENT: u64 = FI_COMPLETION;
pub const FI_INJECT: u64 = 1 << 25;
pub const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub const FI_AFFINITY: u64 = 1 << 29;
pub const FI_COMMIT_COMPLETE: u64 = 1 << 30;
pub const FI_MATCH_COMPLETE: u64 = 1 << 31;
pub const FI_AV_USER_ID: u64 = 1 << 41;
pub const FI_LOCAL_COMM: u64 = 1 << 51;
pub const FI_REMOTE_COMM: u64 = 1 << 52;
pub const FI_NUMERICHOST: u64 = 1 << 55;
pub const FI_SOURCE: u64 = 1 << 57;
pub const FI_DIRECTED_RECV: u64 = 1 << 59;
/// In operation flags only (the bit means something else in capabilities).
pub const FI_CLAIM: u64 = 1 << 59;
/// In operation flags only.
pub const FI_DISCARD: u64 = 1 << 58;
/// In `fi_query_atomic` flags only.
pub const FI_FETCH_ATOMIC: u64 = 1 << 58;
/// In `fi_query_atomic` flags only.
pub const FI_COMPARE_ATOMIC: u64 = 1 << 59;
/// In `fi_ep_bind` flags only.
pub const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
/// In `fi_av_insert` flags only.
pub const FI_SYNC_ERR: u64 = 1 << 58;
/// In flags of address vectors and memory regions only.
pub const FI_AUTH_KEY: u64 = 1 << 57;
/// In `fi_domain_bind` flags only.
pub const FI_REG_MR: u64 = 1 << 59;

// Flags of memory regions (some bits mean something else in capabilities).
pub const FI_MR_DMABUF: u64 = 1 << 40;
pub const FI_MR_SINGLE_USE: u64 = 1 << 41;
pub const FI_HMEM_HOST_ALLOC: u64 = 1 << 45;
pub const FI_HMEM_DEVICE_ONLY: u64 = 1 << 46;
pub const FI_RMA_PMEM: u64 = 1 << 49;
pub const FI_RMA_EVENT: u64 = 1 << 56;

// enum fi_hmem_iface
pub const FI_HMEM_SYSTEM: i32 = 0;
pub const FI_HMEM_CUDA: i32 = 1;

// Address formats.
pub const FI_FORMAT_UNSPEC: u32 = 0;
/// Formats a provider defines for itself have the top bit set; the rest spells "WR".
pub const WEIR_ADDR_FORMAT: u32 = (1 << 31) | 0x5752;

pub const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub const FI_ADDR_NOTAVAIL: u64 = u64::MAX;

// enum fi_av_type
pub const FI_AV_UNSPEC: i32 = 0;
pub const FI_AV_MAP: i32 = 1;
pub const FI_AV_TABLE: i32 = 2;

// Memory registration modes.
pub const FI_MR_BASIC: i32 = 1 << 0;
pub const FI_MR_SCALABLE: i32 = 1 << 1;

// enum fi_progress
pub const FI_PROGRESS_UNSPEC: i32 = 0;
pub const FI_PROGRESS_MANUAL: i32 = 2;
pub const FI_PROGRESS_CONTROL_UNIFIED: i32 = 3;

// enum fi_threading
pub const FI_THREAD_UNSPEC: i32 = 0;
pub const FI_THREAD_SAFE: i32 = 1;
pub const FI_THREAD_DOMAIN: i32 = 3;
pub const FI_THREAD_ENDPOINT: i32 = 5;

// enum fi_resource_mgmt
pub const FI_RM_UNSPEC: i32 = 0;
pub const FI_RM_ENABLED: i32 = 2;

/// Sends to one peer are matched in the order they were posted.
pub const FI_ORDER_SAS: u64 = 1 << 8;

// enum fi_ep_type
pub const FI_EP_UNSPEC: i32 = 0;
pub const FI_EP_RDM: i32 = 3;

/// Endpoint protocols a provider defines for itself have the top bit set; the rest spells "WR".
pub const WEIR_PROTO: u32 = (1 << 31) | 0x5752;

/// Tag formats below this value are named formats (`FI_TAG_MPI`, `FI_TAG_CCL`), not bit patterns.
pub const FI_TAG_MAX_FORMAT: u64 = 1 << 16;
/// Every bit of the tag may be used, in any division.
pub const FI_TAG_GENERIC: u64 = 0xAAAA_AAAA_AAAA_AAAA;

// Object classes.
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;

// Control commands.
pub const FI_GETOPSFLAG: i32 = 2;
pub const FI_SETOPSFLAG: i32 = 3;
pub const FI_GETWAIT: i32 = 5;
pub const FI_ENABLE: i32 = 6;
pub const FI_GETWAITOBJ: i32 = 16;

// Endpoint options.
pub const FI_OPT_ENDPOINT: i32 = 0;
pub const FI_OPT_MIN_MULTI_RECV: i32 = 0;
pub const FI_OPT_CM_DATA_SIZE: i32 = 1;
pub const FI_OPT_TX_SIZE: i32 = 6;
pub const FI_OPT_RX_SIZE: i32 = 7;
pub const FI_OPT_MAX_MSG_SIZE: i32 = 12;
pub const FI_OPT_MAX_TAGGED_SIZE: i32 = 13;
pub const FI_OPT_MAX_RMA_SIZE: i32 = 14;
pub const FI_OPT_INJECT_MSG_SIZE: i32 = 16;
pub const FI_OPT_INJECT_TAGGED_SIZE: i32 = 17;
pub const FI_OPT_INJECT_RMA_SIZE: i32 = 18;

// enum fi_datatype and enum fi_op, of both a few: their order is that of
// `weir_engine::AtomicType::ALL` and `AtomicOp::ALL`
#[cfg(test)]
pub const FI_UINT64: i32 = 7;
#[cfg(test)]
pub const FI_DOUBLE: i32 = 9;
#[cfg(test)]
pub const FI_SUM: i32 = 2;
#[cfg(test)]
pub const FI_BXOR: i32 = 9;
#[cfg(test)]
pub const FI_ATOMIC_READ: i32 = 10;
#[cfg(test)]
pub const FI_ATOMIC_WRITE: i32 = 11;
#[cfg(test)]
pub const FI_CSWAP: i32 = 12;
#[cfg(test)]
pub const FI_MSWAP: i32 = 18;

// enum fi_wait_obj
pub const FI_WAIT_NONE: i32 = 0;
pub const FI_WAIT_UNSPEC: i32 = 1;
pub const FI_WAIT_FD: i32 = 3;
pub const FI_WAIT_YIELD: i32 = 5;

// enum fi_cq_format
pub const FI_CQ_FORMAT_UNSPEC: i32 = 0;
pub const FI_CQ_FORMAT_CONTEXT: i32 = 1;
pub const FI_CQ_FORMAT_MSG: i32 = 2;
pub const FI_CQ_FORMAT_DATA: i32 = 3;
pub const FI_CQ_FORMAT_TAGGED: i32 = 4;

// enum fi_cq_wait_cond
pub const FI_CQ_COND_NONE: i32 = 0;
pub const FI_CQ_COND_THRESHOLD: i32 = 1;

// enum fi_cntr_events
pub const FI_CNTR_EVENTS_COMP: i32 = 0;

// Event queue events.
pub const FI_AV_COMPLETE: u32 = 5;

// Log levels and subsystems.
pub const FI_LOG_WARN: i32 = 0;
pub const FI_LOG_INFO: i32 = 2;
pub const FI_LOG_CORE: i32 = 0;
pub const FI_LOG_EP_CTRL: i32 = 3;

// enum fi_param_type
pub const FI_PARAM_STRING: i32 = 0;
pub const FI_PARAM_INT: i32 = 1;
pub const FI_PARAM_SIZE_T: i32 = 3;

// Error codes are the system's, and these of libfabric's own. Calls return them negated.
pub const FI_ENOENT: i32 = libc::ENOENT;
pub const FI_EIO: i32 = libc::EIO;
pub const FI_EAGAIN: i32 = libc::EAGAIN;
pub const FI_ENOMEM: i32 = libc::ENOMEM;
pub const FI_EACCES: i32 = libc::EACCES;
pub const FI_EBUSY: i32 = libc::EBUSY;
pub const FI_EINVAL: i32 = libc::EINVAL;
pub const FI_ENOSYS: i32 = libc::ENOSYS;
pub const FI_ENOMSG: i32 = libc::ENOMSG;
pub const FI_ENODATA: i32 = libc::ENODATA;
pub const FI_EMSGSIZE: i32 = libc::EMSGSIZE;
pub const FI_EOPNOTSUPP: i32 = libc::EOPNOTSUPP;
pub const FI_ENOPROTOOPT: i32 = libc::ENOPROTOOPT;
pub const FI_ETIMEDOUT: i32 = libc::ETIMEDOUT;
pub const FI_EHOSTUNREACH: i32 = libc::EHOSTUNREACH;
pub const FI_ECANCELED: i32 = libc::ECANCELED;
pub const FI_EOTHER: i32 = 256;
pub const FI_ETOOSMALL: i32 = 257;
pub const FI_EOPBADSTATE: i32 = 258;
pub const FI_EAVAIL: i32 = 259;
pub const FI_EBADFLAGS: i32 = 260;
pub const FI_ENOEQ: i32 = 261;
pub const FI_EDOMAIN: i32 = 262;
pub const FI_ENOCQ: i32 = 263;
pub const FI_ETRUNC: i32 = 265;
pub const FI_ENOKEY: i32 = 266;
pub const FI_ENOAV: i32 = 267;
