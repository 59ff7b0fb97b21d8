//! Posts.

use super::{int, put};
use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::instance::{Instance, instance};
use crate::library::Wanted;
use crate::ops::OpKey;
use crate::tables::Posted;
use std::ffi::{c_int, c_void};
use weir_engine::Iov;

/// Pieces of a list (P9).
const PIECES_MAX: c_int = 1 << 20;

/// What is common to all posts.
struct Common {
    addr: i64,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    unexpected: Option<u8>,
    is_recv: bool,
    user_ptr: *mut c_void,
    context: i64,
}

/// A list as the program gives it.
struct List {
    buffers: *const *mut c_void,
    sizes: *const i64,
    count: c_int,
}

/// One piece of memory.
fn piece(buffer: *mut c_void, size: i64) -> Result<Iov, Code> {
    let len = usize::try_from(size).map_err(|_| Code::EINVAL)?;
    if buffer.is_null() && len > 0 {
        return Err(Code::EINVAL);
    }
    Ok(Iov { base: buffer.cast(), len })
}

/// The pieces of a list, without empty ones.
///
/// # Safety
/// The arrays are null, or readable for `count` entries.
unsafe fn pieces(list: &List, total: i64) -> Result<Vec<Iov>, Code> {
    let count = usize::try_from(list.count).map_err(|_| Code::EINVAL)?;
    if list.count > PIECES_MAX {
        return Err(Code::EMSGSIZE);
    }
    if count > 0 && (list.buffers.is_null() || list.sizes.is_null()) {
        return Err(Code::EINVAL);
    }
    let (mut all, mut sum): (Vec<Iov>, i64) = (Vec::with_capacity(count.min(1024)), 0);
    for i in 0..count {
        // SAFETY: readable for `count` entries (caller).
        let (buffer, size) = unsafe { (*list.buffers.add(i), *list.sizes.add(i)) };
        let next = piece(buffer, size)?;
        sum = sum.checked_add(size).ok_or(Code::EINVAL)?;
        match all.last_mut() {
            _ if next.len == 0 => {}
            // Those that follow each other in memory are one.
            Some(last) if last.base.wrapping_add(last.len) == next.base => last.len += next.len,
            _ => all.push(next),
        }
    }
    if sum != total {
        return Err(Code::EINVAL);
    }
    Ok(all)
}

/// Posts.
///
/// # Safety
/// `id` and `actual_size` are null or writable; the memory of the pieces is the library's until the
/// operation's end is told.
unsafe fn post(
    instance: Instance,
    (id, actual_size): (*mut i64, *mut i64),
    common: &Common,
    pieces: &[Iov],
) -> Result<c_int, Code> {
    let size = u64::try_from(common.size).map_err(|_| Code::EINVAL)?;
    if !matches!(common.buffer_type, 1 | 2) || id.is_null() {
        return Err(Code::EINVAL);
    }
    let (posted, key): (Posted, OpKey) = instance.within(|library| {
        library.post(&Wanted {
            addr: AddrKey::from_id(common.addr),
            tag: common.tag,
            unexpected: common.unexpected,
            pieces,
            size,
            is_recv: common.is_recv,
            user_ptr: common.user_ptr as usize,
            context: common.context,
        })
    })?;
    // SAFETY: writable or null (caller).
    unsafe {
        match posted {
            Posted::Done(bytes) => {
                put(actual_size, bytes as i64);
                Ok(1)
            }
            Posted::Begun => {
                put(id, key.to_id());
                Ok(0)
            }
        }
    }
}

/// Nothing is posted yet: so it is said before anything can be refused (P1).
///
/// # Safety
/// As [`post`].
unsafe fn none_yet(id: *mut i64, actual_size: *mut i64) {
    // SAFETY: writable or null (caller).
    unsafe {
        put(id, 0);
        put(actual_size, 0);
    }
}

