//! Bulk synchronous message passing: tags, sends and the queue.

use super::{Call, NEGATIVE, at, guarded, inside, no_process, too_much, wrong};
use crate::place::Place;
use crate::process::Process;
use std::ffi::{c_char, c_int, c_void};

/// Writes a number to an integer of a program's; `None`: it does not fit.
///
/// # Safety
/// `to` is null or writable for an integer of this kind.
unsafe fn write_integer(to: *mut c_void, kind: c_int, value: i64) -> Option<()> {
    if to.is_null() {
        return Some(());
    }
    // SAFETY: the caller's. -1 is what an unsigned one holds as its greatest value.
    unsafe {
        match kind {
            -4 => to.cast::<i32>().write_unaligned(i32::try_from(value).ok()?),
            4 if value < 0 => to.cast::<u32>().write_unaligned(u32::MAX),
            4 => to.cast::<u32>().write_unaligned(u32::try_from(value).ok()?),
            8 | -8 => to.cast::<i64>().write_unaligned(value),
            _ => {}
        }
    }
    Some(())
}

/// Reads one.
///
/// # Safety
/// `from` is readable for an integer of this kind.
unsafe fn read_integer(from: *const c_void, kind: c_int) -> Option<i64> {
    // SAFETY: the caller's.
    unsafe {
        match kind {
            -4 => Some(i64::from(from.cast::<i32>().read_unaligned())),
            4 => Some(i64::from(from.cast::<u32>().read_unaligned())),
            8 | -8 => Some(from.cast::<i64>().read_unaligned()),
            _ => None,
        }
    }
}

#[cold]
fn does_not_fit(process: &mut Process, name: &str, place: Place, value: u64) -> ! {
    wrong(process, name, place, &format!("{value} does not fit into the program's integer: give a size_t"))
}

/// Longest tag, bytes.
const TAG_MAX: i64 = 1 << 24;

/// `bsp_set_tagsize`.
///
/// # Safety
/// `tag_nbytes` is an integer of this kind; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_set_tagsize_at(tag_nbytes: *mut c_void, kind: c_int, place: *const c_char) {
    const NAME: &str = "bsp_set_tagsize";
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside(NAME, place);
        // SAFETY: looked at if it is not null; the caller's.
        let asked = if tag_nbytes.is_null() { None } else { unsafe { read_integer(tag_nbytes, kind) } };
        let Some(asked) = asked else { wrong(process, NAME, place, "there is no size: the pointer is NULL") };
        if !(0..=TAG_MAX).contains(&asked) {
            wrong(process, NAME, place, &format!("a tag has 0 to {TAG_MAX} bytes, not {asked}"));
        }
        let before = std::mem::replace(&mut process.tags[2], asked as usize);
        process.registry.tag_size(asked as u64, place);
        // SAFETY: the caller's.
        if unsafe { write_integer(tag_nbytes, kind, before as i64) }.is_none() {
            does_not_fit(process, NAME, place, before as u64);
        }
    });
}

/// `bsp_send`.
///
/// # Safety
/// `payload` is readable for `nbytes`, `tag` for the size of tags; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_send_at(
    pid: c_int,
    tag: *const c_void,
    payload: *const c_void,
    nbytes: usize,
    place: *const c_char,
) {
    const NAME: &str = "bsp_send";
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside(NAME, place);
        let (to, tag_bytes) = (pid as u32 as usize, process.tags[1]);
        if to >= process.nprocs() {
            no_process(process, Call { name: NAME, place }, pid);
        }
        if nbytes >= NEGATIVE {
            wrong(process, NAME, place, &format!("a payload has no {} bytes", nbytes as isize));
        }
        if payload.is_null() && nbytes > 0 {
            wrong(process, NAME, place, &format!("the payload is NULL, of {nbytes} bytes"));
        }
        if tag.is_null() && tag_bytes > 0 {
            wrong(process, NAME, place, &format!("the tag is NULL, and tags have {tag_bytes} bytes"));
        }
        let more = tag_bytes.saturating_add(nbytes);
        if !process.may_buffer(more) {
            too_much(process, &Call { name: NAME, place }, more);
        }
        // SAFETY: readable (caller).
        let (tag, payload) = unsafe { (bytes(tag, tag_bytes), bytes(payload, nbytes)) };
        let letters = &mut process.out[to].letters;
        let before = letters.bytes().len();
        letters.send(tag, payload);
        process.buffered += (letters.bytes().len() - before) as u64;
    });
}

