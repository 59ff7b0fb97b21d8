//! Any BMI library, loaded at run time and called by the C functions of `include/bmi.h`: ours, or
//! one of those that programs were written for.
//!
//! The memory of an operation is held here from its post to its end, so that who calls lends
//! nothing to C.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use libloading::Library;

use crate::error::{BenchError, Result};

/// Whose functions a library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
pub enum Dialect {
    /// radix-io/bmi, and ours.
    Radix,
    /// OrangeFS, and ours.
    Orangefs,
}

impl Dialect {
    /// As the command line has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Radix => "radix",
            Dialect::Orangefs => "orangefs",
        }
    }
}

/// The process takes requests.
const INIT_SERVER: c_int = 1;
/// Memory that is not of BMI_memalloc.
const EXT_ALLOC: c_int = 2;
/// Numbers of `struct WEIR_BMI_statistics` that are known here, and which of them is that of
/// packets that were refused.
const STATISTICS: usize = 12;
const PACKETS_REFUSED: usize = 11;
/// Requests and ends taken in one call.
const AT_ONCE: usize = 64;

type InitializeRadix = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;
type InitializeOrangefs = unsafe extern "C" fn(*const c_char, *const c_char, c_int, *mut c_char) -> c_int;
type LookupRadix = unsafe extern "C" fn(*mut i64, *const c_char) -> c_int;
type LookupOrangefs = unsafe extern "C" fn(*mut i64, *const c_char, *mut c_char) -> c_int;
type OpenContext = unsafe extern "C" fn(*mut i64) -> c_int;
type CloseContext = unsafe extern "C" fn(i64);
type Finalize = unsafe extern "C" fn() -> c_int;
type Send =
    unsafe extern "C" fn(*mut i64, i64, *const c_void, i64, c_int, i32, *mut c_void, i64, *const c_void) -> c_int;
type SendClass =
    unsafe extern "C" fn(*mut i64, i64, *const c_void, i64, c_int, i32, u8, *mut c_void, i64, *const c_void) -> c_int;
type Receive = unsafe extern "C" fn(
    *mut i64,
    i64,
    *mut c_void,
    i64,
    *mut i64,
    c_int,
    i32,
    *mut c_void,
    i64,
    *const c_void,
) -> c_int;
type TestContext =
    unsafe extern "C" fn(c_int, *mut i64, *mut c_int, *mut i32, *mut i64, *mut *mut c_void, c_int, i64) -> c_int;
type TestUnexpected = unsafe extern "C" fn(c_int, *mut c_int, *mut Unexpected, c_int) -> c_int;
type TestUnexpectedClass = unsafe extern "C" fn(c_int, *mut c_int, *mut Unexpected, u8, c_int) -> c_int;
type UnexpectedFree = unsafe extern "C" fn(i64, *mut c_void) -> c_int;
type Statistics = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type StatusString = unsafe extern "C" fn(c_int) -> *const c_char;

/// `struct BMI_unexpected_info` (spec/bmi.md 1).
#[repr(C)]
#[derive(Clone, Copy)]
struct Unexpected {
    error_code: i32,
    addr: i64,
    buffer: *mut c_void,
    size: i64,
    tag: i32,
}

const NO_REQUEST: Unexpected = Unexpected { error_code: 0, addr: 0, buffer: null_mut(), size: 0, tag: 0 };

/// What is called otherwise in each dialect.
enum Calls {
    Radix {
        initialize: InitializeRadix,
        lookup: LookupRadix,
        send_unexpected: SendClass,
        test_unexpected: TestUnexpectedClass,
    },
    Orangefs {
        initialize: InitializeOrangefs,
        lookup: LookupOrangefs,
        send_unexpected: Send,
        test_unexpected: TestUnexpected,
    },
}

struct Functions {
    calls: Calls,
    finalize: Finalize,
    open_context: OpenContext,
    close_context: CloseContext,
    send: Send,
    receive: Receive,
    test_context: TestContext,
    unexpected_free: UnexpectedFree,
    /// Of ours only.
    status: Option<StatusString>,
    /// The same.
    statistics: Option<Statistics>,
}