/// Posts one piece.
///
/// # Safety
/// As [`post`].
unsafe fn one(id: *mut i64, actual_size: *mut i64, common: &Common, buffer: *mut c_void) -> c_int {
    int(|| {
        // SAFETY: passed on from the caller.
        unsafe { none_yet(id, actual_size) };
        let instance = instance()?;
        let piece = piece(buffer, common.size)?;
        let pieces = if piece.len == 0 { &[][..] } else { &[piece] };
        // SAFETY: passed on from the caller.
        unsafe { post(instance, (id, actual_size), common, pieces) }
    })
}

/// Posts a list.
///
/// # Safety
/// As [`post`] and [`pieces`].
unsafe fn many(id: *mut i64, actual_size: *mut i64, common: &Common, list: &List) -> c_int {
    int(|| {
        // SAFETY: passed on from the caller.
        unsafe { none_yet(id, actual_size) };
        let instance = instance()?;
        // SAFETY: passed on from the caller.
        unsafe {
            let pieces = pieces(list, common.size)?;
            post(instance, (id, actual_size), common, &pieces)
        }
    })
}

/// `BMI_post_send`.
///
/// # Safety
/// `id` is null or writable. The memory is readable, and stays so and unchanged until the
/// operation's end is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_send(
    id: *mut i64,
    addr: i64,
    buffer: *const c_void,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: None, is_recv: false, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { one(id, std::ptr::null_mut(), &common, buffer.cast_mut()) }
}

/// `BMI_post_recv`.
///
/// # Safety
/// `id` and `actual_size` are null or writable. The memory is writable and not otherwise used until
/// the operation's end is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_recv(
    id: *mut i64,
    addr: i64,
    buffer: *mut c_void,
    size: i64,
    actual_size: *mut i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: None, is_recv: true, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { one(id, actual_size, &common, buffer) }
}

/// `BMI_post_sendunexpected`.
///
/// # Safety
/// As [`BMI_post_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_sendunexpected(
    id: *mut i64,
    addr: i64,
    buffer: *const c_void,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: Some(0), is_recv: false, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { one(id, std::ptr::null_mut(), &common, buffer.cast_mut()) }
}

/// `BMI_post_sendunexpected_class`.
///
/// # Safety
/// As [`BMI_post_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_sendunexpected_class(
    id: *mut i64,
    addr: i64,
    buffer: *const c_void,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    class: u8,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: Some(class), is_recv: false, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { one(id, std::ptr::null_mut(), &common, buffer.cast_mut()) }
}

/// `BMI_post_send_list`.
///
/// # Safety
/// As [`BMI_post_send`]; the arrays are null or readable for `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_send_list(
    id: *mut i64,
    addr: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: None, is_recv: false, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { many(id, std::ptr::null_mut(), &common, &List { buffers: buffers.cast(), sizes, count }) }
}

/// `BMI_post_recv_list`.
///
/// # Safety
/// As [`BMI_post_recv`]; the arrays are null or readable for `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_recv_list(
    id: *mut i64,
    addr: i64,
    buffers: *const *mut c_void,
    sizes: *const i64,
    count: c_int,
    size: i64,
    actual_size: *mut i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: None, is_recv: true, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { many(id, actual_size, &common, &List { buffers, sizes, count }) }
}

/// `BMI_post_sendunexpected_list`.
///
/// # Safety
/// As [`BMI_post_send_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_sendunexpected_list(
    id: *mut i64,
    addr: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: Some(0), is_recv: false, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { many(id, std::ptr::null_mut(), &common, &List { buffers: buffers.cast(), sizes, count }) }
}

/// `BMI_post_sendunexpected_list_class`.
///
/// # Safety
/// As [`BMI_post_send_list`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_post_sendunexpected_list_class(
    id: *mut i64,
    addr: i64,
    buffers: *const *const c_void,
    sizes: *const i64,
    count: c_int,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    class: u8,
    user_ptr: *mut c_void,
    context: i64,
    _hints: *mut c_void,
) -> c_int {
    let common = Common { addr, size, buffer_type, tag, unexpected: Some(class), is_recv: false, user_ptr, context };
    // SAFETY: passed on from the caller.
    unsafe { many(id, std::ptr::null_mut(), &common, &List { buffers: buffers.cast(), sizes, count }) }
}
