//! Ids for pointers: index and generation, so that one that names nothing says so (S3).

use crate::entry::guard;
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

new_key_type! {
    struct IdKey;
}

/// Addresses by their ids.
#[derive(Default)]
struct Ids {
    /// (The pointers are not followed.)
    items: SlotMap<IdKey, usize>,
    /// Of the safe table: initializes without finalize.
    users: usize,
}

impl Ids {
    fn register(&mut self, item: *mut c_void) -> i64 {
        if item.is_null() { 0 } else { self.items.insert(item as usize).data().as_ffi().cast_signed() }
    }

    fn lookup(&self, id: i64) -> *mut c_void {
        let key: IdKey = KeyData::from_ffi(id.cast_unsigned()).into();
        self.items.get(key).map_or(null_mut(), |item| *item as *mut c_void)
    }

    fn unregister(&mut self, id: i64) -> bool {
        self.items.remove(KeyData::from_ffi(id.cast_unsigned()).into()).is_some()
    }
}

static FAST: LazyLock<Mutex<Ids>> = LazyLock::new(Mutex::default);
static SAFE: LazyLock<Mutex<Ids>> = LazyLock::new(Mutex::default);

fn lock(ids: &'static LazyLock<Mutex<Ids>>) -> MutexGuard<'static, Ids> {
    // Each change is one call, which is done or not.
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An id of the fast table.
pub(super) fn register(item: *mut c_void) -> i64 {
    lock(&FAST).register(item)
}

/// It names nothing any more.
pub(super) fn unregister(id: i64) {
    lock(&FAST).unregister(id);
}

/// `id_gen_fast_register`.
///
/// # Safety
/// `new_id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_id_gen_fast_register(new_id: *mut i64, item: *mut c_void) {
    guard((), || {
        if !new_id.is_null() {
            // SAFETY: writable (caller).
            unsafe { new_id.write(register(item)) };
        }
    });
}

/// `id_gen_fast_lookup`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_id_gen_fast_lookup(id: i64) -> *mut c_void {
    guard(null_mut(), || lock(&FAST).lookup(id))
}

/// `id_gen_fast_unregister`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_id_gen_fast_unregister(id: i64) {
    guard((), || unregister(id));
}

/// `id_gen_safe_initialize`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_id_gen_safe_initialize() -> c_int {
    guard(-libc::EIO, || {
        lock(&SAFE).users += 1;
        0
    })
}

/// `id_gen_safe_finalize`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_id_gen_safe_finalize() -> c_int {
    guard(-libc::EIO, || {
        let mut safe = lock(&SAFE);
        match safe.users.checked_sub(1) {
            None => return -libc::EINVAL,
            // Kept is how far the generations are: an old id stays none.
            Some(0) => safe.items.clear(),
            Some(_) => {}
        }
        safe.users -= 1;
        0
    })
}

/// `id_gen_safe_register`.
///
/// # Safety
/// `new_id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_id_gen_safe_register(new_id: *mut i64, item: *mut c_void) -> c_int {
    guard(-libc::EIO, || {
        let mut safe = lock(&SAFE);
        if new_id.is_null() || item.is_null() || safe.users == 0 {
            return -libc::EINVAL;
        }
        // SAFETY: writable (caller), and not null.
        unsafe { new_id.write(safe.register(item)) };
        0
    })
}

/// `id_gen_safe_lookup`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_id_gen_safe_lookup(id: i64) -> *mut c_void {
    guard(null_mut(), || lock(&SAFE).lookup(id))
}

/// `id_gen_safe_unregister`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_id_gen_safe_unregister(id: i64) -> c_int {
    guard(-libc::EIO, || if lock(&SAFE).unregister(id) { 0 } else { -libc::EINVAL })
}