/// A peer, as the library names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(i64);

/// The memory of an operation under way.
enum Held {
    #[expect(dead_code, reason = "held, and looked at by the library only")]
    Sent(Arc<[u8]>),
    Received(Vec<u8>),
}

/// A request that has come.
pub struct Request<'a> {
    /// Who asks.
    pub from: Peer,
    /// What.
    pub data: &'a [u8],
    /// The tag that the answer is to have.
    pub tag: i32,
}

/// An initialised BMI with one context. One at a time in a process.
pub struct Bmi {
    functions: Functions,
    file: PathBuf,
    context: i64,
    /// By the user pointer less one: the operation's tag and memory.
    held: Vec<Option<(i32, Held)>>,
    free: Vec<usize>,
}

impl Functions {
    fn load(file: &Path, dialect: Dialect) -> Result<Functions> {
        // SAFETY: loading runs the initialisers of a library that somebody named to be measured.
        let library = unsafe { Library::new(file) }.map_err(|error| BenchError::file(file, error))?;
        // It stays loaded: threads of it may outlive its last call.
        let library: &'static Library = Box::leak(Box::new(library));
        let cannot = |name: &str| {
            let text =
                format!("it has no {name}: is it a BMI library, and of this dialect (--dialect {})?", dialect.name());
            BenchError::file(file, text)
        };
        macro_rules! of {
            ($name:literal) => {
                // SAFETY: the function of this name has the type of the field it goes to in all BMI
                // headers of the dialect.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(|_| cannot($name))?
            };
        }
        let calls = match dialect {
            Dialect::Radix => Calls::Radix {
                initialize: of!("BMI_initialize"),
                lookup: of!("BMI_addr_lookup"),
                send_unexpected: of!("BMI_post_sendunexpected_class"),
                test_unexpected: of!("BMI_testunexpected_class"),
            },
            Dialect::Orangefs => Calls::Orangefs {
                initialize: of!("BMI_initialize"),
                lookup: of!("BMI_addr_lookup"),
                send_unexpected: of!("BMI_post_sendunexpected"),
                test_unexpected: of!("BMI_testunexpected"),
            },
        };
        Ok(Functions {
            calls,
            finalize: of!("BMI_finalize"),
            open_context: of!("BMI_open_context"),
            close_context: of!("BMI_close_context"),
            send: of!("BMI_post_send"),
            receive: of!("BMI_post_recv"),
            test_context: of!("BMI_testcontext"),
            unexpected_free: of!("BMI_unexpected_free"),
            // SAFETY: as above, of ours, which alone has it.
            status: unsafe { library.get::<StatusString>(b"bmi_status_string\0") }.ok().map(|found| *found),
            // SAFETY: the same.
            statistics: unsafe { library.get::<Statistics>(b"WEIR_BMI_statistics\0") }.ok().map(|found| *found),
        })
    }
}

/// What a code of BMI means for who measures.
fn in_words(name: &str) -> Option<&'static str> {
    Some(match name.strip_prefix("BMI_").unwrap_or(name) {
        "ECONNREFUSED" => "nobody listens there",
        "ETIMEDOUT" => "no answer came in time",
        "ECONNRESET" | "EPIPE" => "the other side closed the connection, or has ended",
        "EHOSTNTFD" => "there is no host of that name",
        "EHOSTUNREACH" | "ENETUNREACH" | "EHOSTDOWN" | "ENETDOWN" => "no way leads to that host",
        "EADDRINUSE" => "somebody else listens at this address",
        "EADDRNOTAVAIL" | "EADDRNTFD" => "it is no address of this host",
        "EACCES" | "EPERM" => "it is not permitted, or there is no key",
        "EPROTO" | "EPROTONOSUPPORT" | "EPROTOTYPE" => "the other side speaks something else",
        "EMSGSIZE" => "a message is longer than the other side takes",
        "ENOMEM" | "ENOBUFS" => "there is no memory for it",
        "EMFILE" => "this process may open no more files",
        "ENOSYS" => "this library does not have that",
        "EINVAL" => "the library takes it for wrong, such as an address of a method that it does not have",
        _ => return None,
    })
}

