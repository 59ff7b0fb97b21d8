//! What C calls: the symbols of `include/bsp.h`. Arguments are checked here, and no panic gets out.
//!
//! A program calls from one thread (`spec/bsp.md` 2): what is global here is that thread's.
//!
//! Here are the SPMD part and what all entries share; those of remote memory are in `memory`, those
//! of messages in `messages`.

mod memory;
mod messages;

use crate::bootstrap::{self, Bootstrap};
use crate::collecting;
use crate::fail;
use crate::head::Ends;
use crate::place::Place;
use crate::process::Process;
use crate::superstep;
pub use memory::{bsp_get_at, bsp_hpget_at, bsp_hpput_at, bsp_pop_reg_at, bsp_push_reg_at, bsp_put_at};
pub use messages::{bsp_get_tag_at, bsp_hpmove_at, bsp_move_at, bsp_qsize_at, bsp_send_at, bsp_set_tagsize_at};
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
/// This process was forked by one that had called a primitive.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Where such a process called a primitive.
const IN_CHILD: &str = "in a process that the program has forked, which has no part in it";
/// Children that are forked are told.
static WATCHED: AtomicBool = AtomicBool::new(false);
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
    // SAFETY: made by `begin` from a box, taken back by `finish`; only the thread that calls uses
    // it, one call at a time.
    unsafe { PROCESS.load(Ordering::Relaxed).as_mut() }
}

/// The process, or the end: `name` was called outside of its SPMD part.
#[inline]
fn inside(name: &str, place: Place) -> &'static mut Process {
    process().unwrap_or_else(|| outside(name, place))
}

#[cold]
fn outside(name: &str, place: Place) -> ! {
    let when = match (FORKED.load(Ordering::Relaxed), BEGUN.load(Ordering::Relaxed)) {
        (true, _) => IN_CHILD,
        (false, true) => "after bsp_end",
        (false, false) => "before bsp_begin",
    };
    fail_outside(&format!("{place}{name} was called {when}"))
}

/// This process has failed, and does not take part: before, after, or not at all.
#[cold]
fn fail_outside(text: &str) -> ! {
    if FORKED.load(Ordering::Relaxed) {
        fail::fail_alone(text);
    }
    // (Whoever has it locked fails too.)
    let started = STARTED.try_lock().ok().and_then(|mut started| started.take());
    match started {
        Some(Started(bootstrap)) => fail::fail_before(bootstrap, text),
        None => fail::fail(None, text),
    }
}

/// This process has failed, whether it takes part or not.
#[cold]
fn fail_anywhere(text: &str) -> ! {
    match process() {
        Some(process) => fail::fail(Some(process), text),
        None => fail_outside(text),
    }
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
    if FORKED.load(Ordering::Relaxed) {
        fail::fail_alone(&format!("a primitive was called {IN_CHILD}"));
    }
    let mut started = STARTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if started.is_none() && !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: a function that stays, and only stores to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    let Started(bootstrap) = started.get_or_insert_with(|| match bootstrap::find() {
        Ok(bootstrap) => Started(bootstrap),
        Err(why) => fail::fail(None, &why),
    });
    (bootstrap.rank(), bootstrap.size())
}

/// A primitive, and where it was called.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    place: Place,
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
        let Some(spmd_part) = spmd_part else { fail_anywhere(&format!("{place}bsp_init: there is no function")) };
        if BEGUN.load(Ordering::Relaxed) {
            fail_anywhere(&format!("{place}bsp_init was called after bsp_begin"));
        }
        if INITIALISED.swap(true, Ordering::Relaxed) {
            fail_outside(&format!("{place}bsp_init was called twice"));
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
            fail_anywhere(&format!("{place}bsp_begin was called twice: a program has one SPMD part"));
        }
        started();
        let started = STARTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(Started(bootstrap)) = started else { return };
        match Process::begin(maxprocs, bootstrap) {
            Ok(process) => PROCESS.store(Box::into_raw(process), Ordering::Relaxed),
            Err((why, bootstrap)) => fail::fail_before(bootstrap, &format!("{place}bsp_begin: {why}")),
        }
        BEGUN_BY.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: a function that stays.
        unsafe { libc::atexit(left) };
    });
}

/// What the process shares with the others is not the child's to use.
extern "C" fn in_child() {
    PROCESS.store(std::ptr::null_mut(), Ordering::Relaxed);
    FORKED.store(true, Ordering::Relaxed);
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

/// `bsp_abort` with a list of arguments. (A `va_list` is passed as a pointer on the platforms that
/// Weir is for.)
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
    guarded(|| fail_anywhere(&format!("{place}bsp_abort: {text}")))
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn bsp_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
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
