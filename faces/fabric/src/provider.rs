//! The provider itself: what libfabric and others call by name, and the opening of a fabric.

use crate::abi::*;
use crate::fabric::{Fabric, FabricObj, OPS};
use crate::handle::Handle;
use crate::params::VERSION;
use crate::{domain_calls, eq, guard, host, info, params};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

/// The provider as libfabric sees it. libfabric writes to `context`.
struct Provider(std::cell::UnsafeCell<FiProvider>);

// SAFETY: we never touch the structure after its construction; libfabric guards its own writes.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(std::cell::UnsafeCell::new(FiProvider {
    version: fi_version(number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR"))),
    // The newest interface the structures here were checked against. A library skips a provider
    // that declares less than the application asks for.
    fi_version: fi_version(2, 6),
    context: FiContext { internal: [ptr::null_mut(); 4] },
    name: info::NAME.as_ptr(),
    getinfo: info::getinfo,
    fabric: open,
    cleanup,
}));

/// A part of the version, read when this is compiled.
const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a part of the version is no number"),
    }
}

/// The version, and the commit where whoever built it said so (`WEIR_COMMIT`); a C string for
/// whoever loads this library, `weir info` above all.
#[unsafe(no_mangle)]
pub extern "C" fn weir_version() -> *const c_char {
    VERSION.as_ptr()
}

/// What this process's endpoints have carried so far ([`weir_engine::Traffic::numbers`]), for who
/// measures: writes at most `count` numbers to `out`, and returns how many there are.
///
/// # Safety
/// `out` is null (then nothing is written), or `count` numbers may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_carried(out: *mut u64, count: usize) -> usize {
    guard::guard(0, || {
        let numbers = weir_engine::traffic().numbers();
        if !out.is_null() {
            let count = count.min(numbers.len());
            // SAFETY: the caller's promise; the numbers are as many as copied at least.
            unsafe { ptr::copy_nonoverlapping(numbers.as_ptr(), out, count) };
        }
        numbers.len()
    })
}

/// Entry point of a libfabric provider: libfabric calls it once after loading the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    guard::guard(ptr::null_mut(), || {
        #[cfg(not(test))]
        {
            // This library's panics are no concern of the program it is in, but for the one line
            // that is said of them.
            static ONCE: std::sync::Once = std::sync::Once::new();
            ONCE.call_once(weir_engine::keep_panics);
        }
        host::init(PROVIDER.0.get());
        params::define_all();
        PROVIDER.0.get().cast()
    })
}

unsafe extern "C" fn cleanup() {}

unsafe extern "C" fn open(attr: *mut FiFabricAttr, out: *mut *mut FidFabric, context: *mut c_void) -> c_int {
    guard::int(|| {
        // SAFETY: null or a valid attribute structure.
        let attr = unsafe { attr.as_ref() }.ok_or(FI_EINVAL)?;
        if out.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: names in attributes are null or C strings.
        if !attr.name.is_null() && unsafe { std::ffi::CStr::from_ptr(attr.name) } != info::NAME {
            return Err(FI_ENODATA);
        }
        let object = Box::new(FabricObj {
            fid: FidFabric {
                fid: Fid { fclass: FI_CLASS_FABRIC, context, ops: &raw const OPS },
                ops: &raw const FABRIC_OPS,
                api_version: attr.api_version,
            },
            fabric: Arc::new(Fabric { api_version: attr.api_version }),
        });
        // SAFETY: writable (checked for null).
        unsafe { *out = Box::into_raw(object).cast() };
        Ok(0)
    })
}

static FABRIC_OPS: FiOpsFabric = FiOpsFabric {
    size: size_of::<FiOpsFabric>(),
    domain: domain_calls::open,
    passive_ep: refused,
    eq_open: eq::open,
    wait_open: refused,
    trywait,
    domain2: refused,
};

/// Prepares queues for sleeping on their descriptors: refuses when one already has something.
unsafe extern "C" fn trywait(_: Handle<FidFabric>, fids: *mut Handle<Fid>, count: c_int) -> c_int {
    guard::int(|| {
        if fids.is_null() && count > 0 {
            return Err(FI_EINVAL);
        }
        for i in 0..usize::try_from(count).map_err(|_| FI_EINVAL)? {
            // SAFETY: `count` handles (caller).
            let fid = unsafe { *fids.add(i) };
            match fid.class()? {
                FI_CLASS_CQ => fid.object::<FidCq>()?.cq.try_wait()?,
                FI_CLASS_CNTR => fid.object::<FidCntr>()?.cntr.try_wait()?,
                FI_CLASS_EQ => fid.object::<FidEq>()?.eq.arm()?,
                _ => return Err(FI_EINVAL),
            }
        }
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_told_to_libfabric_is_the_start_of_the_whole_one() {
        // SAFETY: read only, as libfabric does before it writes to `context`.
        let packed = unsafe { (*PROVIDER.0.get()).version };
        // SAFETY: a C string that lives as long as the library.
        let whole = unsafe { std::ffi::CStr::from_ptr(weir_version()) }.to_str().expect("text");
        assert!(whole.starts_with(&format!("{}.{}.", packed >> 16, packed & 0xffff)), "{packed:#x}: {whole}");
    }
}
