//! Methods from outside: a shared library against `include/bmi-method.h` (spec/bmi.md 13). Nothing
//! it returns is believed that can be checked.

mod load;
pub mod upcall;

pub use load::Named;

use crate::addresses::AddrKey;
use crate::codes::{self, Code, option};
use crate::inbox::{Body, Entry};
use crate::log::tell;
use crate::memory::Block;
use crate::ops::{Limit, OpKey};
use crate::settings::Settings;
use crate::tables::{Post, Posted, Tables};
use load::{Functions, Loaded, UnexpectedInfo};
use slotmap::SecondaryMap;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// Ends, or unexpected messages, told in one call.
const AT_A_TIME: usize = 64;
/// Such calls in one pass: others have their turn too.
const ROUNDS: usize = 16;
/// Unexpected messages that were collected and not handed out (7): the module keeps the others.
const WAITING_MAX: usize = 4096;
/// A module without a descriptor is looked at so often while somebody sleeps (R5).
const LOOK: Duration = Duration::from_millis(1);
/// Longest unexpected message of a module that does not say.
const UNEXPECTED_USUAL: u64 = 16 << 10;

/// The addresses of a module: as it knows them, and as the library does.
pub struct Peers {
    keys: HashMap<usize, AddrKey>,
    addrs: SecondaryMap<AddrKey, Peer>,
    strangers: usize,
    strangers_max: usize,
}

#[derive(Clone, Copy)]
struct Peer {
    addr: usize,
    stranger: bool,
}

impl Peers {
    fn new(strangers_max: usize) -> Peers {
        Peers { keys: HashMap::new(), addrs: SecondaryMap::new(), strangers: 0, strangers_max }
    }

    fn key(&self, addr: *mut c_void) -> Option<AddrKey> {
        self.keys.get(&(addr as usize)).copied()
    }

    fn addr(&self, key: AddrKey) -> Option<*mut c_void> {
        self.addrs.get(key).map(|peer| peer.addr as *mut c_void)
    }

    fn has_room(&self) -> bool {
        self.strangers < self.strangers_max
    }

    fn insert(&mut self, key: AddrKey, addr: *mut c_void, stranger: bool) {
        self.keys.insert(addr as usize, key);
        self.addrs.insert(key, Peer { addr: addr as usize, stranger });
        self.strangers += usize::from(stranger);
    }

    fn remove(&mut self, key: AddrKey) -> Option<*mut c_void> {
        let peer = self.addrs.remove(key)?;
        self.keys.remove(&peer.addr);
        self.strangers -= usize::from(peer.stranger);
        Some(peer.addr as *mut c_void)
    }
}

/// What a module does that it should not; each kind is told once.
#[derive(Clone, Copy)]
enum Wrong {
    Id,
    Post,
    End,
    Error,
    Size,
    Count,
    Unexpected,
}

impl Wrong {
    fn text(self) -> &'static str {
        match self {
            Wrong::Id => "it gives an operation an id that is 0 or under way",
            Wrong::Post => "a post returns what is no result of one",
            Wrong::End => "it tells the end of an operation that it never began or that has ended",
            Wrong::Error => "it ends an operation with what is no error code",
            Wrong::Size => "it receives more than there is room for",
            Wrong::Count => "a test says that it tells more than it was asked for, or fails",
            Wrong::Unexpected => "it tells an unexpected message that cannot be one",
        }
    }
}

/// A module that is active.
pub struct Module {
    name: String,
    number: usize,
    functions: Functions,
    /// Initialized and not finalized.
    active: bool,
    size_max: u64,
    unexpected_max: u64,
    port: u16,
    fd: Option<RawFd>,
    /// After so long an operation that was cancelled is ended by force.
    patience: Duration,
    peers: Peers,
    /// Operations under way, by its ids and by ours.
    keys: HashMap<i64, OpKey>,
    ids: SecondaryMap<OpKey, i64>,
    told: u32,
    /// The last field: it is unloaded after all else has gone.
    _library: libloading::os::unix::Library,
}

