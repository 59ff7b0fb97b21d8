//! Tests and cancelling.

use super::{int, put};
use crate::codes::Code;
use crate::instance::{Instance, instance, within};
use crate::library::{Library, Unexpected};
use crate::ops::{CONTEXTS_MAX, Ended, OpKey, Opened, Ops};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// `struct BMI_unexpected_info`.
#[repr(C)]
pub struct UnexpectedInfo {
    error_code: i32,
    addr: i64,
    buffer: *mut c_void,
    size: i64,
    tag: i32,
}

/// Where completions are told.
struct Out {
    ids: *mut i64,
    indices: *mut c_int,
    errors: *mut i32,
    sizes: *mut i64,
    user_ptrs: *mut *mut c_void,
}

impl Out {
    /// Tells one, as entry `at`.
    ///
    /// # Safety
    /// The arrays are null or writable at `at`.
    unsafe fn tell(&self, at: usize, index: usize, ended: &Ended) {
        let place = |array: *mut i64| if array.is_null() { array } else { array.wrapping_add(at) };
        // SAFETY: null or writable at `at` (caller).
        unsafe {
            put(place(self.ids), ended.key.to_id());
            put(place(self.sizes), ended.size as i64);
            if !self.indices.is_null() {
                put(self.indices.add(at), index as c_int);
            }
            if !self.errors.is_null() {
                put(self.errors.add(at), ended.error);
            }
            if !self.user_ptrs.is_null() {
                put(self.user_ptrs.add(at), ended.user_ptr as *mut c_void);
            }
        }
    }
}

fn idle(ms: c_int) -> Result<Duration, Code> {
    u64::try_from(ms).map(Duration::from_millis).map_err(|_| Code::EINVAL)
}

/// A thread of a program may look after requests and completions both (W4).
fn ends_early(library: &Library) -> bool {
    library.check_unexpected && library.t.inbox.is_wanted()
}

/// Waits for completions, of which `collect` tells what there is. How many it has told.
fn wait_for(
    instance: Instance,
    ms: c_int,
    mut collect: impl FnMut(&mut Library) -> Result<usize, Code>,
) -> Result<usize, Code> {
    let idle = idle(ms)?;
    let mut looks = 0;
    let found = instance.wait(idle, |library| {
        looks += 1;
        if looks == 1 && idle.is_zero() {
            library.t.ops.hold_back();
        }
        let count = collect(library);
        if looks > 1 || !matches!(count, Ok(0)) {
            library.t.ops.let_go();
        }
        let count = count?;
        library.hands_out(count);
        // Progress comes between the first look and the second.
        let over = count > 0 || (looks > 1 && ends_early(library));
        Ok(over.then_some(count))
    })?;
    Ok(found.unwrap_or(0))
}

/// The context of a test, which looks at it again after each sleep: one that was closed meanwhile
/// is not the next of its number (W3).
struct Of {
    id: i64,
    first: Option<Opened>,
}

impl Of {
    fn new(id: i64) -> Of {
        Of { id, first: None }
    }

    fn context(&mut self, ops: &Ops) -> Result<usize, Code> {
        let now = ops.opened(self.id).ok_or(Code::EINVAL)?;
        if *self.first.get_or_insert(now) == now { Ok(now.context) } else { Err(Code::EINVAL) }
    }
}

/// How many there are, and whether there are any.
///
/// # Safety
/// `outcount` is null or writable.
unsafe fn say(count: usize, outcount: *mut c_int) -> c_int {
    // SAFETY: writable (caller).
    unsafe { put(outcount, count as c_int) };
    c_int::from(count > 0)
}

