//! Lists of operations, first in, first out, linked through the operations themselves (S1). Whoever
//! uses one locks it.

use super::{MethodAddr, MethodOp, QlistHead, weir_bmi_dealloc_method_op, weir_bmi_gossip_text};
use crate::entry::guard;
use std::ffi::{CString, c_char, c_int};
use std::mem::offset_of;
use std::ptr::null_mut;

/// `struct op_list_search_key`.
#[repr(C)]
#[derive(Debug)]
pub struct SearchKey {
    method_addr: *mut MethodAddr,
    method_addr_yes: c_int,
    msg_tag: i32,
    msg_tag_yes: c_int,
    op_id: i64,
    op_id_yes: c_int,
    class: u8,
    class_yes: c_int,
}

impl SearchKey {
    fn agrees(&self, op: &MethodOp) -> bool {
        (self.method_addr_yes == 0 || self.method_addr == op.addr)
            && (self.msg_tag_yes == 0 || self.msg_tag == op.msg_tag)
            && (self.op_id_yes == 0 || self.op_id == op.op_id)
            && (self.class_yes == 0 || self.class == op.class)
    }
}

/// The operations of a list, oldest first. One may be removed once the next has been asked for.
///
/// # Safety
/// Null, or a list all of whose operations live.
unsafe fn operations(list: *mut QlistHead) -> impl Iterator<Item = *mut MethodOp> {
    // SAFETY: null or a list (caller).
    let mut next = unsafe { list.as_ref() }.map_or(list, |head| head.next);
    std::iter::from_fn(move || {
        (next != list).then(|| {
            let link = next;
            // SAFETY: a link of the list that is not its head is in an operation, which lives
            // (caller).
            next = unsafe { (*link).next };
            link.wrapping_byte_sub(offset_of!(MethodOp, op_list_entry)).cast()
        })
    })
}

/// `op_list_new`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_op_list_new() -> *mut QlistHead {
    // SAFETY: plain allocation.
    let list: *mut QlistHead = unsafe { libc::calloc(1, size_of::<QlistHead>()) }.cast();
    if !list.is_null() {
        // SAFETY: just made, for this.
        unsafe { list.write(QlistHead { next: list, prev: list }) };
    }
    list
}

/// `op_list_add`: at the end.
///
/// # Safety
/// Null, or a list and an operation that is in none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_add(list: *mut QlistHead, op: *mut MethodOp) {
    if list.is_null() || op.is_null() {
        return;
    }
    // SAFETY: both live, as do the links of the list (caller).
    unsafe {
        let (link, last) = (&raw mut (*op).op_list_entry, (*list).prev);
        link.write(QlistHead { next: list, prev: last });
        (*last).next = link;
        (*list).prev = link;
    }
}

/// `op_list_remove`: out of whichever list it is in.
///
/// # Safety
/// Null, or an operation that lives, as do those beside it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_remove(op: *mut MethodOp) {
    // SAFETY: null or an operation (caller).
    let Some(op) = (unsafe { op.as_mut() }) else { return };
    let QlistHead { next, prev } =
        std::mem::replace(&mut op.op_list_entry, QlistHead { next: null_mut(), prev: null_mut() });
    if !next.is_null() && !prev.is_null() {
        // SAFETY: the links beside it live (caller).
        unsafe {
            (*next).prev = prev;
            (*prev).next = next;
        }
    }
}

/// `op_list_search`: the oldest that agrees.
///
/// # Safety
/// A list or null, a key or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_search(list: *mut QlistHead, key: *const SearchKey) -> *mut MethodOp {
    // SAFETY: null or a key, and a list (caller); its operations live.
    unsafe {
        let Some(key) = key.as_ref() else { return null_mut() };
        operations(list).find(|op| key.agrees(&**op)).unwrap_or(null_mut())
    }
}

/// `op_list_shownext`: the oldest.
///
/// # Safety
/// A list or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_shownext(list: *mut QlistHead) -> *mut MethodOp {
    // SAFETY: as demanded.
    unsafe { operations(list) }.next().unwrap_or(null_mut())
}

/// `op_list_empty`.
///
/// # Safety
/// A list or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_empty(list: *mut QlistHead) -> c_int {
    // SAFETY: as demanded.
    c_int::from(unsafe { operations(list) }.next().is_none())
}

/// `op_list_count`.
///
/// # Safety
/// A list or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_count(list: *mut QlistHead) -> c_int {
    // SAFETY: as demanded.
    c_int::try_from(unsafe { operations(list) }.count()).unwrap_or(c_int::MAX)
}

/// `op_list_cleanup`: frees it, and its operations.
///
/// # Safety
/// A list or null, which nobody uses any more, nor its operations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_cleanup(list: *mut QlistHead) {
    // SAFETY: as demanded; each is freed after the next was looked up.
    unsafe {
        for op in operations(list) {
            weir_bmi_dealloc_method_op(op);
        }
        libc::free(list.cast());
    }
}

/// `op_list_dump`: a line for each, to the log.
///
/// # Safety
/// A list or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_op_list_dump(list: *mut QlistHead) {
    guard((), || {
        // SAFETY: as demanded.
        for op in unsafe { operations(list) } {
            // SAFETY: it lives (caller).
            let op = unsafe { &*op };
            let kind = if op.send_recv == 1 { "send" } else { "receive" };
            let line = format!(
                "operation {:#x}: {kind}, tag {}, {} of {} bytes (at most {}), error {}\n",
                op.op_id, op.msg_tag, op.amt_complete, op.actual_size, op.expected_size, op.error_code
            );
            if let Ok(line) = CString::new(line) {
                // SAFETY: a C string.
                unsafe { weir_bmi_gossip_text(b'E' as c_char, line.as_ptr()) };
            }
        }
    });
}
