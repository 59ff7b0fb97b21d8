//! The library: found, started once in a process, and what is called of it.

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::PACKETS_MAX;

/// What it is called by the dynamic linker.
const NAME: &str = "libusrsctp.so.2";

/// Why there is no SCTP.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoSctp {
    /// The library is not there.
    #[error("no SCTP: {0} (Debian: apt-get install libusrsctp2)")]
    Library(String),
    /// It lacks a function.
    #[error("no SCTP: {NAME} has no {0}: 0.9.5 or later is needed")]
    Function(&'static str),
    /// The program uses it, or another of Weir's libraries in it does.
    #[error("no SCTP: something else in this process uses usrsctp, which serves one user only")]
    InUse,
    /// By fork(2), of a process that had it.
    #[error("no SCTP: this process was forked from one that uses usrsctp, whose locks it cannot have")]
    Forked,
}

/// A socket of the library.
pub type Socket = *mut c_void;

/// `struct sockaddr_conn`.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Address {
    pub family: u16,
    pub port: u16,
    pub id: *mut c_void,
}

type Output = extern "C" fn(*mut c_void, *mut c_void, usize, u8, u8) -> c_int;
type Init = unsafe extern "C" fn(u16, Output, *const c_void);
type Open = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, *const c_void, u32, *mut c_void) -> Socket;
type SetOption = unsafe extern "C" fn(Socket, c_int, c_int, *const c_void, libc::socklen_t) -> c_int;
type GetOption = unsafe extern "C" fn(Socket, c_int, c_int, *mut c_void, *mut libc::socklen_t) -> c_int;
type Named = unsafe extern "C" fn(Socket, *mut Address, libc::socklen_t) -> c_int;
type Sendv = unsafe extern "C" fn(
    Socket,
    *const c_void,
    usize,
    *const c_void,
    c_int,
    *mut c_void,
    libc::socklen_t,
    c_uint,
    c_int,
) -> isize;
type Recvv = unsafe extern "C" fn(
    Socket,
    *mut c_void,
    usize,
    *mut c_void,
    *mut libc::socklen_t,
    *mut c_void,
    *mut libc::socklen_t,
    *mut c_uint,
    *mut c_int,
) -> isize;

/// The functions.
pub struct Functions {
    pub open: Open,
    pub set_option: SetOption,
    pub get_option: GetOption,
    pub bind: Named,
    pub connect: Named,
    pub sendv: Sendv,
    pub recvv: Recvv,
    pub close: unsafe extern "C" fn(Socket),
    pub non_blocking: unsafe extern "C" fn(Socket, c_int) -> c_int,
    pub input: unsafe extern "C" fn(*mut c_void, *const c_void, usize, u8),
    pub register: unsafe extern "C" fn(*mut c_void),
    pub deregister: unsafe extern "C" fn(*mut c_void),
    timers: unsafe extern "C" fn(u32),
}

/// The library, started; it stays for as long as the process. A child made by fork(2) cannot have
/// it: its locks may be held by a thread that is not there.
pub fn functions() -> Result<&'static Functions, NoSctp> {
    static FOUND: OnceLock<(u32, Result<Functions, NoSctp>)> = OnceLock::new();
    let (process, found) = FOUND.get_or_init(|| (std::process::id(), unused(NAME).and_then(|()| find(NAME))));
    if *process != std::process::id() {
        return Err(NoSctp::Forked);
    }
    found.as_ref().map_err(Clone::clone)
}

/// That nobody else in this process has the library: it has one callback for all packets, and one
/// table of all addresses.
fn unused(name: &str) -> Result<(), NoSctp> {
    // SAFETY: loads nothing.
    match unsafe { Library::open(Some(name), RTLD_NOW | libc::RTLD_NOLOAD) } {
        Ok(_) => Err(NoSctp::InUse),
        Err(_) => Ok(()),
    }
}

/// Whether there is SCTP here.
///
/// # Errors
/// Why not, in one line.
pub fn available() -> Result<(), NoSctp> {
    functions().map(drop)
}

