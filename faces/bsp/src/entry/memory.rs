//! Direct remote memory access: registrations, puts and gets.

use super::{Call, NEGATIVE, at, guarded, inside, no_process, process, too_much, wrong};
use crate::process::{Process, Wanted};
use crate::registry::RegistryError;
use std::ffi::{c_char, c_int, c_void};

/// What a put or get takes in check mode beside its record: the number of its place, as it is kept
/// and as it travels.
const CHECKED_BYTES: u64 = 8;

/// `bsp_push_reg`.
///
/// # Safety
/// `nbytes` from `addr` on are the program's while they are registered; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_push_reg_at(addr: *const c_void, nbytes: usize, place: *const c_char) {
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside("bsp_push_reg", place);
        if nbytes >= NEGATIVE {
            wrong(process, "bsp_push_reg", place, &format!("{} bytes are none", nbytes as isize));
        }
        if addr.is_null() && nbytes > 0 {
            wrong(
                process,
                "bsp_push_reg",
                place,
                &format!("there are no {nbytes} bytes at NULL: NULL is registered with 0 bytes"),
            );
        }
        process.registry.push(addr as usize, nbytes as u64, place);
    });
}

/// `bsp_pop_reg`.
///
/// # Safety
/// `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_pop_reg_at(addr: *const c_void, place: *const c_char) {
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside("bsp_pop_reg", place);
        if let Err(why) = process.registry.pop(addr as usize, place) {
            let what = match why {
                RegistryError::NullUnknown => "NULL is not registered".to_owned(),
                RegistryError::TakenBack => {
                    format!("{addr:p} is not registered once more: this superstep has taken all of it back already")
                }
                RegistryError::Inside(before) => {
                    format!(
                        "{addr:p} is not registered, but lies {before} bytes behind the beginning of memory that is"
                    )
                }
                RegistryError::Unknown | RegistryError::NotYet => format!("{addr:p} is not registered (any more)"),
            };
            wrong(process, "bsp_pop_reg", place, &what);
        }
    });
}

/// What a put or get names. (Passed by reference: copied from what the caller has just stored it
/// would be read in wider pieces than it was written, and waited for.)
#[derive(Clone, Copy)]
struct Range {
    pid: c_int,
    base: *const c_void,
    offset: usize,
    local: *const c_void,
    nbytes: usize,
}

/// The process and the area that are meant, or the end. `None`: there is nothing to do.
#[inline]
fn area(process: &mut Process, call: &Call, range: &Range) -> Option<(usize, u32)> {
    let to = range.pid as u32 as usize;
    if to >= process.nprocs() {
        no_process(process, *call, range.pid);
    }
    if range.nbytes == 0 {
        return None;
    }
    match process.area(range.base as usize, to, range.offset, range.nbytes) {
        Some(slot) if !range.local.is_null() => Some((to, slot)),
        slot => wrong_range(process, call, range, slot.is_some()),
    }
}

#[cold]
fn wrong_range(process: &mut Process, call: &Call, range: &Range, is_found: bool) -> ! {
    let Range { pid, base, offset, nbytes, .. } = *range;
    let what = if is_found {
        format!("the local memory is NULL, of {nbytes} bytes")
    } else {
        process.why_no_area(base as usize, pid as u32 as usize, offset, nbytes)
    };
    wrong(process, call.name, call.place, &what)
}

/// `bsp_put`.
///
/// # Safety
/// `src` is readable for `nbytes`; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_put_at(
    pid: c_int,
    src: *const c_void,
    dst: *mut c_void,
    offset: usize,
    nbytes: usize,
    place: *const c_char,
) {
    if nbytes != 8 {
        // SAFETY: the caller's.
        return unsafe { put_any(pid, src, dst, offset, nbytes, place) };
    }
    // SAFETY: readable (caller).
    let value = || unsafe { (!src.is_null()).then(|| value_at::<8>(src)) };
    if let Some(process) = process()
        && process.put_eight(pid as u32 as usize, dst as usize, offset, value)
    {
        return;
    }
    // SAFETY: the caller's.
    unsafe { put_eight(pid, src, dst, offset, nbytes, place) }
}

