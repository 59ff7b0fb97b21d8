//! Who is inside a module's function on this thread, and what a module may call then (spec/bmi.md
//! U2, R3, R4).

use super::Peers;
use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::tables::Tables;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// What callbacks work on while a function of a module runs.
struct Now {
    /// Null: no address may come now.
    tables: *mut Tables,
    peers: *mut Peers,
    method: usize,
}

thread_local! {
    static NOW: Cell<*mut Now> = const { Cell::new(null_mut()) };
}

/// A function of some module has run, on whatever thread: else nobody need ask.
static HAS_RUN: AtomicBool = AtomicBool::new(false);

/// A function of a module runs on this thread.
#[must_use]
#[inline]
pub fn is_inside() -> bool {
    // (What this thread has stored itself it sees.)
    HAS_RUN.load(Ordering::Relaxed) && NOW.with(|now| !now.get().is_null())
}

/// Runs a function of a module. Its callbacks change these, which nobody else uses meanwhile: the
/// call has no reference to them.
pub fn call<R>(tables: Option<&mut Tables>, peers: &mut Peers, method: usize, function: impl FnOnce() -> R) -> R {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            NOW.with(|now| now.set(null_mut()));
        }
    }
    let mut inside = Now { tables: tables.map_or(null_mut(), std::ptr::from_mut), peers, method };
    HAS_RUN.store(true, Ordering::Relaxed);
    NOW.with(|now| now.set(&raw mut inside));
    let _over = Over;
    function()
}

/// Lends the tables to a callback; none outside of a module's function.
fn with<R>(body: impl FnOnce(&mut Tables, &mut Peers, usize) -> R) -> Option<R> {
    let now = NOW.with(Cell::get);
    if now.is_null() {
        return None;
    }
    // SAFETY: set by `call`, which has not returned: it runs on this thread.
    let Now { tables, peers, method } = unsafe { now.read() };
    // SAFETY: both are borrowed by `call` for as long as it runs and used by nobody else; callbacks
    // do not call each other.
    unsafe { tables.as_mut().map(|tables| body(tables, &mut *peers, method)) }
}

/// A peer that came by itself (U2). Its handle; 0: there is no room, or this is not the time.
pub fn register(addr: *mut c_void) -> i64 {
    with(|t, peers, method| {
        if addr.is_null() {
            return 0;
        }
        if let Some(known) = peers.key(addr) {
            return known.to_id();
        }
        if !peers.has_room() {
            return 0;
        }
        let key = t.addrs.arrived(method, None);
        peers.insert(key, addr, true);
        key.to_id()
    })
    .unwrap_or(0)
}

/// It is gone.
///
/// # Errors
/// `BMI_EINVAL` for a handle that is none of this module, `BMI_EDEADLK` at the wrong time.
pub fn forget(handle: i64) -> Result<(), Code> {
    let key = AddrKey::from_id(handle);
    with(|t, peers, _| {
        peers.addr(key).ok_or(Code::EINVAL)?;
        // One that was looked up stays, and may come again.
        if t.addrs.get(key).is_some_and(|address| address.url.is_none()) {
            t.is_gone(key);
        }
        Ok(())
    })
    .unwrap_or(Err(Code::EDEADLK))
}
