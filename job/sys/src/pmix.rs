//! PMIx, the interface of launchers such as PRRTE and Slurm, from a library that is loaded when the
//! program runs.
//!
//! Layouts and constants are those of the PMIx standard 4.1, chapters 3 and 11 to 13, as
//! `pmix_common.h` of OpenPMIx 4.2.2 and 5.0 has them; `tests/layout.rs` holds them against the
//! header that is installed. Only what a start needs is here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// `PMIX_MAX_NSLEN` and its zero.
pub const NAMESPACE_BYTES: usize = 256;
/// `PMIX_MAX_KEYLEN` and its zero.
pub const KEY_BYTES: usize = 512;
/// `PMIX_RANK_WILDCARD`: what is true of the job.
pub const RANK_WILDCARD: u32 = u32::MAX - 1;
/// `PMIX_BOOL`, a type of values.
pub const TYPE_BOOL: u16 = 1;
/// `PMIX_INT`.
pub const TYPE_INT: u16 = 6;
/// `PMIX_UINT32`.
pub const TYPE_UINT32: u16 = 14;
/// `PMIX_BYTE_OBJECT`.
pub const TYPE_BYTE_OBJECT: u16 = 27;
/// `PMIX_GLOBAL`, a scope: for processes of this and of other hosts.
pub const SCOPE_GLOBAL: u8 = 3;
/// `PMIX_SUCCESS`.
pub const SUCCESS: c_int = 0;
/// `PMIX_COLLECT_DATA`: a fence brings along what was put.
pub const COLLECT_DATA: &CStr = c"pmix.collect";
/// `PMIX_TIMEOUT`, seconds.
pub const TIMEOUT: &CStr = c"pmix.timeout";
/// `PMIX_JOB_SIZE`.
pub const JOB_SIZE: &CStr = c"pmix.job.size";
/// `PMIX_LOCAL_SIZE`.
pub const LOCAL_SIZE: &CStr = c"pmix.local.size";

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    /// The job's name, ended by a zero.
    pub namespace: [c_char; NAMESPACE_BYTES],
    /// The process in it.
    pub rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteObject {
    /// So many bytes ...
    pub bytes: *mut c_char,
    /// ... as this.
    pub size: usize,
}

/// The union in `pmix_value_t`, of those members that are used, and as large as its largest,
/// `pmix_envar_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    /// `PMIX_BOOL`.
    pub flag: bool,
    /// `PMIX_INT`.
    pub integer: c_int,
    /// `PMIX_UINT32`.
    pub uint32: u32,
    /// `PMIX_BYTE_OBJECT`.
    pub object: ByteObject,
    /// Two pointers and a character.
    pub largest: [usize; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    /// Which member of the union.
    pub kind: u16,
    /// The value.
    pub data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    /// Ended by a zero.
    pub key: [c_char; KEY_BYTES],
    /// `pmix_info_directives_t`.
    pub flags: u32,
    /// The value.
    pub value: Value,
}

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

struct Calls {
    init: Init,
    finalize: Finalize,
    abort: Abort,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    error_string: ErrorString,
}

/// The library, and this process's place in its job once [`Pmix::init`] has found it.
pub struct Pmix {
    calls: Calls,
    me: Proc,
}

/// What a call failed with: its name and the library's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The function.
    pub call: &'static str,
    /// `pmix_status_t`, negative.
    pub status: i32,
    /// What the library says of it.
    pub text: String,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed: {} ({})", self.call, self.text, self.status)
    }
}

