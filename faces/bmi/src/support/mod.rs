//! What modules are made of, under the names of the originals (`include/bmi-support.h`, spec/bmi.md
//! 14): allocators, operation lists, ids, logging.

mod gossip;
mod ids;
mod lists;

pub use gossip::*;
pub use ids::*;
pub use lists::*;

use crate::entry::guard;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// What a payload is aligned to, bytes: as much as malloc's memory.
const ALIGN: usize = 16;

/// `struct qlist_head`.
#[repr(C)]
#[derive(Debug)]
pub struct QlistHead {
    next: *mut QlistHead,
    prev: *mut QlistHead,
}

/// `struct bmi_method_addr`.
#[repr(C)]
#[derive(Debug)]
pub struct MethodAddr {
    method_type: c_int,
    ref_count: c_int,
    method_data: *mut c_void,
    parent: *mut c_void,
    primary: *mut MethodAddr,
    secondary: *mut MethodAddr,
}

/// `struct method_op`.
#[repr(C)]
#[derive(Debug)]
pub struct MethodOp {
    op_id: i64,
    send_recv: c_int,
    user_ptr: *mut c_void,
    msg_tag: i32,
    class: u8,
    error_code: i32,
    amt_complete: i64,
    env_amt_complete: i64,
    buffer: *mut c_void,
    actual_size: i64,
    expected_size: i64,
    addr: *mut MethodAddr,
    mode: c_int,
    context_id: i64,
    op_list_entry: QlistHead,
    hash_link: QlistHead,
    method_data: *mut c_void,
    buffer_list: *const *mut c_void,
    size_list: *const i64,
    list_count: c_int,
    list_index: c_int,
    cur_index_complete: i64,
    event_id: i64,
}

/// A structure with a payload behind it, zeroed, and where the payload is. Null when there is no
/// memory.
fn with_payload<T>(payload: i64) -> (*mut T, *mut c_void) {
    let head = size_of::<T>().next_multiple_of(ALIGN);
    let all = usize::try_from(payload).ok().and_then(|payload| payload.checked_add(head));
    // SAFETY: plain allocation.
    let base = all.map_or(null_mut(), |all| unsafe { libc::calloc(1, all) });
    let behind = if base.is_null() || payload == 0 { null_mut() } else { base.wrapping_byte_add(head) };
    (base.cast(), behind)
}

/// `bmi_alloc_method_op` (S2).
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_alloc_method_op(payload: i64) -> *mut MethodOp {
    guard(null_mut(), || {
        let (op, method_data) = with_payload::<MethodOp>(payload);
        if !op.is_null() {
            // SAFETY: just made, for all of it; zeroes are a value of it.
            let op = unsafe { &mut *op };
            op.method_data = method_data;
            op.op_id = ids::register(std::ptr::from_mut(op).cast());
        }
        op
    })
}

/// `bmi_dealloc_method_op`.
///
/// # Safety
/// Null, or of [`weir_bmi_alloc_method_op`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_dealloc_method_op(op: *mut MethodOp) {
    guard((), || {
        // SAFETY: null or an operation (caller).
        if let Some(op) = unsafe { op.as_ref() } {
            ids::unregister(op.op_id);
        }
        // SAFETY: of calloc, or null (caller).
        unsafe { libc::free(op.cast()) };
    });
}

/// `bmi_alloc_method_addr`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_alloc_method_addr(method_type: c_int, payload: i64) -> *mut MethodAddr {
    guard(null_mut(), || {
        let (addr, method_data) = with_payload::<MethodAddr>(payload);
        // SAFETY: null, or just made; zeroes are a value of it.
        if let Some(addr) = unsafe { addr.as_mut() } {
            (addr.method_type, addr.ref_count, addr.method_data) = (method_type, 1, method_data);
        }
        addr
    })
}

/// `bmi_dealloc_method_addr`.
///
/// # Safety
/// Null, or of [`weir_bmi_alloc_method_addr`] and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_dealloc_method_addr(addr: *mut MethodAddr) {
    // SAFETY: of calloc, or null (caller).
    unsafe { libc::free(addr.cast()) };
}