/// `BMI_test`.
///
/// # Safety
/// The places are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_test(
    id: i64,
    outcount: *mut c_int,
    error_code: *mut i32,
    actual_size: *mut i64,
    user_ptr: *mut *mut c_void,
    max_idle_time_ms: c_int,
    context: i64,
) -> c_int {
    int(|| {
        let instance = instance()?;
        if outcount.is_null() || error_code.is_null() {
            return Err(Code::EINVAL);
        }
        // SAFETY: writable (caller), and not null.
        unsafe { put(outcount, 0) };
        let (key, mut of) = (OpKey::from_id(id), Of::new(context));
        let null = std::ptr::null_mut();
        let out = Out { ids: null, indices: null.cast(), errors: error_code, sizes: actual_size, user_ptrs: user_ptr };
        let count = wait_for(instance, max_idle_time_ms, |library| {
            let context = of.context(&library.t.ops)?;
            library.t.ops.get(key).filter(|op| op.context == context).ok_or(Code::EINVAL)?;
            let Some(ended) = library.t.ops.collect(key) else { return Ok(0) };
            // SAFETY: places for one (caller).
            unsafe { out.tell(0, 0, &ended) };
            Ok(1)
        })?;
        // SAFETY: writable (caller).
        Ok(unsafe { say(count, outcount) })
    })
}

/// `BMI_testsome`.
///
/// # Safety
/// `id_array` is readable, the other arrays are null or writable, for `incount` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_testsome(
    incount: c_int,
    id_array: *mut i64,
    outcount: *mut c_int,
    index_array: *mut c_int,
    error_code_array: *mut i32,
    actual_size_array: *mut i64,
    user_ptr_array: *mut *mut c_void,
    max_idle_time_ms: c_int,
    context: i64,
) -> c_int {
    int(|| {
        let instance = instance()?;
        let count = usize::try_from(incount).map_err(|_| Code::EINVAL)?;
        let lacks = id_array.is_null() || index_array.is_null() || error_code_array.is_null();
        if outcount.is_null() || (lacks && count > 0) {
            return Err(Code::EINVAL);
        }
        // SAFETY: writable (caller), and not null.
        unsafe { put(outcount, 0) };
        // SAFETY: readable for `incount` entries (caller); an empty list is not looked at.
        let ids = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(id_array, count) } };
        let (mut checked, mut of) = (false, Of::new(context));
        let out = Out {
            ids: std::ptr::null_mut(),
            indices: index_array,
            errors: error_code_array,
            sizes: actual_size_array,
            user_ptrs: user_ptr_array,
        };
        let count = wait_for(instance, max_idle_time_ms, |library| {
            let context = of.context(&library.t.ops)?;
            let named = || ids.iter().enumerate().filter(|(_, id)| **id != 0).map(|(i, id)| (i, OpKey::from_id(*id)));
            if !std::mem::replace(&mut checked, true)
                && named().any(|(_, key)| library.t.ops.get(key).is_none_or(|op| op.context != context))
            {
                return Err(Code::EINVAL);
            }
            let mut told = 0;
            for (i, key) in named() {
                if let Some(ended) = library.t.ops.collect(key) {
                    // SAFETY: places for `incount` entries (caller), of which each is told once.
                    unsafe { out.tell(told, i, &ended) };
                    told += 1;
                }
            }
            Ok(told)
        })?;
        // SAFETY: writable (caller).
        Ok(unsafe { say(count, outcount) })
    })
}

/// Completions of some contexts, oldest of each in turn.
///
/// # Safety
/// The arrays are null or writable for `incount` entries.
unsafe fn of_contexts(
    incount: c_int,
    out: &Out,
    outcount: *mut c_int,
    ms: c_int,
    context: Option<i64>,
) -> Result<c_int, Code> {
    let instance = instance()?;
    let count = usize::try_from(incount).map_err(|_| Code::EINVAL)?;
    if outcount.is_null() || ((out.ids.is_null() || out.errors.is_null()) && count > 0) {
        return Err(Code::EINVAL);
    }
    // SAFETY: writable (caller), and not null.
    unsafe { put(outcount, 0) };
    let mut of = context.map(Of::new);
    let told = wait_for(instance, ms, |library| {
        let ops = &mut library.t.ops;
        let contexts = match &mut of {
            Some(of) => {
                let context = of.context(ops)?;
                context..context + 1
            }
            None => 0..CONTEXTS_MAX,
        };
        let mut told = 0;
        loop {
            let before = told;
            for context in contexts.clone() {
                if told < count
                    && let Some(ended) = ops.collect_any(context)
                {
                    // SAFETY: places for `incount` entries (caller), and no more are told.
                    unsafe { out.tell(told, 0, &ended) };
                    told += 1;
                }
            }
            if told == before {
                return Ok(told);
            }
        }
    })?;
    // SAFETY: writable (caller).
    Ok(unsafe { say(told, outcount) })
}