/// # Safety
/// Readable for so many bytes, if there are any.
#[inline]
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(at.cast(), len) }
}

/// `bsp_qsize`.
///
/// # Safety
/// Integers of these kinds, or null; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_qsize_at(
    nmessages: *mut c_void,
    nmessages_kind: c_int,
    accum_nbytes: *mut c_void,
    accum_kind: c_int,
    place: *const c_char,
) {
    const NAME: &str = "bsp_qsize";
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside(NAME, place);
        let (count, payload) = (process.inbox.count, process.inbox.payload);
        for (to, kind, value) in [(nmessages, nmessages_kind, count), (accum_nbytes, accum_kind, payload)] {
            // SAFETY: the caller's.
            if unsafe { write_integer(to, kind, value as i64) }.is_none() {
                does_not_fit(process, NAME, place, value);
            }
        }
    });
}

/// `bsp_get_tag`.
///
/// # Safety
/// An integer of this kind, or null; `tag` is writable for the size of tags, or null; `place` as
/// [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_get_tag_at(status: *mut c_void, kind: c_int, tag: *mut c_void, place: *const c_char) {
    const NAME: &str = "bsp_get_tag";
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside(NAME, place);
        let (found, tag_bytes) = (process.inbox.first(), process.tags[0]);
        let value = found.map_or(-1, |found| found.len as i64);
        // SAFETY: the caller's.
        if unsafe { write_integer(status, kind, value) }.is_none() {
            does_not_fit(process, NAME, place, value as u64);
        }
        let Some(found) = found.filter(|_| tag_bytes > 0) else { return };
        if tag.is_null() {
            wrong(process, NAME, place, &format!("there is no memory for the tag of {tag_bytes} bytes: it is NULL"));
        }
        // SAFETY: the tag lies in the queue; room for it is the caller's.
        unsafe { tag.cast::<u8>().copy_from(found.tag, tag_bytes) };
    });
}

/// `bsp_move`.
///
/// # Safety
/// `payload` is writable for `nbytes`; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_move_at(payload: *mut c_void, nbytes: usize, place: *const c_char) {
    const NAME: &str = "bsp_move";
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside(NAME, place);
        if nbytes >= NEGATIVE {
            wrong(process, NAME, place, &format!("there is no room of {} bytes", nbytes as isize));
        }
        let Some(found) = process.inbox.take() else {
            wrong(process, NAME, place, "the queue is empty (bsp_qsize and bsp_get_tag tell)");
        };
        let len = found.len.min(nbytes);
        if len == 0 {
            return;
        }
        if payload.is_null() {
            wrong(process, NAME, place, &format!("there is no memory for {len} bytes: it is NULL"));
        }
        // SAFETY: the payload lies in the queue; room for it is the caller's.
        unsafe { payload.cast::<u8>().copy_from(found.payload, len) };
    });
}

/// `bsp_hpmove`.
///
/// # Safety
/// Two pointers that can be written; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_hpmove_at(
    tag: *mut *mut c_void,
    payload: *mut *mut c_void,
    place: *const c_char,
) -> isize {
    const NAME: &str = "bsp_hpmove";
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside(NAME, place);
        if tag.is_null() || payload.is_null() {
            wrong(process, NAME, place, "a pointer to where a pointer goes is NULL");
        }
        let Some(found) = process.inbox.take() else { return -1 };
        // SAFETY: the caller's.
        unsafe {
            tag.write(found.tag.cast_mut().cast());
            payload.write(found.payload.cast_mut().cast());
        }
        found.len as isize
    })
}
