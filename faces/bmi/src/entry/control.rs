//! Beginning and end, contexts, addresses, memory, options.

use super::{address, guard, int, put, text};
use crate::addresses::AddrKey;
use crate::codes::{self, Code, option};
use crate::instance::{finalize, initialize, instance, within};
use crate::library::{Library, Lookup};
use crate::memory::Use;
use crate::method::KINDS;
use std::ffi::{c_char, c_int, c_void};
use std::time::{Duration, Instant};

/// What a closed context's operations may take to end (W3).
const CLOSING: Duration = Duration::from_secs(5);

/// `BMI_initialize`. Of four arguments the last is not looked at (D1).
///
/// # Safety
/// The texts are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_initialize(method_list: *const c_char, listen_addr: *const c_char, flags: c_int) -> c_int {
    int(|| {
        // SAFETY: passed on from the caller.
        let (methods, listen) = unsafe { (text(method_list)?, text(listen_addr)?) };
        initialize(|| Library::begin(methods, listen, flags)).map(|()| 0)
    })
}

/// `BMI_finalize`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_finalize() -> c_int {
    int(|| finalize().map(|()| 0))
}

/// `BMI_open_context`.
///
/// # Safety
/// `context_id` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_open_context(context_id: *mut i64) -> c_int {
    int(|| {
        let context = within(|library| {
            if context_id.is_null() {
                return Err(Code::EINVAL);
            }
            library.t.ops.open_context().ok_or(Code::EBUSY)
        })?;
        // SAFETY: writable (caller).
        unsafe { put(context_id, context as i64) };
        Ok(0)
    })
}

/// `BMI_close_context`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_close_context(context_id: i64) {
    guard((), || {
        let begun = Instant::now();
        let close = |library: &mut Library| {
            let context = library.t.ops.context(context_id).ok_or(Code::EINVAL)?;
            Ok(library.close_context(context))
        };
        let Ok(instance) = instance() else { return };
        let Ok(mut left) = instance.within(close) else { return };
        // Their memory is the program's again when this returns.
        while !left.is_empty() {
            let drop = begun.elapsed() >= CLOSING;
            let look = |library: &mut Library| {
                library.progress();
                Ok(library.left_of(&left, drop))
            };
            match instance.within(look) {
                Ok(still) if !drop => left = still,
                _ => return,
            }
            if !left.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

/// `BMI_addr_lookup`. Of three arguments the last is not looked at (D1).
///
/// # Safety
/// `new_addr` is null or writable, `id_string` null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_addr_lookup(new_addr: *mut i64, id_string: *const c_char) -> c_int {
    int(|| {
        // SAFETY: writable or null (caller).
        unsafe { put(new_addr, 0) };
        // SAFETY: passed on from the caller.
        let text = unsafe { text(id_string)? };
        let instance = instance()?;
        let (text, known) = instance.within(|library| {
            let text = text.filter(|_| !new_addr.is_null()).ok_or(Code::EINVAL)?;
            Ok((text, library.lookup(text)?))
        })?;
        let found = match known {
            Lookup::Known(addr) => addr,
            Lookup::Unresolved(kind, url) => {
                // The resolver may take seconds, for which nobody else is to wait.
                let places = url.resolve()?;
                instance.within(|library| library.looked_up(text, kind, places))?
            }
        };
        // SAFETY: writable (caller), and not null.
        unsafe { put(new_addr, found.to_id()) };
        Ok(0)
    })
}

/// `BMI_addr_rev_lookup`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_addr_rev_lookup(addr: i64) -> *const c_char {
    guard(std::ptr::null(), || {
        let text = within(|library| {
            let address = library.t.addrs.get(AddrKey::from_id(addr)).ok_or(Code::EINVAL)?;
            Ok(address.url.as_ref().map_or(std::ptr::null(), |url| url.as_ptr()))
        });
        text.unwrap_or(std::ptr::null())
    })
}

/// `BMI_addr_rev_lookup_unexpected`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_addr_rev_lookup_unexpected(addr: i64) -> *const c_char {
    guard(c"UNKNOWN".as_ptr(), || {
        let text = within(|library| {
            let address = library.t.addrs.get(AddrKey::from_id(addr)).ok_or(Code::EINVAL)?;
            let text = address.seen.as_ref().or(address.url.as_ref());
            Ok(text.map_or(c"UNKNOWN".as_ptr(), |text| text.as_ptr()))
        });
        text.unwrap_or(c"UNKNOWN".as_ptr())
    })
}

/// `BMI_query_addr_range`.
///
/// # Safety
/// `id_string` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_query_addr_range(addr: i64, id_string: *const c_char, netmask: c_int) -> c_int {
    int(|| {
        // SAFETY: passed on from the caller.
        let range = unsafe { text(id_string)? };
        within(|library| {
            let range = range.ok_or(Code::EINVAL)?;
            if range.len() >= crate::addresses::TEXT_MAX {
                return Err(Code::ENAMETOOLONG);
            }
            Ok(c_int::from(library.is_within(AddrKey::from_id(addr), range, netmask)?))
        })
    })
}