/// `BMI_testcontext`.
///
/// # Safety
/// The arrays are null or writable for `incount` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_testcontext(
    incount: c_int,
    out_id_array: *mut i64,
    outcount: *mut c_int,
    error_code_array: *mut i32,
    actual_size_array: *mut i64,
    user_ptr_array: *mut *mut c_void,
    max_idle_time_ms: c_int,
    context: i64,
) -> c_int {
    let out = Out {
        ids: out_id_array,
        indices: std::ptr::null_mut(),
        errors: error_code_array,
        sizes: actual_size_array,
        user_ptrs: user_ptr_array,
    };
    // SAFETY: passed on from the caller.
    int(|| unsafe { of_contexts(incount, &out, outcount, max_idle_time_ms, Some(context)) })
}

/// `BMI_testglobal` (W6).
///
/// # Safety
/// As [`BMI_testcontext`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_testglobal(
    incount: c_int,
    out_id_array: *mut i64,
    outcount: *mut c_int,
    error_code_array: *mut i32,
    actual_size_array: *mut i64,
    user_ptr_array: *mut *mut c_void,
    max_idle_time_ms: c_int,
) -> c_int {
    let out = Out {
        ids: out_id_array,
        indices: std::ptr::null_mut(),
        errors: error_code_array,
        sizes: actual_size_array,
        user_ptrs: user_ptr_array,
    };
    // SAFETY: passed on from the caller.
    int(|| unsafe { of_contexts(incount, &out, outcount, max_idle_time_ms, None) })
}

/// `BMI_testunexpected`.
///
/// # Safety
/// `outcount` is null or writable, `info_array` null or writable for `incount` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_testunexpected(
    incount: c_int,
    outcount: *mut c_int,
    info_array: *mut UnexpectedInfo,
    max_idle_time_ms: c_int,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { BMI_testunexpected_class(incount, outcount, info_array, 0, max_idle_time_ms) }
}

/// `BMI_testunexpected_class`.
///
/// # Safety
/// As [`BMI_testunexpected`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_testunexpected_class(
    incount: c_int,
    outcount: *mut c_int,
    info_array: *mut UnexpectedInfo,
    class: u8,
    max_idle_time_ms: c_int,
) -> c_int {
    int(|| {
        let instance = instance()?;
        let count = usize::try_from(incount).map_err(|_| Code::EINVAL)?;
        if outcount.is_null() || (info_array.is_null() && count > 0) {
            return Err(Code::EINVAL);
        }
        // SAFETY: writable (caller), and not null.
        unsafe { put(outcount, 0) };
        let idle = idle(max_idle_time_ms)?;
        let tell = |at: usize, message: &Unexpected| {
            let info = UnexpectedInfo {
                error_code: 0,
                addr: message.addr.to_id(),
                buffer: message.buffer.cast(),
                size: message.size as i64,
                tag: message.tag,
            };
            // SAFETY: writable for `incount` entries (caller), and no more are taken.
            unsafe { put(info_array.add(at), info) };
        };
        let found = instance.wait(idle, |library| {
            let told = library.take_unexpected(class, count, tell);
            Ok((told > 0).then_some(told))
        })?;
        // SAFETY: writable (caller), and not null.
        Ok(unsafe { say(found.unwrap_or(0), outcount) })
    })
}

/// `BMI_cancel`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_cancel(id: i64, context: i64) -> c_int {
    int(|| within(|library| library.cancel(OpKey::from_id(id), context, Code::ECANCEL).map(|()| 0)))
}

/// `BMI_unpost` (W6).
#[unsafe(no_mangle)]
pub extern "C" fn BMI_unpost(id: i64, context: i64) -> c_int {
    BMI_cancel(id, context)
}