/// A put of eight bytes that is not put at a few looks, but mostly at a few more. (Apart, so that
/// those need no stack.)
///
/// # Safety
/// As [`bsp_put_at`], with `nbytes` 8.
#[inline(never)]
unsafe extern "C" fn put_eight(
    pid: c_int,
    src: *const c_void,
    dst: *mut c_void,
    offset: usize,
    nbytes: usize,
    place: *const c_char,
) {
    if !src.is_null()
        && let Some(process) = process()
        // SAFETY: readable (caller).
        && process.put_near(pid as u32 as usize, dst as usize, offset, 8, || unsafe { value_at::<8>(src) })
    {
        return;
    }
    // SAFETY: the caller's.
    unsafe { put_looking(pid, src, dst, offset, nbytes, place) }
}

/// # Safety
/// `src` is readable for `LEN` bytes, 8 at most.
#[inline]
unsafe fn value_at<const LEN: usize>(src: *const c_void) -> u64 {
    let mut word = [0; 8];
    // SAFETY: the caller's.
    word[..LEN].copy_from_slice(&unsafe { src.cast::<[u8; LEN]>().read() });
    u64::from_le_bytes(word)
}

/// Whether a put of so many bytes from there is a short one.
#[inline]
fn is_short(src: *const c_void, nbytes: usize) -> bool {
    matches!(nbytes, 1 | 2 | 4 | 8) && !src.is_null()
}

/// What it puts.
///
/// # Safety
/// It is one ([`is_short`]), and `src` is readable for so many bytes.
#[inline]
unsafe fn short_value(src: *const c_void, nbytes: usize) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        match nbytes {
            8 => value_at::<8>(src),
            4 => value_at::<4>(src),
            2 => value_at::<2>(src),
            _ => value_at::<1>(src),
        }
    }
}

/// A put of any other length.
///
/// # Safety
/// As [`bsp_put_at`].
#[inline(never)]
unsafe extern "C" fn put_any(
    pid: c_int,
    src: *const c_void,
    dst: *mut c_void,
    offset: usize,
    nbytes: usize,
    place: *const c_char,
) {
    if is_short(src, nbytes)
        && let Some(process) = process()
        // SAFETY: short, and readable (caller).
        && process.put_near(pid as u32 as usize, dst as usize, offset, nbytes, || unsafe { short_value(src, nbytes) })
    {
        return;
    }
    // SAFETY: the caller's.
    unsafe { put_looking(pid, src, dst, offset, nbytes, place) }
}

/// What takes more.
///
/// # Safety
/// As [`bsp_put_at`].
#[inline(never)]
unsafe extern "C" fn put_looking(
    pid: c_int,
    src: *const c_void,
    dst: *mut c_void,
    offset: usize,
    nbytes: usize,
    place: *const c_char,
) {
    // SAFETY: the caller's.
    unsafe {
        put(&Call { name: "bsp_put", place: at(place) }, &Range { pid, base: dst, offset, local: src, nbytes }, false)
    };
}

