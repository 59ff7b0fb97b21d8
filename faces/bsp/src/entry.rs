//! What C calls: the symbols of `include/bsp.h`. Arguments are checked here, and no panic gets out.
//!
//! A program calls from one thread (`spec/bsp.md` 2): what is global here is that thread's.

use crate::bootstrap::{self, Bootstrap};
use crate::collecting;
use crate::fail;
use crate::head::Ends;
use crate::place::Place;
use crate::process::{Process, Wanted};
use crate::registry::RegistryError;
use crate::superstep;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The process, between `bsp_begin` and `bsp_end`.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// `bsp_begin` was called.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// The process that called `bsp_begin`: what it forks has no part in the program.
static BEGUN_BY: AtomicU32 = AtomicU32::new(0);
/// `bsp_init` was called.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// How the process was started, between the first question for it and `bsp_begin`.
static STARTED: Mutex<Option<Started>> = Mutex::new(None);

struct Started(Box<dyn Bootstrap>);
// SAFETY: used by the one thread that calls.
unsafe impl Send for Started {}

/// Sizes beyond this are negative numbers of a program with `int`.
const NEGATIVE: usize = isize::MAX as usize + 1;

/// Runs the body of an entry; a panic, a defect of ours, ends all.
fn guarded<T>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        fail::say(None, "out of order after a defect in weir");
        fail::leave(fail::EXIT_CODE)
    })
}

#[inline]
fn process() -> Option<&'static mut Process> {
    // SAFETY: made by `begin` from a box, taken back by `finish`; only the thread that calls uses it, one call at a time.
    unsafe { PROCESS.load(Ordering::Relaxed).as_mut() }
}

/// What a put or get takes in check mode beside its record: the number of its place, as it is kept and as it travels.
const CHECKED_BYTES: u64 = 8;

/// The process, or the end: `name` was called outside of its SPMD part.
#[inline]
fn inside(name: &str, place: Place) -> &'static mut Process {
    process().unwrap_or_else(|| outside(name, place))
}

#[cold]
fn outside(name: &str, place: Place) -> ! {
    let when = if BEGUN.load(Ordering::Relaxed) { "after bsp_end" } else { "before bsp_begin" };
    fail::fail(None, &format!("{place}{name} was called {when}"))
}

#[cold]
fn wrong(process: &mut Process, name: &str, place: Place, what: &str) -> ! {
    fail::fail(Some(process), &format!("{place}{name}: {what}"))
}

/// # Safety
/// As [`Place::new`].
#[inline]
unsafe fn at(place: *const c_char) -> Place {
    // SAFETY: passed on from the caller.
    unsafe { Place::new(place) }
}

/// How this process was started, asked for once.
fn started() -> (usize, usize) {
    let mut started = STARTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Started(bootstrap) = started.get_or_insert_with(|| match bootstrap::find() {
        Ok(bootstrap) => Started(bootstrap),
        Err(why) => fail::fail(None, &why),
    });
    (bootstrap.rank(), bootstrap.size())
}

// ---- The SPMD part

/// `bsp_init`.
///
/// # Safety
/// A function, or null; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_init_at(
    spmd_part: Option<extern "C" fn()>,
    _argc: c_int,
    _argv: *mut *mut c_char,
    place: *const c_char,
) {
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    let others = guarded(|| {
        let Some(spmd_part) = spmd_part else {
            fail::fail(process(), &format!("{place}bsp_init: there is no function"))
        };
        if BEGUN.load(Ordering::Relaxed) {
            fail::fail(process(), &format!("{place}bsp_init was called after bsp_begin"));
        }
        if INITIALISED.swap(true, Ordering::Relaxed) {
            fail::fail(None, &format!("{place}bsp_init was called twice"));
        }
        (started().0 > 0).then_some(spmd_part)
    });
    if let Some(spmd_part) = others {
        spmd_part();
        // SAFETY: ends the process in good order: only process 0 comes back from bsp_init.
        unsafe { libc::exit(0) };
    }
}