/// What a negative return means.
fn code_of(returned: c_int) -> Code {
    let known = codes::name_of(returned).and_then(|_| returned.checked_neg()).map(Code);
    known.or_else(|| returned.checked_neg().and_then(codes::of_errno)).unwrap_or(Code::EIO)
}

impl Module {
    /// Loads and begins it. `listen`: the texts of a server's addresses. `others`: it may be one of
    /// these under another name, and is none then.
    ///
    /// # Errors
    /// The code; a line says what is wrong. Nothing of it is left.
    pub fn open<'a>(
        named: &Named<'_>,
        settings: &Settings,
        number: usize,
        listen: Option<&str>,
        flags: c_int,
        mut others: impl Iterator<Item = &'a Module>,
    ) -> Result<Option<Module>, Code> {
        let Loaded { name, functions, library } = named.load(&settings.modules)?;
        if others.any(|other| std::ptr::fn_addr_eq(other.functions.initialize, functions.initialize)) {
            return Ok(None);
        }
        let mut module = Module {
            name,
            number,
            functions,
            active: false,
            size_max: 0,
            unexpected_max: 0,
            port: 0,
            fd: None,
            patience: settings.engine.peer_timeout,
            peers: Peers::new(settings.peers_max),
            keys: HashMap::new(),
            ids: SecondaryMap::new(),
            told: 0,
            _library: library,
        };
        let at = match listen {
            None => null_mut(),
            Some(list) => list.split(',').map(str::trim).find_map(|text| module.ask(text)).ok_or_else(|| {
                tell(&format!("no address to listen at for {}", module.name));
                Code::EINVAL
            })?,
        };
        // SAFETY: its function; the address is of its own making.
        let begun = module.alone(|f| unsafe { (f.initialize)(at, number as c_int, flags) });
        if begun < 0 {
            let code = code_of(begun);
            tell(&format!("{} does not begin: {}", module.name, code.name()));
            return Err(code);
        }
        module.active = true;
        module.ask_limits();
        Ok(Some(module))
    }

    /// Runs one of its functions, which may call back.
    fn call<R>(&mut self, t: &mut Tables, function: impl FnOnce(&Functions) -> R) -> R {
        let functions = &self.functions;
        upcall::call(Some(t), &mut self.peers, self.number, || function(functions))
    }

    /// Runs one that may not.
    fn alone<R>(&mut self, function: impl FnOnce(&Functions) -> R) -> R {
        let functions = &self.functions;
        upcall::call(None, &mut self.peers, self.number, || function(functions))
    }

    fn ask_limits(&mut self) {
        let mut ask = |what: c_int, usual: u64| {
            let mut value: c_int = 0;
            // SAFETY: its function; a place for an int, as these options want.
            let r = self.alone(|f| unsafe { (f.get_info)(null_mut(), what, (&raw mut value).cast()) });
            if r < 0 { usual } else { u64::try_from(value).unwrap_or(usual) }
        };
        let size_max = ask(option::CHECK_MAXSIZE, c_int::MAX as u64);
        let unexpected_max = ask(option::GET_UNEXP_SIZE, UNEXPECTED_USUAL);
        let port = ask(option::TCP_GET_PORT, 0);
        // SAFETY: its function.
        let fd = self.alone(|f| unsafe { (f.descriptor)() });
        (self.size_max, self.unexpected_max) = (size_max, unexpected_max);
        self.port = u16::try_from(port).unwrap_or(0);
        self.fd = (fd >= 0).then_some(fd);
    }

    /// Told once for each kind.
    fn complain(&mut self, wrong: Wrong) {
        if self.told >> (wrong as u32) & 1 == 0 {
            self.told |= 1 << (wrong as u32);
            tell(&format!("{} is not to be trusted: {}", self.name, wrong.text()));
        }
    }

    /// `bmi_` and more.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Longest message, bytes.
    #[must_use]
    pub fn size_max(&self) -> u64 {
        self.size_max
    }

    /// Longest unexpected message, bytes.
    #[must_use]
    pub fn unexpected_max(&self) -> u64 {
        self.unexpected_max
    }

    /// The port it listens at; 0: none that it tells.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Readable while there is something to do.
    #[must_use]
    pub fn fd(&self) -> Option<RawFd> {
        self.fd
    }

    /// The descriptor cannot be watched.
    pub fn has_no_fd(&mut self) {
        self.fd = None;
    }

    /// When to look although nothing wakes a sleeper.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.fd.is_none().then(|| Instant::now() + LOOK)
    }

    // Addresses.

    /// Its own address of a text, if it takes it.
    fn ask(&mut self, text: &str) -> Option<*mut c_void> {
        let text = CString::new(text).ok().filter(|text| !text.is_empty())?;
        // SAFETY: its function; a C string.
        let addr = self.alone(|f| unsafe { (f.addr_lookup)(text.as_ptr()) });
        (!addr.is_null()).then_some(addr)
    }

    /// The address of a text, if it takes it; `whole` is what was looked up.
    pub fn lookup(&mut self, t: &mut Tables, text: &str, whole: &CStr) -> Option<AddrKey> {
        let addr = self.ask(text)?;
        let known = self.peers.key(addr).filter(|key| t.addrs.get(*key).is_some());
        let key = t.addrs.named(self.number, known, whole);
        if known.is_none() {
            self.peers.insert(key, addr, false);
        }
        Some(key)
    }

    /// Ends what there is with an address (U4).
    pub fn drop_connection(&mut self, t: &mut Tables, key: AddrKey) {
        let Some(addr) = self.peers.addr(key) else { return };
        // SAFETY: its function; an address of its own that it has not been told to free.
        self.call(t, |f| unsafe { (f.addr_reset)(addr) });
        let of_it: Vec<OpKey> = t.ops.under_way().filter(|(_, op)| op.addr == key).map(|(op, _)| op).collect();
        for op in &of_it {
            if let Some(id) = self.ids.remove(*op) {
                self.keys.remove(&id);
            }
        }
        t.fail(of_it, Code::ECONNRESET);
    }

    /// The address names nothing any more.
    pub fn forget(&mut self, key: AddrKey) {
        if let Some(addr) = self.peers.remove(key) {
            // SAFETY: its function; an address of its own, told for the last time.
            self.alone(|f| unsafe { (f.addr_free)(addr) });
        }
    }

    /// Whether an address lies in a range (A8).
    ///
    /// # Errors
    /// Its code.
    pub fn is_within(&mut self, t: &mut Tables, key: AddrKey, range: &str, bits: c_int) -> Result<bool, Code> {
        let addr = self.peers.addr(key).ok_or(Code::EPROTO)?;
        let range = CString::new(range).map_err(|_| Code::EINVAL)?;
        // SAFETY: its function, its address, a C string.
        match self.call(t, |f| unsafe { (f.addr_range)(addr, range.as_ptr(), bits) }) {
            r if r < 0 => Err(code_of(r)),
            r => Ok(r > 0),
        }
    }

    /// Options of its own.
    ///
    /// # Errors
    /// Its code.
    ///
    /// # Safety
    /// `parameter` is what the option wants.
    pub unsafe fn option(
        &mut self,
        t: &mut Tables,
        key: Option<AddrKey>,
        set: bool,
        what: c_int,
        parameter: *mut c_void,
    ) -> Result<c_int, Code> {
        let addr = match key {
            Some(key) => self.peers.addr(key).ok_or(Code::EINVAL)?,
            None => null_mut(),
        };
        // SAFETY: its functions, its address; the parameter is the caller's affair.
        let r = self.call(t, |f| unsafe {
            if set { (f.set_info)(addr, what, parameter) } else { (f.get_info)(addr, what, parameter) }
        });
        if r < 0 { Err(code_of(r)) } else { Ok(r) }
    }

    // Memory.

    /// Memory that suits it; null: it has none.
    pub fn allocate(&mut self, t: &mut Tables, size: i64, direction: c_int) -> *mut u8 {
        // SAFETY: its function.
        self.call(t, |f| unsafe { (f.memalloc)(size, direction) }).cast()
    }

    /// Takes it back.
    pub fn free(&mut self, base: *mut u8, size: i64, direction: c_int) {
        // SAFETY: its function; memory of its own making, told once.
        self.alone(|f| unsafe { (f.memfree)(base.cast(), size, direction) });
    }

    // Operations.

    /// Begins a send or a receive.
    ///
    /// # Errors
    /// The code of the refusal.
    pub fn post(&mut self, t: &mut Tables, post: &Post<'_>, is_recv: bool) -> Result<Posted, Code> {
        let addr = self.peers.addr(post.addr).ok_or(Code::ECONNRESET)?;
        if t.addrs.get(post.addr).is_none_or(|address| address.gone) {
            return Err(Code::ECONNRESET);
        }
        let buffers: Vec<*mut c_void> = post.pieces.iter().map(|piece| piece.base.cast()).collect();
        let sizes: Vec<i64> = post.pieces.iter().map(|piece| piece.len as i64).collect();
        let (count, total) = (buffers.len() as c_int, post.size as i64);
        let own = !post.pieces.is_empty() && post.pieces.iter().all(|p| t.lent.is_of(self.number, p.base, p.len));
        let (kind, tag) = (if own { 1 } else { 2 }, post.tag);
        let (mut id, mut actual) = (0i64, 0i64);
        let (list, to_send) = (buffers.as_ptr(), buffers.as_ptr().cast::<*const c_void>());
        let sizes = sizes.as_ptr();
        // SAFETY: its functions, its address; the arrays are readable during the call, and the
        // memory until the end is told (post's contract).
        let r = self.call(t, |f| unsafe {
            match post.unexpected {
                _ if is_recv => {
                    (f.post_recv_list)(&raw mut id, addr, list, sizes, count, total, &raw mut actual, kind, tag)
                }
                None => (f.post_send_list)(&raw mut id, addr, to_send, sizes, count, total, kind, tag),
                Some(class) => {
                    (f.post_sendunexpected_list)(&raw mut id, addr, to_send, sizes, count, total, kind, tag, class)
                }
            }
        });
        match r {
            0 if id != 0 && !self.keys.contains_key(&id) => {
                self.keys.insert(id, post.key);
                self.ids.insert(post.key, id);
                Ok(Posted::Begun)
            }
            1 if !is_recv => Ok(Posted::Done(post.size)),
            1 => match u64::try_from(actual).ok().filter(|n| *n <= post.size) {
                Some(bytes) => Ok(Posted::Done(bytes)),
                None => {
                    self.complain(Wrong::Size);
                    Err(Code::EMSGSIZE)
                }
            },
            r if r < 0 => Err(code_of(r)),
            r => {
                self.complain(if r == 0 { Wrong::Id } else { Wrong::Post });
                // It may use the memory, which is the program's again.
                self.drop_connection(t, post.addr);
                Err(Code::EIO)
            }
        }
    }

    /// Gives an operation up; its end is told as ever.
    pub fn cancel(&mut self, t: &mut Tables, key: OpKey) {
        let Some(&id) = self.ids.get(key) else { return };
        // SAFETY: its function, its id.
        self.call(t, |f| unsafe { (f.cancel)(id) });
        t.ops.limit(key, Limit::Drop, Instant::now() + self.patience);
    }

    // Progress.

    /// One pass.
    pub fn progress(&mut self, t: &mut Tables) {
        for _ in 0..ROUNDS {
            if self.collect(t) < AT_A_TIME {
                break;
            }
        }
        for class in t.inbox.looked_at().iter() {
            for _ in 0..ROUNDS {
                if t.inbox.len() >= WAITING_MAX || self.collect_unexpected(t, class) < AT_A_TIME {
                    break;
                }
            }
        }
    }

    /// What a test has told; none of it counts if it cannot be.
    fn counted(&mut self, r: c_int, out: c_int) -> usize {
        match usize::try_from(out) {
            Ok(n) if r >= 0 && n <= AT_A_TIME => n,
            _ => {
                self.complain(Wrong::Count);
                0
            }
        }
    }

    fn collect(&mut self, t: &mut Tables) -> usize {
        let (mut ids, mut errors, mut sizes) = ([0i64; AT_A_TIME], [0i32; AT_A_TIME], [0i64; AT_A_TIME]);
        let mut out: c_int = 0;
        let (i, e, s) = (ids.as_mut_ptr(), errors.as_mut_ptr(), sizes.as_mut_ptr());
        // SAFETY: its function; places for as many as it is told.
        let r = self.call(t, |f| unsafe { (f.testglobal)(AT_A_TIME as c_int, i, &raw mut out, e, s) });
        let n = self.counted(r, out);
        for at in 0..n {
            self.ended(t, ids[at], errors[at], sizes[at]);
        }
        n
    }

    fn ended(&mut self, t: &mut Tables, id: i64, error: i32, size: i64) {
        let Some(key) = self.keys.remove(&id) else { return self.complain(Wrong::End) };
        self.ids.remove(key);
        let Some(op) = t.ops.get(key) else { return };
        let result = match (error, u64::try_from(size)) {
            (0, _) if !op.is_recv => Ok(op.size),
            (0, Ok(size)) if size <= op.size => Ok(size),
            (0, _) => {
                self.complain(Wrong::Size);
                Err(Code::EMSGSIZE)
            }
            (error, _) => {
                let code = code_of(error);
                if error > 0 || code == Code::EIO && codes::name_of(error).is_none() {
                    self.complain(Wrong::Error);
                }
                Err(if error > 0 { Code::EIO } else { code })
            }
        };
        t.ops.end(key, result);
    }

    fn collect_unexpected(&mut self, t: &mut Tables, class: u8) -> usize {
        const NONE: UnexpectedInfo =
            UnexpectedInfo { error_code: 0, addr: null_mut(), buffer: null_mut(), size: 0, tag: 0 };
        let mut infos = [NONE; AT_A_TIME];
        let (mut out, place): (c_int, _) = (0, infos.as_mut_ptr());
        // SAFETY: its function; places for as many as it is told.
        let r = self.call(t, |f| unsafe { (f.testunexpected)(AT_A_TIME as c_int, &raw mut out, place, class) });
        let n = self.counted(r, out);
        for info in &infos[..n] {
            if self.arrived(t, class, info).is_none() {
                self.complain(Wrong::Unexpected);
            }
            if !info.buffer.is_null() {
                let buffer = info.buffer;
                // SAFETY: its function; its buffer, told once.
                self.call(t, |f| unsafe { (f.unexpected_free)(buffer) });
            }
        }
        n
    }

    /// An unexpected message, copied (U5); none if it cannot be one.
    fn arrived(&mut self, t: &mut Tables, class: u8, info: &UnexpectedInfo) -> Option<()> {
        let size = usize::try_from(info.size).ok().filter(|n| *n as u64 <= self.unexpected_max)?;
        let key =
            self.peers.key(info.addr).filter(|_| info.error_code == 0 && (size == 0 || !info.buffer.is_null()))?;
        let mut block = Block::for_message(size)?;
        if size > 0 {
            // SAFETY: a message of so many bytes is there (header); the block is as long, and
            // nobody else has it.
            unsafe { std::ptr::copy_nonoverlapping(info.buffer.cast::<u8>(), block.bytes_mut().as_mut_ptr(), size) };
        }
        if t.addrs.get(key)?.seen.is_none() {
            let addr = info.addr;
            // SAFETY: its function, its address.
            let text = self.call(t, |f| unsafe { (f.addr_text)(addr) });
            // SAFETY: null or a C string (header), copied at once.
            let seen = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned());
            t.addrs.get_mut(key)?.seen = seen;
        }
        t.inbox.push(class, key, Entry { tag: info.tag, size, body: Body::Here(block) }).ok()?;
        t.addrs.get_mut(key)?.waiting += 1;
        Some(())
    }

    /// Is over.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.active) {
            // SAFETY: its function, the last one that is called.
            let r = self.alone(|f| unsafe { (f.finalize)() });
            if r < 0 {
                tell(&format!("{} does not end well: {}", self.name, code_of(r).name()));
            }
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.close();
    }
}