/// # Safety
/// As [`bsp_put_at`].
#[inline]
unsafe fn put(call: &Call, range: &Range, unbuffered: bool) {
    guarded(|| {
        let process = inside(call.name, call.place);
        let Some((to, slot)) = area(process, call, range) else { return };
        let (offset, len) = (range.offset as u64, range.nbytes);
        let alone = unbuffered && len >= process.settings.hp_bytes && to != process.pid;
        let more = if alone { 0 } else { len };
        if is_short(range.local, more)
            // SAFETY: short, and readable (caller).
            && process.put_short(to, range.base as usize, slot, range.offset, len, || unsafe { short_value(range.local, len) })
        {
            return;
        }
        process.pack(to);
        if !process.may_buffer(more) {
            too_much(process, call, more);
        }
        let out = &mut process.out[to];
        let before = out.puts.bytes().len();
        if let Some(places) = &mut out.places {
            places.put(call.place.text().unwrap_or(""), unbuffered);
            process.buffered += CHECKED_BYTES;
        }
        if alone {
            out.puts.apart(slot, offset, len as u64);
            out.puts_apart.push(Wanted { into: range.local.cast_mut().cast(), len });
            process.buffered += size_of::<Wanted>() as u64;
        } else {
            // SAFETY: readable (caller).
            out.puts.put(slot, offset, unsafe { std::slice::from_raw_parts(range.local.cast::<u8>(), len) });
        }
        process.buffered += (out.puts.bytes().len() - before) as u64;
    });
}

/// `bsp_hpput`.
///
/// # Safety
/// `src` is readable for `nbytes`, and stays as it is until the end of the superstep; `place` as
/// [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_hpput_at(
    pid: c_int,
    src: *const c_void,
    dst: *mut c_void,
    offset: usize,
    nbytes: usize,
    place: *const c_char,
) {
    // SAFETY: the caller's.
    unsafe {
        put(&Call { name: "bsp_hpput", place: at(place) }, &Range { pid, base: dst, offset, local: src, nbytes }, true)
    };
}

/// `bsp_get`.
///
/// # Safety
/// `dst` is writable for `nbytes` until the end of the superstep; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_get_at(
    pid: c_int,
    src: *const c_void,
    offset: usize,
    dst: *mut c_void,
    nbytes: usize,
    place: *const c_char,
) {
    // SAFETY: the caller's.
    unsafe {
        get(&Call { name: "bsp_get", place: at(place) }, &Range { pid, base: src, offset, local: dst, nbytes }, false)
    };
}

/// # Safety
/// As [`bsp_get_at`].
#[inline]
unsafe fn get(call: &Call, range: &Range, unbuffered: bool) {
    guarded(|| {
        let process = inside(call.name, call.place);
        let Some((from, slot)) = area(process, call, range) else { return };
        let (offset, len, into) = (range.offset as u64, range.nbytes, range.local.cast_mut().cast::<u8>());
        let alone = unbuffered && len >= process.settings.hp_bytes && from != process.pid;
        let answer = if alone { 0 } else { len };
        if !process.may_buffer(answer) {
            too_much(process, call, answer);
        }
        let out = &mut process.out[from];
        let before = out.gets.bytes().len();
        if let Some(places) = &mut out.places {
            places.get(call.place.text().unwrap_or(""), unbuffered);
            out.got.push(Wanted { into, len });
            process.buffered += CHECKED_BYTES + size_of::<Wanted>() as u64;
        }
        let continues = out.wanted.last().is_some_and(|w| w.into.wrapping_add(w.len) == into);
        if alone {
            out.gets.apart(slot, offset, len as u64);
            out.gets_apart.push(Wanted { into, len });
        } else if !out.gets.get(slot, offset, len as u64, continues) {
            out.wanted.push(Wanted { into, len });
        } else if let Some(last) = out.wanted.last_mut() {
            last.len += len;
        }
        let record = out.gets.bytes().len() - before;
        let place = if record > 0 { size_of::<Wanted>() } else { 0 };
        process.buffered += (answer + record + place) as u64;
    });
}

/// `bsp_hpget`.
///
/// # Safety
/// `dst` is writable for `nbytes` until the end of the superstep; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_hpget_at(
    pid: c_int,
    src: *const c_void,
    offset: usize,
    dst: *mut c_void,
    nbytes: usize,
    place: *const c_char,
) {
    // SAFETY: the caller's.
    unsafe {
        get(&Call { name: "bsp_hpget", place: at(place) }, &Range { pid, base: src, offset, local: dst, nbytes }, true)
    };
}