/// `bsp_begin`.
///
/// # Safety
/// `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_begin_at(maxprocs: c_int, place: *const c_char) {
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        if BEGUN.swap(true, Ordering::Relaxed) {
            fail::fail(process(), &format!("{place}bsp_begin was called twice: a program has one SPMD part"));
        }
        started();
        let started = STARTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(Started(bootstrap)) = started else { return };
        match Process::begin(maxprocs, bootstrap) {
            Ok(process) => PROCESS.store(Box::into_raw(process), Ordering::Relaxed),
            Err(why) => fail::fail(None, &format!("{place}bsp_begin: {why}")),
        }
        BEGUN_BY.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: a function that stays.
        unsafe { libc::atexit(left) };
    });
}

/// The program ends: in its SPMD part?
extern "C" fn left() {
    if BEGUN_BY.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    guarded(|| {
        if let Some(process) = process() {
            fail::fail(Some(process), "the program ended without bsp_end");
        }
    });
}

/// `bsp_end`.
///
/// # Safety
/// `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_end_at(place: *const c_char) {
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| {
        let process = inside("bsp_end", place);
        superstep::end(process, Ends::Program, place);
        if let Some(ledger) = process.ledger.take() {
            collecting::collect(process, &ledger);
        }
        let process = PROCESS.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: of `bsp_begin_at`, and nobody has it any more.
        let mut process = unsafe { Box::from_raw(process) };
        drop(process.wire.take());
        process.bootstrap.finish();
    });
}

/// `bsp_nprocs`.
#[unsafe(no_mangle)]
pub extern "C" fn bsp_nprocs() -> c_int {
    guarded(|| match process() {
        Some(process) => process.nprocs() as c_int,
        None if BEGUN.load(Ordering::Relaxed) => outside("bsp_nprocs", Place::UNKNOWN),
        None => started().1 as c_int,
    })
}

/// `bsp_pid`.
///
/// # Safety
/// `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_pid_at(place: *const c_char) -> c_int {
    // SAFETY: the caller's.
    guarded(|| inside("bsp_pid", unsafe { at(place) }).pid() as c_int)
}

/// `bsp_time`.
///
/// # Safety
/// `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_time_at(place: *const c_char) -> f64 {
    // SAFETY: the caller's.
    guarded(|| inside("bsp_time", unsafe { at(place) }).begun.elapsed().as_secs_f64())
}

/// `bsp_sync`.
///
/// # Safety
/// `place` as [`Place::new`]; what the program promised of its memory holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_sync_at(place: *const c_char) {
    // SAFETY: the caller's.
    let place = unsafe { at(place) };
    guarded(|| superstep::end(inside("bsp_sync", place), Ends::Sync, place));
}

/// `bsp_abort` with a list of arguments. (A `va_list` is passed as a pointer on the platforms that Weir is for.)
///
/// # Safety
/// As `vprintf`; `place` as [`Place::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_abort_va_at(place: *const c_char, format: *const c_char, arguments: *mut c_void) -> ! {
    unsafe extern "C" {
        fn vsnprintf(to: *mut c_char, size: usize, format: *const c_char, arguments: *mut c_void) -> c_int;
    }
    const MOST: usize = 4096;
    let mut text = [0 as c_char; MOST];
    if !format.is_null() {
        // SAFETY: the caller's format and arguments; the buffer has so many bytes.
        unsafe { vsnprintf(text.as_mut_ptr(), MOST, format, arguments) };
    }
    // SAFETY: `vsnprintf` has ended it by a zero, or it is all zeros.
    unsafe { abort_by(at(place), text.as_ptr()) }
}

/// The same without a place.
///
/// # Safety
/// As `vprintf`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_abort_va(format: *const c_char, arguments: *mut c_void) -> ! {
    // SAFETY: the caller's.
    unsafe { bsp_abort_va_at(null(), format, arguments) }
}

/// `bsp_abort` with a text as it is.
///
/// # Safety
/// A C string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_abort_text(text: *const c_char) -> ! {
    // SAFETY: the caller's.
    unsafe { abort_by(Place::UNKNOWN, text) }
}

/// # Safety
/// A C string, or null.
unsafe fn abort_by(place: Place, text: *const c_char) -> ! {
    // SAFETY: the caller's.
    let text = if text.is_null() { "".into() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy() };
    guarded(|| fail::fail(process(), &format!("{place}bsp_abort: {text}")))
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn bsp_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

// ---- Direct remote memory access

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

/// A primitive, and where it was called.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    place: Place,
}

