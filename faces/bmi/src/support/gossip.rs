//! Logging (S4 to S6): a mask, one of three back ends, and errors that no mask keeps back. Texts
//! come formatted (`include/bmi-support.h`).

use crate::entry::guard;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest text, bytes (`GOSSIP_BUF_SIZE`).
const TEXT_MAX: usize = 1024;

/// Where lines go.
enum To {
    Nowhere,
    Stderr,
    /// With a priority.
    Syslog(c_int),
    File(File),
}

/// What stands before a line.
#[derive(Clone, Copy)]
enum Stamp {
    None,
    Micros,
    Date,
    Thread,
}

struct Gossip {
    to: To,
    stamp: Stamp,
}

static GOSSIP: Mutex<Gossip> = Mutex::new(Gossip { to: To::Stderr, stamp: Stamp::Micros });
/// These are looked at without the lock: whoever is not to write does not wait for who writes.
static ON: AtomicBool = AtomicBool::new(false);
static MASK: AtomicU64 = AtomicU64::new(0);
static SOMEWHERE: AtomicBool = AtomicBool::new(true);

fn lock() -> MutexGuard<'static, Gossip> {
    GOSSIP.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gossip {
    /// Another back end; that before it is closed.
    fn turn_to(&mut self, to: To) {
        if let To::Syslog(_) = self.to {
            // SAFETY: closes what openlog opened.
            unsafe { libc::closelog() };
        }
        SOMEWHERE.store(!matches!(to, To::Nowhere), Relaxed);
        self.to = to;
    }
}

/// `gossip_enable_stderr`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_enable_stderr() -> c_int {
    guard(-libc::EIO, || {
        lock().turn_to(To::Stderr);
        0
    })
}

/// `gossip_enable_syslog`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_enable_syslog(priority: c_int) -> c_int {
    guard(-libc::EIO, || {
        let mut gossip = lock();
        gossip.turn_to(To::Syslog(priority));
        // SAFETY: the name is a C string for good.
        unsafe { libc::openlog(c"BMI".as_ptr(), 0, libc::LOG_DAEMON) };
        0
    })
}

/// `gossip_enable_file`.
///
/// # Safety
/// Null, or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_gossip_enable_file(filename: *const c_char, mode: *const c_char) -> c_int {
    guard(-libc::EIO, || {
        if filename.is_null() || mode.is_null() {
            return -libc::EINVAL;
        }
        // SAFETY: C strings (caller).
        let (name, mode) = unsafe { (CStr::from_ptr(filename), CStr::from_ptr(mode)) };
        let mut options = OpenOptions::new();
        match mode.to_bytes().first() {
            Some(b'w') => options.write(true).create(true).truncate(true),
            Some(b'a') => options.append(true).create(true),
            _ => return -libc::EINVAL,
        };
        match options.open(OsStr::from_bytes(name.to_bytes())) {
            Ok(file) => {
                lock().turn_to(To::File(file));
                0
            }
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        }
    })
}

/// `gossip_reopen_file`: after somebody has moved it away.
///
/// # Safety
/// As [`weir_bmi_gossip_enable_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_gossip_reopen_file(filename: *const c_char, mode: *const c_char) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { weir_bmi_gossip_enable_file(filename, mode) }
}

/// `gossip_disable`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_disable() -> c_int {
    guard(-libc::EIO, || {
        lock().turn_to(To::Nowhere);
        ON.store(false, Relaxed);
        MASK.store(0, Relaxed);
        0
    })
}

/// `gossip_set_debug_mask`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_set_debug_mask(debug_on: c_int, mask: u64) -> c_int {
    if !matches!(debug_on, 0 | 1) {
        return -libc::EINVAL;
    }
    ON.store(debug_on == 1, Relaxed);
    MASK.store(mask, Relaxed);
    0
}

/// `gossip_get_debug_mask`.
///
/// # Safety
/// Null, or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_gossip_get_debug_mask(debug_on: *mut c_int, mask: *mut u64) -> c_int {
    if debug_on.is_null() || mask.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: writable (caller), and not null.
    unsafe {
        debug_on.write(c_int::from(ON.load(Relaxed)));
        mask.write(MASK.load(Relaxed));
    }
    0
}

/// `gossip_set_logstamp`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_set_logstamp(stamp: c_int) -> c_int {
    guard(-libc::EIO, || {
        lock().stamp = match stamp {
            0 => Stamp::None,
            1 => Stamp::Micros,
            2 => Stamp::Date,
            3 => Stamp::Thread,
            _ => return -libc::EINVAL,
        };
        0
    })
}

/// `gossip_debug_enabled`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_enabled(mask: u64) -> c_int {
    c_int::from(ON.load(Relaxed) && MASK.load(Relaxed) & mask != 0 && SOMEWHERE.load(Relaxed))
}

/// `gossip_backtrace`: nothing, as in originals that were built without it.
#[unsafe(no_mangle)]
pub extern "C" fn weir_bmi_gossip_backtrace() {}

/// Writes a text, as `prefix` says a debug message or an error.
///
/// # Safety
/// `text` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_bmi_gossip_text(prefix: c_char, text: *const c_char) -> c_int {
    guard(-libc::EIO, || {
        if text.is_null() {
            return -libc::EINVAL;
        }
        // SAFETY: a C string (caller).
        let text = unsafe { CStr::from_ptr(text) }.to_bytes();
        let text = &text[..text.len().min(TEXT_MAX - 1)];
        let prefix = prefix.cast_unsigned();
        let mut gossip = lock();
        let stamp = gossip.stamp;
        let written = match &mut gossip.to {
            To::Nowhere => return 0,
            To::Stderr => std::io::stderr().write_all(&line(prefix, stamp, text)),
            To::File(file) => file.write_all(&line(prefix, stamp, text)),
            To::Syslog(priority) => {
                let priority = if prefix == b'E' { libc::LOG_ERR } else { *priority };
                let line = [b"[", &[prefix][..], b"] ", text, b"\0"].concat();
                // SAFETY: two C strings, the second as the first wants: the text holds no zero.
                unsafe { libc::syslog(priority, c"%s".as_ptr(), line.as_ptr()) };
                Ok(())
            }
        };
        written.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0)
    })
}

/// A line as it is written (S5).
fn line(prefix: u8, stamp: Stamp, text: &[u8]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or(0);
    // SAFETY: zeroes are a value of it; the call fills it, or leaves it.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: places for both.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut tm) };
    let time = format!("{:02}:{:02}:{:02}", tm.tm_hour, tm.tm_min, tm.tm_sec);
    let micros = now.subsec_micros();
    let head = match stamp {
        Stamp::None => String::new(),
        Stamp::Micros => format!(" {time}.{micros:06}"),
        Stamp::Date => format!(" {:02}/{:02}/{} {time}", tm.tm_mon + 1, tm.tm_mday, tm.tm_year + 1900),
        // SAFETY: asks who this is.
        Stamp::Thread => format!(" {time}.{micros:06} ({})", unsafe { libc::gettid() }),
    };
    [b"[", &[prefix][..], head.as_bytes(), b"] ", text].concat()
}
