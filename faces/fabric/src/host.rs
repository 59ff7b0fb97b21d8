//! The libfabric that loaded us: its log and its parameters, found at run time.
//!
//! Linking with libfabric would tie the provider to one release's symbol versions, so the four
//! functions are looked up in the libfabric already in the process. Without them (an embedding that
//! hides its symbols) nothing is logged and parameters come from the environment alone.

use crate::abi::*;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

type LogEnabled = unsafe extern "C" fn(*const FiProvider, c_int, c_int) -> c_int;
type Log = unsafe extern "C" fn(*const FiProvider, c_int, c_int, *const c_char, c_int, *const c_char, ...);
type ParamDefine = unsafe extern "C" fn(*const FiProvider, *const c_char, c_int, *const c_char, ...) -> c_int;
type ParamGet = unsafe extern "C" fn(*const FiProvider, *const c_char, *mut c_void) -> c_int;

/// What the loading library offers.
pub struct Host {
    provider: *const FiProvider,
    log_enabled: Option<LogEnabled>,
    log: Option<Log>,
    param_define: Option<ParamDefine>,
    param_get: Option<ParamGet>,
}

// SAFETY: plain addresses of functions that libfabric documents as callable from any thread, and of
// our own static provider structure.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

static HOST: OnceLock<Host> = OnceLock::new();

/// The library that loaded us; a silent one before [`init`].
fn host() -> Option<&'static Host> {
    HOST.get()
}

/// Finds the loading library's functions. Only the first call looks.
pub fn init(provider: *const FiProvider) {
    HOST.get_or_init(|| {
        let handle = loaded_libfabric();
        // SAFETY: the names are those of libfabric's public functions, whose types are as declared
        // above in all releases since 1.0.
        unsafe {
            Host {
                provider,
                log_enabled: symbol(handle, c"fi_log_enabled")
                    .map(|p| std::mem::transmute::<*mut c_void, LogEnabled>(p)),
                log: symbol(handle, c"fi_log").map(|p| std::mem::transmute::<*mut c_void, Log>(p)),
                param_define: symbol(handle, c"fi_param_define")
                    .map(|p| std::mem::transmute::<*mut c_void, ParamDefine>(p)),
                param_get: symbol(handle, c"fi_param_get").map(|p| std::mem::transmute::<*mut c_void, ParamGet>(p)),
            }
        }
    });
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is RTLD_DEFAULT or came from dlopen and is never closed; the name is a C
    // string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// A handle in which libfabric's symbols can be found: the global scope, or (a Python module or an
/// MPI loads its libfabric privately) the loaded object that has them.
fn loaded_libfabric() -> *mut c_void {
    if symbol(libc::RTLD_DEFAULT, c"fi_param_define").is_some() {
        return libc::RTLD_DEFAULT;
    }
    let mut found: *mut c_void = libc::RTLD_DEFAULT;
    // SAFETY: the callback gets our pointer back and runs only during this call.
    unsafe { libc::dl_iterate_phdr(Some(look_at_object), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn look_at_object(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    crate::guard::guard(0, || {
        // SAFETY: the loader passes a valid entry, whose name is null or a C string.
        let name = unsafe { (*info).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) };
        if !name.to_bytes().windows(9).any(|w| w == b"libfabric") && !name.to_bytes().windows(6).any(|w| w == b"libmpi")
        {
            return 0;
        }
        // SAFETY: RTLD_NOLOAD only takes a handle to what is loaded already.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() || symbol(handle, c"fi_param_define").is_none() {
            return 0;
        }
        // SAFETY: `found` is the caller's local variable.
        unsafe { *found.cast::<*mut c_void>() = handle };
        1
    })
}

/// Writes a line to libfabric's log if its level is on.
pub fn log(level: c_int, subsystem: c_int, text: impl FnOnce() -> String) {
    let Some(Host { provider, log_enabled: Some(enabled), log: Some(log), .. }) = host() else { return };
    // SAFETY: the provider structure is static; levels and subsystems are libfabric's own numbers.
    if unsafe { enabled(*provider, level, subsystem) } == 0 {
        return;
    }
    let Ok(line) = CString::new(text() + "\n") else { return };
    // SAFETY: the format consumes exactly the one C string given.
    unsafe { log(*provider, level, subsystem, c"weir".as_ptr(), 0, c"%s".as_ptr(), line.as_ptr()) };
}

/// A line that explains a refusal to whoever set `FI_LOG_LEVEL=info`.
pub fn info(text: impl FnOnce() -> String) {
    log(FI_LOG_INFO, FI_LOG_CORE, text);
}

/// Declares a parameter, so that `fi_info -g weir` shows it.
pub fn define_param(name: &CStr, kind: c_int, help: &CStr) {
    let Some(Host { provider, param_define: Some(define), .. }) = host() else { return };
    // SAFETY: the help text is passed as the only argument of a "%s" format; libfabric copies all
    // strings.
    unsafe { define(*provider, name.as_ptr(), kind, c"%s".as_ptr(), help.as_ptr()) };
}

/// A declared text parameter as libfabric found it (environment or its configuration file).
pub fn text_param(name: &CStr) -> Option<String> {
    let Some(Host { provider, param_get: Some(get), .. }) = host() else { return None };
    let mut value: *mut c_char = std::ptr::null_mut();
    // SAFETY: parameters are declared as strings, for which libfabric stores a pointer that stays
    // valid.
    if unsafe { get(*provider, name.as_ptr(), (&raw mut value).cast()) } != 0 || value.is_null() {
        return None;
    }
    // SAFETY: a C string, see above.
    Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
}