impl Bmi {
    /// Loads a library and begins as a client.
    ///
    /// # Errors
    /// The linker's or the library's.
    pub fn client(file: &Path, dialect: Dialect) -> Result<Bmi> {
        Bmi::begin(file, dialect, None)
    }

    /// Loads a library and begins as a server with a method (`bmi_tcp`) that listens at a URL.
    ///
    /// # Errors
    /// The linker's or the library's.
    pub fn server(file: &Path, dialect: Dialect, method: &str, url: &str) -> Result<Bmi> {
        Bmi::begin(file, dialect, Some((method, url)))
    }

    fn begin(file: &Path, dialect: Dialect, listen: Option<(&str, &str)>) -> Result<Bmi> {
        let functions = Functions::load(file, dialect)?;
        let mut bmi = Bmi { functions, file: file.to_owned(), context: 0, held: Vec::new(), free: Vec::new() };
        let text = |(method, url)| -> Result<_> { Ok((c_text(method)?, c_text(url)?)) };
        let words = listen.map(text).transpose()?;
        let (methods, url) = words.as_ref().map_or((null(), null()), |(methods, url)| (methods.as_ptr(), url.as_ptr()));
        let flags = if listen.is_some() { INIT_SERVER } else { 0 };
        // SAFETY: C strings or null, as the functions want them.
        let code = unsafe {
            match bmi.functions.calls {
                Calls::Radix { initialize, .. } => initialize(methods, url, flags),
                Calls::Orangefs { initialize, .. } => initialize(methods, url, flags, null_mut()),
            }
        };
        if code < 0 {
            let doing = listen.map_or_else(|| "beginning".to_owned(), |(_, url)| format!("listening at {url}"));
            let error = bmi.error(&doing, code);
            // Not begun: there is nothing to be ended.
            std::mem::forget(bmi);
            return Err(error);
        }
        // SAFETY: a place for the context.
        let code = unsafe { (bmi.functions.open_context)(&raw mut bmi.context) };
        if code < 0 { Err(bmi.error("opening a context", code)) } else { Ok(bmi) }
    }

    fn error(&self, doing: &str, code: c_int) -> BenchError {
        let name = self.functions.status.map(|status| {
            // SAFETY: it returns a C string of the library's own for any number.
            unsafe { CStr::from_ptr(status(code)) }.to_string_lossy().into_owned()
        });
        let what = name.unwrap_or_else(|| format!("error {code}"));
        let what = in_words(&what).map_or_else(|| what.clone(), |words| format!("{words} ({what})"));
        BenchError::machine(format!("{doing}, by {}", self.file.display()), what)
    }

    /// The peer at a URL.
    ///
    /// # Errors
    /// The library's.
    pub fn lookup(&self, url: &str) -> Result<Peer> {
        let (mut peer, text) = (0, c_text(url)?);
        // SAFETY: a place for the address, and a C string.
        let code = unsafe {
            match self.functions.calls {
                Calls::Radix { lookup, .. } => lookup(&raw mut peer, text.as_ptr()),
                Calls::Orangefs { lookup, .. } => lookup(&raw mut peer, text.as_ptr(), null_mut()),
            }
        };
        if code < 0 { Err(self.error(url, code)) } else { Ok(Peer(peer)) }
    }

