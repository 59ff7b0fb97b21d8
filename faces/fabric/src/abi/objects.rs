//! Objects (`struct fid_*`) and their operation tables.
//!
//! An operation this face does not offer is [`refused`] for every signature: a C caller passes its
//! arguments in registers or on its own stack and removes them itself, so a callee that looks at
//! none of them may stand in for all, and the low half of its result is the `int` some of them
//! return.

use super::structs::*;
use crate::handle::Handle;
use libc::iovec;
use std::ffi::{c_char, c_int, c_void};

/// An operation that is not offered.
pub type Refused = unsafe extern "C" fn() -> isize;

/// Returns `-FI_ENOSYS`.
pub unsafe extern "C" fn refused() -> isize {
    -(super::FI_ENOSYS as isize)
}

/// `struct fid`: every object begins with one.
#[repr(C)]
pub struct Fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const FiOps,
}

/// `struct fi_ops`.
#[repr(C)]
pub struct FiOps {
    pub size: usize,
    pub close: unsafe extern "C" fn(Handle<Fid>) -> c_int,
    pub bind: unsafe extern "C" fn(Handle<Fid>, Handle<Fid>, u64) -> c_int,
    pub control: unsafe extern "C" fn(Handle<Fid>, c_int, *mut c_void) -> c_int,
    pub ops_open: Refused,
    pub tostr: Refused,
    pub ops_set: Refused,
}

/// A bind that no object of its class allows.
pub unsafe extern "C" fn no_bind(_: Handle<Fid>, _: Handle<Fid>, _: u64) -> c_int {
    -super::FI_ENOSYS
}

/// A control that knows no command.
pub unsafe extern "C" fn no_control(_: Handle<Fid>, _: c_int, _: *mut c_void) -> c_int {
    -super::FI_ENOSYS
}

/// `struct fid_fabric`.
#[repr(C)]
pub struct FidFabric {
    pub fid: Fid,
    pub ops: *const FiOpsFabric,
    pub api_version: u32,
}