impl Pmix {
    /// Loads a library by its file, or by its name as the dynamic linker finds it.
    ///
    /// # Errors
    /// What the dynamic linker says, or the function that is missing.
    pub fn load(file: &Path) -> Result<Self, String> {
        // SAFETY: the library is the one that the launcher or the user names for this purpose; its
        // constructors are PMIx's own. Its plug-ins look for its symbols, hence RTLD_GLOBAL.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| words(&error))?;
        // SAFETY: the types are those of the functions' declarations in pmix.h.
        let calls = unsafe {
            Calls {
                init: symbol(&library, "PMIx_Init")?,
                finalize: symbol(&library, "PMIx_Finalize")?,
                abort: symbol(&library, "PMIx_Abort")?,
                put: symbol(&library, "PMIx_Put")?,
                commit: symbol(&library, "PMIx_Commit")?,
                fence: symbol(&library, "PMIx_Fence")?,
                get: symbol(&library, "PMIx_Get")?,
                error_string: symbol(&library, "PMIx_Error_string")?,
            }
        };
        // It has threads of its own from now on, which would run on in unloaded code.
        std::mem::forget(library);
        Ok(Self { calls, me: Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 } })
    }

    /// Greets the launcher; returns the job's name and this process's rank.
    ///
    /// # Errors
    /// If there is none, or it is of another version.
    pub fn init(&mut self) -> Result<(String, u32), Failed> {
        // SAFETY: the structure is filled by the library and outlives the call; no attributes are
        // given.
        let status = unsafe { (self.calls.init)(&raw mut self.me, ptr::null_mut(), 0) };
        self.check("PMIx_Init", status)?;
        let name: Vec<u8> = self.me.namespace.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
        Ok((String::from_utf8_lossy(&name).into_owned(), self.me.rank))
    }

    /// Puts bytes for all ranks, who can get them after the next [`Pmix::fence`].
    ///
    /// # Errors
    /// If the library takes no more.
    pub fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), Failed> {
        let key = name(key);
        // The library copies what it is given; it does not write to it.
        let object = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = Value { kind: TYPE_BYTE_OBJECT, data: Data { object } };
        // SAFETY: key and value outlive the call, the key has its full length, the value's type
        // names the member that is set.
        let status = unsafe { (self.calls.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)?;
        // SAFETY: no arguments.
        let status = unsafe { (self.calls.commit)() };
        self.check("PMIx_Commit", status)
    }

    /// Returns when all ranks have called it, or after so many seconds where the launcher heeds
    /// that.
    ///
    /// # Errors
    /// If not all came.
    pub fn fence(&mut self, limit_s: u32) -> Result<(), Failed> {
        let mut all = self.me;
        all.rank = RANK_WILDCARD;
        let seconds = c_int::try_from(limit_s).unwrap_or(c_int::MAX);
        let infos = [
            info(COLLECT_DATA, Value { kind: TYPE_BOOL, data: Data { flag: true } }),
            info(TIMEOUT, Value { kind: TYPE_INT, data: Data { integer: seconds } }),
        ];
        // SAFETY: both arrays outlive the call and have as many elements as is said.
        let status = unsafe { (self.calls.fence)(&raw const all, 1, infos.as_ptr(), infos.len()) };
        self.check("PMIx_Fence", status)
    }

    /// What rank `from` put under this key.
    ///
    /// # Errors
    /// If it put nothing, or no bytes.
    pub fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Failed> {
        let value = self.value(from, &name(key))?;
        let bytes = if value.kind == TYPE_BYTE_OBJECT {
            // SAFETY: the type says that this member is set.
            let object = unsafe { value.data.object };
            let bytes = match object.size {
                0 => Vec::new(),
                // SAFETY: the library allocated so many bytes and left them to us.
                size => unsafe { std::slice::from_raw_parts(object.bytes.cast::<u8>(), size) }.to_vec(),
            };
            // SAFETY: PMIX_VALUE_DESTRUCT frees them by free(3); nobody else has them.
            unsafe { libc::free(object.bytes.cast::<c_void>()) };
            Some(bytes)
        } else {
            None
        };
        bytes.ok_or_else(|| Failed { call: "PMIx_Get", status: 0, text: format!("a value of type {}", value.kind) })
    }

    /// A number that is true of the whole job.
    ///
    /// # Errors
    /// If the launcher does not tell it.
    pub fn job_number(&mut self, key: &CStr) -> Result<u32, Failed> {
        let value = self.value(RANK_WILDCARD, &padded(key))?;
        match value.kind {
            // SAFETY: the type says that this member is set.
            TYPE_UINT32 => Ok(unsafe { value.data.uint32 }),
            other => Err(Failed { call: "PMIx_Get", status: 0, text: format!("a value of type {other}") }),
        }
    }

    fn value(&mut self, from: u32, key: &[c_char; KEY_BYTES]) -> Result<Value, Failed> {
        let mut of = self.me;
        of.rank = from;
        let mut found = MaybeUninit::<*mut Value>::new(ptr::null_mut());
        // SAFETY: process and key outlive the call; the result is a pointer that the library sets
        // where it returns success.
        let status = unsafe { (self.calls.get)(&raw const of, key.as_ptr(), ptr::null(), 0, found.as_mut_ptr()) };
        self.check("PMIx_Get", status)?;
        // SAFETY: it was initialised above.
        let found = unsafe { found.assume_init() };
        if found.is_null() {
            return Err(Failed { call: "PMIx_Get", status, text: "no value".into() });
        }
        // SAFETY: the library returned a value of its own making and left it to us; what it points
        // to is freed by who takes it.
        let value = unsafe { *found };
        // SAFETY: PMIX_VALUE_RELEASE frees it by free(3).
        unsafe { libc::free(found.cast::<c_void>()) };
        Ok(value)
    }

    /// Asks the launcher to end all ranks.
    ///
    /// # Errors
    /// If it cannot be told.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Failed> {
        let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the text outlives the call; no list of processes means all of the job.
        let status = unsafe { (self.calls.abort)(code, text.as_ptr(), ptr::null_mut(), 0) };
        self.check("PMIx_Abort", status)
    }

    /// Leaves the job.
    ///
    /// # Errors
    /// If the launcher does not answer.
    pub fn finalize(&mut self) -> Result<(), Failed> {
        // SAFETY: no attributes.
        let status = unsafe { (self.calls.finalize)(ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }

    fn check(&self, call: &'static str, status: c_int) -> Result<(), Failed> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: it returns a text that lives as long as the library.
        let text = unsafe { (self.calls.error_string)(status) };
        let text = if text.is_null() {
            "no reason given".into()
        } else {
            // SAFETY: not null, and ended by a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(Failed { call, status, text })
    }
}

/// # Safety
/// `T` must be the type of that function.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's.
    let found: Result<Symbol<T>, _> = unsafe { library.get(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|error| words(&error))
}

/// What the dynamic linker says, which is the cause of the error and not in its text.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn padded(text: &CStr) -> [c_char; KEY_BYTES] {
    let mut all = [0; KEY_BYTES];
    for (room, byte) in all.iter_mut().zip(text.to_bytes().iter().take(KEY_BYTES - 1)) {
        *room = byte.cast_signed();
    }
    all
}

fn name(text: &str) -> [c_char; KEY_BYTES] {
    padded(&CString::new(text).unwrap_or_default())
}

fn info(key: &CStr, value: Value) -> Info {
    Info { key: padded(key), flags: 0, value }
}