/// What a put or get names. (Passed by reference: copied from what the caller has just stored it would be read in wider pieces than it was written, and waited for.)
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

#[cold]
fn too_much(process: &mut Process, call: &Call, bytes: usize) -> ! {
    let what = process.too_much(bytes);
    wrong(process, call.name, call.place, &what)
}

#[cold]
fn no_process(process: &mut Process, call: Call, pid: c_int) -> ! {
    let last = process.nprocs() - 1;
    wrong(process, call.name, call.place, &format!("there is no process {pid}: they are numbered 0 to {last}"))
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
    if nbytes == 8
        && !src.is_null()
        && let Some(process) = process()
        // SAFETY: readable (caller).
        && process.put_eight(pid as u32 as usize, dst as usize, offset, || unsafe { src.cast::<[u8; 8]>().read() })
    {
        return;
    }
    // SAFETY: the caller's.
    unsafe { put_any(pid, src, dst, offset, nbytes, place) }
}

/// All that is not put at a few looks. (Apart, so that those need no stack.)
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
/// `src` is readable for `nbytes`, and stays as it is until the end of the superstep; `place` as [`Place::new`].
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

// ---- Bulk synchronous message passing

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
/// An integer of this kind, or null; `tag` is writable for the size of tags, or null; `place` as [`Place::new`].
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

// ---- Without a place: for function pointers and other languages

/// Plain functions, of which the header's macros call the ones above.
macro_rules! plain {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $long:ident;)*) => {$(
        /// The same without a place.
        ///
        /// # Safety
        /// As that.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? {
            // SAFETY: the caller's.
            unsafe { $long($($arg,)* null()) }
        }
    )*};
}

plain! {
    bsp_init(spmd_part: Option<extern "C" fn()>, argc: c_int, argv: *mut *mut c_char) = bsp_init_at;
    bsp_begin(maxprocs: c_int) = bsp_begin_at;
    bsp_end() = bsp_end_at;
    bsp_pid() -> c_int = bsp_pid_at;
    bsp_time() -> f64 = bsp_time_at;
    bsp_sync() = bsp_sync_at;
    bsp_push_reg(addr: *const c_void, nbytes: usize) = bsp_push_reg_at;
    bsp_pop_reg(addr: *const c_void) = bsp_pop_reg_at;
    bsp_put(pid: c_int, src: *const c_void, dst: *mut c_void, offset: usize, nbytes: usize) = bsp_put_at;
    bsp_hpput(pid: c_int, src: *const c_void, dst: *mut c_void, offset: usize, nbytes: usize) = bsp_hpput_at;
    bsp_get(pid: c_int, src: *const c_void, offset: usize, dst: *mut c_void, nbytes: usize) = bsp_get_at;
    bsp_hpget(pid: c_int, src: *const c_void, offset: usize, dst: *mut c_void, nbytes: usize) = bsp_hpget_at;
    bsp_send(pid: c_int, tag: *const c_void, payload: *const c_void, nbytes: usize) = bsp_send_at;
    bsp_move(payload: *mut c_void, nbytes: usize) = bsp_move_at;
    bsp_hpmove(tag: *mut *mut c_void, payload: *mut *mut c_void) -> isize = bsp_hpmove_at;
}

/// `bsp_set_tagsize` of the standard.
///
/// # Safety
/// As [`bsp_set_tagsize_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_set_tagsize(tag_nbytes: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { bsp_set_tagsize_at(tag_nbytes.cast(), -4, null()) };
}

/// `bsp_qsize` of the standard.
///
/// # Safety
/// As [`bsp_qsize_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_qsize(nmessages: *mut c_int, accum_nbytes: *mut c_int) {
    // SAFETY: the caller's.
    unsafe { bsp_qsize_at(nmessages.cast(), -4, accum_nbytes.cast(), -4, null()) };
}

/// `bsp_get_tag` of the standard.
///
/// # Safety
/// As [`bsp_get_tag_at`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsp_get_tag(status: *mut c_int, tag: *mut c_void) {
    // SAFETY: the caller's.
    unsafe { bsp_get_tag_at(status.cast(), -4, tag, null()) };
}