    /// Keeps an operation's memory; returns its place.
    fn hold(&mut self, tag: i32, held: Held) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[place] = Some((tag, held));
        place
    }

    fn release(&mut self, place: usize) -> Option<(i32, Held)> {
        let held = self.held.get_mut(place)?.take()?;
        self.free.push(place);
        Some(held)
    }

    /// Operations under way.
    #[must_use]
    pub fn open(&self) -> usize {
        self.held.len() - self.free.len()
    }

    /// Packets that were dropped because they are not sealed with this process's key, or are
    /// damaged; 0 of a library that does not say.
    #[must_use]
    pub fn refused(&self) -> u64 {
        let Some(statistics) = self.functions.statistics else { return 0 };
        let mut all = [0u64; STATISTICS];
        // SAFETY: the structure is of numbers of 64 bits; no more is written than there is room
        // for.
        let code = unsafe { statistics(all.as_mut_ptr().cast(), size_of_val(&all)) };
        if code < 0 { 0 } else { all[PACKETS_REFUSED] }
    }

    /// What a post came to: nothing is under way if it is not 0.
    fn posted(&mut self, doing: &str, code: c_int, place: usize) -> Result<()> {
        if code != 0 {
            self.release(place);
        }
        if code < 0 { Err(self.error(doing, code)) } else { Ok(()) }
    }

    /// Sends an answer, a message with a tag for which the other has posted a receive.
    ///
    /// # Errors
    /// The library's.
    pub fn answer(&mut self, to: Peer, data: &Arc<[u8]>, bytes: usize, tag: i32) -> Result<()> {
        let place = self.hold(tag, Held::Sent(Arc::clone(data)));
        let (mut id, len) = (0, bytes.min(data.len()) as i64);
        let user = (place + 1) as *mut c_void;
        // SAFETY: the memory is held until the operation has ended, or for ever; it is at least so
        // long.
        let code = unsafe {
            (self.functions.send)(
                &raw mut id,
                to.0,
                data.as_ptr().cast(),
                len,
                EXT_ALLOC,
                tag,
                user,
                self.context,
                null(),
            )
        };
        self.posted("sending an answer", code, place)
    }

    /// Sends a request, an unexpected message.
    ///
    /// # Errors
    /// The library's.
    pub fn request(&mut self, to: Peer, data: &Arc<[u8]>, tag: i32) -> Result<()> {
        let place = self.hold(tag, Held::Sent(Arc::clone(data)));
        let (mut id, memory, len) = (0, data.as_ptr().cast(), data.len() as i64);
        let (user, context) = ((place + 1) as *mut c_void, self.context);
        // SAFETY: as for an answer.
        let code = unsafe {
            match self.functions.calls {
                Calls::Radix { send_unexpected, .. } => {
                    send_unexpected(&raw mut id, to.0, memory, len, EXT_ALLOC, tag, 0, user, context, null())
                }
                Calls::Orangefs { send_unexpected, .. } => {
                    send_unexpected(&raw mut id, to.0, memory, len, EXT_ALLOC, tag, user, context, null())
                }
            }
        };
        self.posted("sending a request", code, place)
    }

    /// Posts a receive; its memory comes back with its end. If the message is there already,
    /// returns it.
    ///
    /// # Errors
    /// The library's.
    pub fn receive(&mut self, from: Peer, mut into: Vec<u8>, tag: i32) -> Result<Option<(Vec<u8>, usize)>> {
        let (memory, len) = (into.as_mut_ptr().cast(), into.len() as i64);
        // The memory does not move when the vector that owns it does.
        let place = self.hold(tag, Held::Received(into));
        let (mut id, mut size) = (0, 0);
        let user = (place + 1) as *mut c_void;
        // SAFETY: as for an answer; nobody else touches the memory meanwhile.
        let code = unsafe {
            (self.functions.receive)(
                &raw mut id,
                from.0,
                memory,
                len,
                &raw mut size,
                EXT_ALLOC,
                tag,
                user,
                self.context,
                null(),
            )
        };
        if code > 0
            && let Some((_, Held::Received(data))) = self.release(place)
        {
            return Ok(Some((data, usize::try_from(size).unwrap_or(0))));
        }
        self.posted("posting a receive", code, place).map(|()| None)
    }

    /// Collects what has ended, sleeping for so long at most if that is nothing: of receives the
    /// tag, the memory and how much is in it.
    ///
    /// # Errors
    /// The library's; also of an operation that failed, unless it is an answer: its client is gone,
    /// which is no reason to stop.
    pub fn collect(&mut self, idle_ms: u32, mut received: impl FnMut(i32, Vec<u8>, usize)) -> Result<()> {
        let mut count = 0;
        let (mut ids, mut errors, mut sizes) = ([0; AT_ONCE], [0; AT_ONCE], [0; AT_ONCE]);
        let mut users = [null_mut(); AT_ONCE];
        let idle = c_int::try_from(idle_ms).unwrap_or(c_int::MAX);
        // SAFETY: arrays of as many places as are said.
        let code = unsafe {
            (self.functions.test_context)(
                AT_ONCE as c_int,
                ids.as_mut_ptr(),
                &raw mut count,
                errors.as_mut_ptr(),
                sizes.as_mut_ptr(),
                users.as_mut_ptr(),
                idle,
                self.context,
            )
        };
        if code < 0 {
            return Err(self.error("testing", code));
        }
        for i in 0..usize::try_from(count).unwrap_or(0).min(AT_ONCE) {
            let held = (users[i] as usize).checked_sub(1).and_then(|place| self.release(place));
            match held {
                Some((tag, Held::Received(data))) if errors[i] == 0 => {
                    received(tag, data, usize::try_from(sizes[i]).unwrap_or(0));
                }
                Some((_, Held::Received(_))) => return Err(self.error("waiting for an answer", errors[i])),
                _ => {}
            }
        }
        Ok(())
    }

    /// Hands out requests that have come, sleeping for so long at most if there are none.
    ///
    /// # Errors
    /// The library's, or what `each` returns.
    pub fn requests(
        &mut self,
        idle_ms: u32,
        mut each: impl FnMut(&mut Bmi, Request<'_>) -> Result<()>,
    ) -> Result<usize> {
        let (mut count, mut found) = (0, [NO_REQUEST; AT_ONCE]);
        let idle = c_int::try_from(idle_ms).unwrap_or(c_int::MAX);
        // SAFETY: an array of as many places as are said.
        let code = unsafe {
            match self.functions.calls {
                Calls::Radix { test_unexpected, .. } => {
                    test_unexpected(AT_ONCE as c_int, &raw mut count, found.as_mut_ptr(), 0, idle)
                }
                Calls::Orangefs { test_unexpected, .. } => {
                    test_unexpected(AT_ONCE as c_int, &raw mut count, found.as_mut_ptr(), idle)
                }
            }
        };
        if code < 0 {
            return Err(self.error("testing for requests", code));
        }
        let count = usize::try_from(count).unwrap_or(0).min(AT_ONCE);
        for one in &found[..count] {
            if one.error_code != 0 || one.buffer.is_null() {
                continue;
            }
            let len = usize::try_from(one.size).unwrap_or(0);
            // SAFETY: a message of the library's, of this size, until it is freed below.
            let data = unsafe { std::slice::from_raw_parts(one.buffer.cast::<u8>(), len) };
            let done = each(self, Request { from: Peer(one.addr), data, tag: one.tag });
            // SAFETY: it came from the test above, and nothing refers to it any more.
            unsafe { (self.functions.unexpected_free)(one.addr, one.buffer) };
            done?;
        }
        Ok(count)
    }
}

impl Drop for Bmi {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nothing of it is used afterwards.
        unsafe {
            (self.functions.close_context)(self.context);
            (self.functions.finalize)();
        }
        // What a library has not given back it may still use.
        self.held.drain(..).flatten().for_each(std::mem::forget);
    }
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| BenchError::Usage(format!("{}: a zero byte in it", text.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_whoever_measures_meets_have_words() {
        for (code, words) in [
            ("BMI_ECONNREFUSED", "nobody listens there"),
            ("BMI_ETIMEDOUT", "no answer came in time"),
            ("BMI_EHOSTNTFD", "there is no host of that name"),
            ("BMI_ECONNRESET", "the other side closed the connection, or has ended"),
        ] {
            assert_eq!(in_words(code), Some(words));
        }
        assert_eq!((in_words("BMI_EISDIR"), in_words("error -5")), (None, None));
    }
}