fn find(name: &str) -> Result<Functions, NoSctp> {
    // SAFETY: the library's initialisers are its own affair; it is a known one, by its soname.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        NoSctp::Library(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
    })?;
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type is that of the header of 0.9.5, whose soname is the same.
            *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(|_| NoSctp::Function($name))?
        };
    }
    let init: Init = function!("usrsctp_init_nothreads");
    let functions = Functions {
        open: function!("usrsctp_socket"),
        set_option: function!("usrsctp_setsockopt"),
        get_option: function!("usrsctp_getsockopt"),
        bind: function!("usrsctp_bind"),
        connect: function!("usrsctp_connect"),
        sendv: function!("usrsctp_sendv"),
        recvv: function!("usrsctp_recvv"),
        close: function!("usrsctp_close"),
        non_blocking: function!("usrsctp_set_non_blocking"),
        input: function!("usrsctp_conninput"),
        register: function!("usrsctp_register_address"),
        deregister: function!("usrsctp_deregister_address"),
        timers: function!("usrsctp_handle_timers"),
    };
    // SAFETY: called once in this process by this crate (the caller keeps what it returns), without
    // sockets (port 0) or threads; `output` lives as long as this library, which calls it only from
    // inside calls made here.
    unsafe { init(0, output, std::ptr::null()) };
    // It is never unloaded: it holds what it was told of us.
    std::mem::forget(library);
    Ok(functions)
}

/// Packets that one association wants to be moved.
pub type Outbox = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// By the id of the association, which the library knows as its address. (Never a pointer that
/// could outlive what it points to.)
static OUTBOXES: LazyLock<Mutex<HashMap<usize, Outbox>>> = LazyLock::new(Mutex::default);

/// A new id, and where its packets will be.
pub fn new_outbox() -> (usize, Outbox) {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let (id, outbox) = (NEXT.fetch_add(1, Ordering::Relaxed), Outbox::default());
    OUTBOXES.lock().unwrap_or_else(PoisonError::into_inner).insert(id, outbox.clone());
    (id, outbox)
}

/// Nothing more is kept for this id.
pub fn drop_outbox(id: usize) {
    OUTBOXES.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
}

/// The library has a packet to be sent. It may hold locks: nothing of it is called from here.
extern "C" fn output(id: *mut c_void, packet: *mut c_void, len: usize, _tos: u8, _dont_fragment: u8) -> c_int {
    let outbox = OUTBOXES.lock().unwrap_or_else(PoisonError::into_inner).get(&(id as usize)).cloned();
    let Some(outbox) = outbox else { return libc::ENOTCONN };
    let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
    if outbox.len() >= PACKETS_MAX {
        return libc::ENOBUFS;
    }
    // SAFETY: the library lends `len` readable bytes for the time of this call.
    outbox.push_back(unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), len) }.to_vec());
    0
}

/// It is `now_ns`, on any clock that all callers of the process share: timers of all associations
/// of the process that are due run. The clock of the library counts milliseconds.
pub fn tick(now_ns: u64) {
    static LAST_MS: Mutex<u64> = Mutex::new(0);
    // Whoever finds another at it need not wait: that one runs all timers.
    let Ok(mut last) = LAST_MS.try_lock() else { return };
    let (now_ms, before) = (now_ns / 1_000_000, *last);
    if now_ms <= before {
        return;
    }
    *last = now_ms;
    if let (Ok(functions), true) = (functions(), before > 0) {
        // SAFETY: the library is started, and locks what it touches; it expects one such caller at
        // a time, which the lock held here sees to.
        unsafe { (functions.timers)(u32::try_from(now_ms - before).unwrap_or(u32::MAX)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told_with_its_package() {
        let Err(error) = find("libusrsctp-that-nobody-has.so.2") else { panic!("nobody has it") };
        let line = error.to_string();
        assert!(line.contains("libusrsctp-that-nobody-has.so.2") && line.contains("libusrsctp2"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }

    #[test]
    fn a_library_without_the_functions_is_told_with_the_first_that_is_missing() {
        let Err(error) = find("libc.so.6") else { panic!("it is another library") };
        assert!(error.to_string().contains("usrsctp_init_nothreads"), "{error}");
    }
}