/// `struct fi_ops_fabric`.
#[repr(C)]
pub struct FiOpsFabric {
    pub size: usize,
    pub domain: unsafe extern "C" fn(Handle<FidFabric>, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub passive_ep: Refused,
    pub eq_open: unsafe extern "C" fn(Handle<FidFabric>, *mut FiEqAttr, *mut *mut FidEq, *mut c_void) -> c_int,
    pub wait_open: Refused,
    pub trywait: unsafe extern "C" fn(Handle<FidFabric>, *mut Handle<Fid>, c_int) -> c_int,
    pub domain2: Refused,
}

/// `struct fid_domain`.
#[repr(C)]
pub struct FidDomain {
    pub fid: Fid,
    pub ops: *const FiOpsDomain,
    pub mr: *const FiOpsMr,
}

/// `struct fi_ops_domain`.
#[repr(C)]
pub struct FiOpsDomain {
    pub size: usize,
    pub av_open: unsafe extern "C" fn(Handle<FidDomain>, *mut FiAvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub cq_open: unsafe extern "C" fn(Handle<FidDomain>, *mut FiCqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub endpoint: unsafe extern "C" fn(Handle<FidDomain>, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int,
    pub scalable_ep: Refused,
    pub cntr_open: unsafe extern "C" fn(Handle<FidDomain>, *mut FiCntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int,
    pub poll_open: Refused,
    pub stx_ctx: Refused,
    pub srx_ctx: Refused,
    pub query_atomic: unsafe extern "C" fn(Handle<FidDomain>, c_int, c_int, *mut FiAtomicAttr, u64) -> c_int,
    pub query_collective: Refused,
    pub endpoint2: Refused,
}

/// `struct fi_ops_mr`.
#[repr(C)]
pub struct FiOpsMr {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        Handle<Fid>,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub regv: unsafe extern "C" fn(
        Handle<Fid>,
        *const iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub regattr: unsafe extern "C" fn(Handle<Fid>, *const FiMrAttr, u64, *mut *mut FidMr) -> c_int,
}

/// `struct fid_mr`.
#[repr(C)]
pub struct FidMr {
    pub fid: Fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// `struct fid_av`.
#[repr(C)]
pub struct FidAv {
    pub fid: Fid,
    pub ops: *const FiOpsAv,
}

/// `struct fi_ops_av`.
#[repr(C)]
pub struct FiOpsAv {
    pub size: usize,
    pub insert: unsafe extern "C" fn(Handle<FidAv>, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub insertsvc:
        unsafe extern "C" fn(Handle<FidAv>, *const c_char, *const c_char, *mut u64, u64, *mut c_void) -> c_int,
    pub insertsym: Refused,
    pub remove: unsafe extern "C" fn(Handle<FidAv>, *mut u64, usize, u64) -> c_int,
    pub lookup: unsafe extern "C" fn(Handle<FidAv>, u64, *mut c_void, *mut usize) -> c_int,
    pub straddr: unsafe extern "C" fn(Handle<FidAv>, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub av_set: Refused,
    pub insert_auth_key: Refused,
    pub lookup_auth_key: Refused,
    pub set_user_id: Refused,
}

/// `struct fid_eq`.
#[repr(C)]
pub struct FidEq {
    pub fid: Fid,
    pub ops: *const FiOpsEq,
}

/// `struct fi_ops_eq`.
#[repr(C)]
pub struct FiOpsEq {
    pub size: usize,
    pub read: unsafe extern "C" fn(Handle<FidEq>, *mut u32, *mut c_void, usize, u64) -> isize,
    pub readerr: unsafe extern "C" fn(Handle<FidEq>, *mut FiEqErrEntry, u64) -> isize,
    pub write: unsafe extern "C" fn(Handle<FidEq>, u32, *const c_void, usize, u64) -> isize,
    pub sread: unsafe extern "C" fn(Handle<FidEq>, *mut u32, *mut c_void, usize, c_int, u64) -> isize,
    pub strerror: unsafe extern "C" fn(Handle<FidEq>, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fid_cq`.
#[repr(C)]
pub struct FidCq {
    pub fid: Fid,
    pub ops: *const FiOpsCq,
}

/// `struct fi_ops_cq`.
#[repr(C)]
pub struct FiOpsCq {
    pub size: usize,
    pub read: unsafe extern "C" fn(Handle<FidCq>, *mut c_void, usize) -> isize,
    pub readfrom: unsafe extern "C" fn(Handle<FidCq>, *mut c_void, usize, *mut u64) -> isize,
    pub readerr: unsafe extern "C" fn(Handle<FidCq>, *mut FiCqErrEntry, u64) -> isize,
    pub sread: unsafe extern "C" fn(Handle<FidCq>, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub sreadfrom: unsafe extern "C" fn(Handle<FidCq>, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize,
    pub signal: unsafe extern "C" fn(Handle<FidCq>) -> c_int,
    pub strerror: unsafe extern "C" fn(Handle<FidCq>, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

/// `struct fid_cntr`.
#[repr(C)]
pub struct FidCntr {
    pub fid: Fid,
    pub ops: *const FiOpsCntr,
}

/// `struct fi_ops_cntr`.
#[repr(C)]
pub struct FiOpsCntr {
    pub size: usize,
    pub read: unsafe extern "C" fn(Handle<FidCntr>) -> u64,
    pub readerr: unsafe extern "C" fn(Handle<FidCntr>) -> u64,
    pub add: unsafe extern "C" fn(Handle<FidCntr>, u64) -> c_int,
    pub set: unsafe extern "C" fn(Handle<FidCntr>, u64) -> c_int,
    pub wait: unsafe extern "C" fn(Handle<FidCntr>, u64, c_int) -> c_int,
    pub adderr: unsafe extern "C" fn(Handle<FidCntr>, u64) -> c_int,
    pub seterr: unsafe extern "C" fn(Handle<FidCntr>, u64) -> c_int,
}

/// `struct fid_ep`.
#[repr(C)]
pub struct FidEp {
    pub fid: Fid,
    pub ops: *const FiOpsEp,
    pub cm: *const FiOpsCm,
    pub msg: *const FiOpsMsg,
    pub rma: *const FiOpsRma,
    pub tagged: *const FiOpsTagged,
    pub atomic: *const FiOpsAtomic,
    pub collective: *const FiOpsCollective,
}

/// `struct fi_ops_ep`.
#[repr(C)]
pub struct FiOpsEp {
    pub size: usize,
    pub cancel: unsafe extern "C" fn(Handle<Fid>, *mut c_void) -> isize,
    pub getopt: unsafe extern "C" fn(Handle<Fid>, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub setopt: unsafe extern "C" fn(Handle<Fid>, c_int, c_int, *const c_void, usize) -> c_int,
    pub tx_ctx: Refused,
    pub rx_ctx: Refused,
    pub rx_size_left: Refused,
    pub tx_size_left: Refused,
}

/// `struct fi_ops_cm`.
#[repr(C)]
pub struct FiOpsCm {
    pub size: usize,
    pub setname: Refused,
    pub getname: unsafe extern "C" fn(Handle<Fid>, *mut c_void, *mut usize) -> c_int,
    pub getpeer: Refused,
    pub connect: Refused,
    pub listen: Refused,
    pub accept: Refused,
    pub reject: Refused,
    pub shutdown: Refused,
    pub join: Refused,
}

/// `struct fi_ops_msg`.
#[repr(C)]
pub struct FiOpsMsg {
    pub size: usize,
    pub recv: unsafe extern "C" fn(Handle<FidEp>, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub recvv: unsafe extern "C" fn(Handle<FidEp>, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize,
    pub recvmsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsg, u64) -> isize,
    pub send: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub sendv: unsafe extern "C" fn(Handle<FidEp>, *const iovec, *mut *mut c_void, usize, u64, *mut c_void) -> isize,
    pub sendmsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsg, u64) -> isize,
    pub inject: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64) -> isize,
    pub senddata:
        unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize,
    pub injectdata: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64, u64) -> isize,
}

/// `struct fi_ops_tagged`.
#[repr(C)]
pub struct FiOpsTagged {
    pub size: usize,
    pub recv: unsafe extern "C" fn(Handle<FidEp>, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize,
    pub recvv:
        unsafe extern "C" fn(Handle<FidEp>, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize,
    pub recvmsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsgTagged, u64) -> isize,
    pub send: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, *mut c_void, u64, u64, *mut c_void) -> isize,
    pub sendv:
        unsafe extern "C" fn(Handle<FidEp>, *const iovec, *mut *mut c_void, usize, u64, u64, *mut c_void) -> isize,
    pub sendmsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsgTagged, u64) -> isize,
    pub inject: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64, u64) -> isize,
    pub senddata:
        unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize,
    pub injectdata: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64, u64, u64) -> isize,
}

/// `struct fi_ops_rma`.
#[repr(C)]
pub struct FiOpsRma {
    pub size: usize,
    pub read: unsafe extern "C" fn(Handle<FidEp>, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize,
    pub readv:
        unsafe extern "C" fn(Handle<FidEp>, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize,
    pub readmsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsgRma, u64) -> isize,
    pub write:
        unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize,
    pub writev:
        unsafe extern "C" fn(Handle<FidEp>, *const iovec, *mut *mut c_void, usize, u64, u64, u64, *mut c_void) -> isize,
    pub writemsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsgRma, u64) -> isize,
    pub inject: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64, u64, u64) -> isize,
    pub writedata: unsafe extern "C" fn(
        Handle<FidEp>,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        u64,
        *mut c_void,
    ) -> isize,
    pub injectdata: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64, u64, u64, u64) -> isize,
}

/// `struct fi_ops_atomic`. Data types and operations are C enumerations.
#[repr(C)]
pub struct FiOpsAtomic {
    pub size: usize,
    pub write: unsafe extern "C" fn(
        Handle<FidEp>,
        *const c_void,
        usize,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub writev: unsafe extern "C" fn(
        Handle<FidEp>,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub writemsg: unsafe extern "C" fn(Handle<FidEp>, *const FiMsgAtomic, u64) -> isize,
    pub inject: unsafe extern "C" fn(Handle<FidEp>, *const c_void, usize, u64, u64, u64, c_int, c_int) -> isize,
    pub readwrite: unsafe extern "C" fn(
        Handle<FidEp>,
        *const c_void,
        usize,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub readwritev: unsafe extern "C" fn(
        Handle<FidEp>,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub readwritemsg:
        unsafe extern "C" fn(Handle<FidEp>, *const FiMsgAtomic, *mut FiIoc, *mut *mut c_void, usize, u64) -> isize,
    pub compwrite: unsafe extern "C" fn(
        Handle<FidEp>,
        *const c_void,
        usize,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub compwritev: unsafe extern "C" fn(
        Handle<FidEp>,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
        u64,
        u64,
        c_int,
        c_int,
        *mut c_void,
    ) -> isize,
    pub compwritemsg: unsafe extern "C" fn(
        Handle<FidEp>,
        *const FiMsgAtomic,
        *const FiIoc,
        *mut *mut c_void,
        usize,
        *mut FiIoc,
        *mut *mut c_void,
        usize,
        u64,
    ) -> isize,
    pub writevalid: unsafe extern "C" fn(Handle<FidEp>, c_int, c_int, *mut usize) -> c_int,
    pub readwritevalid: unsafe extern "C" fn(Handle<FidEp>, c_int, c_int, *mut usize) -> c_int,
    pub compwritevalid: unsafe extern "C" fn(Handle<FidEp>, c_int, c_int, *mut usize) -> c_int,
}

/// `struct fi_ops_collective`: none of it is offered. `fi_barrier` and its kin call through the
/// table without a look whether there is one.
#[repr(C)]
pub struct FiOpsCollective {
    pub size: usize,
    pub ops: [Refused; 11],
}