/// `BMI_memalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_memalloc(addr: i64, size: i64, send_recv: c_int) -> *mut c_void {
    guard(std::ptr::null_mut(), || {
        let memory = within(|library| {
            if !matches!(send_recv, 1 | 2) {
                return Err(Code::EINVAL);
            }
            library.allocate(address(addr), size, send_recv)
        });
        memory.unwrap_or(std::ptr::null_mut()).cast()
    })
}

/// `BMI_memfree`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_memfree(_addr: i64, buffer: *mut c_void, _size: i64, _send_recv: c_int) -> c_int {
    free(buffer, Use::Program)
}

/// `BMI_unexpected_free`.
#[unsafe(no_mangle)]
pub extern "C" fn BMI_unexpected_free(_addr: i64, buffer: *mut c_void) -> c_int {
    free(buffer, Use::Message)
}

/// Whose memory it was does not matter: an address may be gone before what it sent is freed.
fn free(buffer: *mut c_void, from: Use) -> c_int {
    int(|| within(|library| if library.give_back(buffer.cast(), from) { Ok(0) } else { Err(Code::EINVAL) }))
}

/// `BMI_set_info`.
///
/// # Safety
/// `inout_parameter` is null, or what the option wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_set_info(addr: i64, what: c_int, inout_parameter: *mut c_void) -> c_int {
    int(|| {
        let is_number = matches!(
            what,
            option::TCP_BUFFER_SEND_SIZE | option::TCP_BUFFER_RECEIVE_SIZE | option::TCP_CHECK_UNEXPECTED
        );
        // SAFETY: these options take an int (caller).
        let value =
            (is_number && !inout_parameter.is_null()).then(|| unsafe { inout_parameter.cast::<c_int>().read() });
        within(|library| {
            let addr = address(addr);
            // SAFETY: passed on from the caller.
            match unsafe { library.option_of_module(addr, true, what, inout_parameter) } {
                // Another option than it knows is none (1.1).
                Some(Err(Code::ENOSYS)) => Ok(0),
                Some(result) => result,
                None => library.set(addr, what, value).map(|()| 0),
            }
        })
    })
}

/// `BMI_get_info`.
///
/// # Safety
/// `inout_parameter` is null, or writable for what the option gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn BMI_get_info(addr: i64, what: c_int, inout_parameter: *mut c_void) -> c_int {
    int(|| match what {
        option::CHECK_INIT => within(|library| if library.methods().is_empty() { Err(Code::ENETDOWN) } else { Ok(0) })
            .map_err(|_| Code::ENETDOWN),
        // Known before anything is initialized, and to be asked for then.
        option::METHODS_ORANGEFS | option::METHODS_RADIX => {
            if inout_parameter.is_null() {
                return Err(Code::EINVAL);
            }
            // The program frees it with free().
            let all = within(|library| Ok(library.method_names()))
                .unwrap_or_else(|_| KINDS.iter().map(|kind| kind.scheme().to_owned()).collect());
            let names: String = all.iter().map(|name| format!("{name},")).collect();
            let names = std::ffi::CString::new(names).map_err(|_| Code::EIO)?;
            // SAFETY: a C string.
            let copy = unsafe { libc::strdup(names.as_ptr()) };
            if copy.is_null() {
                return Err(Code::ENOMEM);
            }
            // SAFETY: a place for a pointer (caller), and not null.
            unsafe { put(inout_parameter.cast::<*mut c_char>(), copy) };
            Ok(all.len() as c_int)
        }
        _ => {
            // SAFETY: passed on from the caller.
            let of_module =
                within(|library| Ok(unsafe { library.option_of_module(address(addr), false, what, inout_parameter) }))?;
            if let Some(result) = of_module {
                return result;
            }
            let value = within(|library| library.get(address(addr), what))?;
            if inout_parameter.is_null() {
                return Err(Code::EINVAL);
            }
            // SAFETY: a place for an int (caller), and not null.
            unsafe { put(inout_parameter.cast::<c_int>(), value) };
            Ok(0)
        }
    })
}

/// `bmi_errno_to_pvfs`.
#[unsafe(no_mangle)]
pub extern "C" fn bmi_errno_to_pvfs(error: c_int) -> c_int {
    let code = error.checked_abs().and_then(codes::of_errno);
    code.map_or(error, |code| if error < 0 { -code.0 } else { code.0 })
}

/// `bmi_status_string`.
#[unsafe(no_mangle)]
pub extern "C" fn bmi_status_string(status: c_int) -> *const c_char {
    codes::name_of(status).unwrap_or("(UNKNOWN)\0").as_ptr().cast()
}
