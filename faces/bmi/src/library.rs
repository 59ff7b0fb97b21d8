//! The library while it is initialized: its methods, and what they share.

use crate::addresses::{AddrKey, TEXT_MAX, Url};
use crate::codes::{AUTO_REF_COUNT, BIND_SPECIFIC, Code, INIT_SERVER, option};
use crate::inbox::{Body, Entry};
use crate::log::{shown, tell};
use crate::memory::{Made, Use};
use crate::method::{KINDS, Kind, Method};
use crate::module::{Module, Named};
use crate::ops::{Limit, Op, OpKey};
use crate::settings::Settings;
use crate::tables::{Post, Posted, Tables};
use std::ffi::{CString, c_int, c_void};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use weir_engine::{Iov, SleepHere};

/// A post as the program gives it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// With whom.
    pub addr: AddrKey,
    /// Its tag.
    pub tag: i32,
    /// Its class, if it is an unexpected message.
    pub unexpected: Option<u8>,
    /// Its memory.
    pub pieces: &'a [Iov],
    /// As long as all of it.
    pub size: u64,
    /// A receive.
    pub is_recv: bool,
    /// Returned with its end.
    pub user_ptr: usize,
    /// Where its end is told.
    pub context: i64,
}

/// What is known of the text of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// It was looked up before.
    Known(AddrKey),
    /// Its host is still to be resolved, for this method.
    Unresolved(Kind, Url<'a>),
}

/// An unexpected message, handed out.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected {
    /// From whom.
    pub addr: AddrKey,
    /// Its memory.
    pub buffer: *mut u8,
    /// Its length.
    pub size: usize,
    /// Its tag.
    pub tag: i32,
}

/// A word of the method list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// A method of the library.
    Ours(Kind),
    /// One from outside.
    Outside(Named<'a>),
}

/// Methods at a time (L4).
const METHODS_MAX: usize = 32;
/// Messages of one peer in a row, at the most, where the program deals with them quickly: their
/// answers share packets (B2).
const TURN_MESSAGES: usize = 16;
/// A message is dealt with quickly in less.
const QUICK: Duration = Duration::from_micros(2);

/// Everything.
pub struct Library {
    settings: Settings,
    flags: c_int,
    methods: Vec<Method>,
    /// What they share.
    pub t: Tables,
    /// Whether unexpected messages end the sleep of other tests.
    pub check_unexpected: bool,
    /// No other thread sleeps in a test, which what this one posts next would have to wake (W8).
    pub is_alone: bool,
    /// When unexpected messages were last handed out, and how many, until the program is back.
    handed: Option<(Instant, u32)>,
    forceful: bool,
}

/// What a method list names, in its order.
///
/// # Errors
/// `BMI_ENOPROTOOPT` for what can name no method, which a line says.
pub fn wanted(list: &str) -> Result<Vec<Word<'_>>, Code> {
    words(list)
        .map(|word| {
            let outside = || Named::parse(word).filter(|n| Kind::named(n.name).is_none()).map(Word::Outside);
            Kind::named(word).map(Word::Ours).or_else(outside).ok_or_else(|| {
                tell(&format!("no method is called '{}'; there are {}", shown(word), Kind::all()));
                Code::ENOPROTOOPT
            })
        })
        .collect()
}

impl Drop for Library {
    /// What began last ends first (L5).
    fn drop(&mut self) {
        while self.methods.pop().is_some() {}
    }
}

/// The addresses at which a server listens: those of its URL that this host has (P11). If it has
/// none, and `only` them were asked for, it is refused. Else it is reached at all addresses of its
/// host, perhaps by one that a router translates: that is said, as it may be mistyped.
fn here(url: &Url<'_>, only: bool) -> Result<Vec<SocketAddr>, Code> {
    let all =
        url.resolve().inspect_err(|_| tell(&format!("no address to listen at: {} resolves to none", url.host)))?;
    let ours: Vec<SocketAddr> = all.iter().copied().filter(|place| is_of_this_host(place.ip())).collect();
    if !ours.is_empty() {
        return Ok(ours);
    }
    let ips: Vec<String> = all.iter().map(|place| place.ip().to_string()).collect();
    let ips = ips.join(", ");
    let whose = if ips == url.host { String::new() } else { format!(" ({ips})") };
    let what =
        format!("listening at {}://{}{whose}: no interface of this host has this address", url.scheme, url.place());
    if only {
        tell(&what);
        return Err(Code::EADDRNOTAVAIL);
    }
    tell(&format!("{what}; clients reach this server at those that it has"));
    Ok(all)
}

/// Whether this host has an address: the system is asked, which knows of addresses that no list of
/// interfaces has. Any other reason not to bind is told where it is listened at.
fn is_of_this_host(ip: IpAddr) -> bool {
    !UdpSocket::bind((ip, 0)).is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

/// The words of a comma-separated list.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty())
}

impl Library {
    /// Begins: opens what is named. `listen` is a server's.
    ///
    /// # Errors
    /// The code of what went wrong; nothing is left of it.
    pub fn begin(methods: Option<&str>, listen: Option<&str>, flags: c_int) -> Result<Library, Code> {
        let server = flags & INIT_SERVER != 0;
        if server != listen.is_some() || (server && methods.is_none()) {
            return Err(Code::EINVAL);
        }
        Library::with(Settings::from_env()?, methods, listen, flags)
    }

    /// The same with these settings, of arguments that go together.
    pub(crate) fn with(
        settings: Settings,
        methods: Option<&str>,
        listen: Option<&str>,
        flags: c_int,
    ) -> Result<Library, Code> {
        let mut library = Library {
            settings,
            flags,
            methods: Vec::new(),
            t: Tables::default(),
            check_unexpected: true,
            is_alone: true,
            handed: None,
            forceful: false,
        };
        let wanted = methods.map(wanted).transpose()?.unwrap_or_default();
        if methods.is_some() && wanted.is_empty() {
            return Err(Code::EINVAL);
        }
        for word in wanted {
            if library.methods.len() == METHODS_MAX {
                tell(&format!("more than {METHODS_MAX} methods"));
                return Err(Code::EINVAL);
            }
            match word {
                Word::Ours(kind) if library.methods.iter().any(|m| m.kind() == Some(kind)) => {}
                Word::Ours(kind) => {
                    let at = listen.map(|list| library.listening(kind, list)).transpose()?;
                    library.activate(kind, at.as_deref())?;
                }
                Word::Outside(named) => library.load(&named, listen)?,
            }
        }
        Ok(library)
    }

    /// A method from outside.
    fn load(&mut self, named: &Named<'_>, listen: Option<&str>) -> Result<(), Code> {
        if self.methods.iter().filter_map(Method::module).any(|m| m.name() == named.name) {
            return Ok(());
        }
        let (number, flags) = (self.methods.len(), self.flags);
        let others = self.methods.iter().filter_map(Method::module);
        let module = Module::open(named, &self.settings, number, listen, flags, others)?;
        self.methods.extend(module.map(|module| Method::Module(Box::new(module))));
        Ok(())
    }

    /// Where a method is to listen.
    fn listening(&self, kind: Kind, list: &str) -> Result<Vec<SocketAddr>, Code> {
        let found = words(list).find_map(|text| match Url::of_listener(text) {
            Ok(url) if url.scheme == kind.scheme() && text.len() >= TEXT_MAX => Some(Err(Code::ENAMETOOLONG)),
            Ok(url) if url.scheme == kind.scheme() => Some(Ok(url)),
            Err(code) if text.split("://").next() == Some(kind.scheme()) => Some(Err(code)),
            _ => None,
        });
        match found {
            Some(url) => here(&url?, self.flags & BIND_SPECIFIC != 0),
            None => {
                tell(&format!("no address to listen at for bmi_{}", kind.scheme()));
                Err(Code::EINVAL)
            }
        }
    }

    fn activate(&mut self, kind: Kind, listen: Option<&[SocketAddr]>) -> Result<usize, Code> {
        let number = self.methods.len();
        let only = self.flags & BIND_SPECIFIC != 0;
        self.methods.push(Method::open(kind, &self.settings, number, listen.map(|at| (at, only)))?);
        Ok(number)
    }

    /// The methods, for whoever sleeps until one has something.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The names of all that a program may use here, without `bmi_`: the library's, then those from
    /// outside (L7).
    #[must_use]
    pub fn method_names(&self) -> Vec<String> {
        let outside = self.methods.iter().filter_map(Method::module);
        KINDS
            .iter()
            .map(|kind| kind.scheme().to_owned())
            .chain(outside.map(|m| m.name().trim_start_matches("bmi_").to_owned()))
            .collect()
    }

    /// Ends: lets what was sent arrive.
    pub fn end(&mut self) {
        for (base, made) in self.t.lent.take_all_made() {
            if let Some(module) = self.methods[made.method].module_mut() {
                module.free(base, made.size, made.direction);
            }
        }
        self.methods.iter_mut().for_each(Method::close);
    }

    // Addresses.

    /// What is known of a text (A1, A2). The name of a host is not resolved here, for that may take
    /// long: whoever calls does it, with the library open to others, and comes back.
    ///
    /// # Errors
    /// Its code.
    pub fn lookup<'a>(&mut self, text: &'a str) -> Result<Lookup<'a>, Code> {
        if text.len() >= TEXT_MAX {
            return Err(Code::ENAMETOOLONG);
        }
        let whole = CString::new(text).map_err(|_| Code::EINVAL)?;
        if let Some(known) = self.t.addrs.by_text(&whole) {
            return Ok(Lookup::Known(known));
        }
        let urls: Vec<_> = words(text).map(Url::parse).collect();
        let of = |kind: Kind| urls.iter().flatten().find(|url| url.scheme == kind.scheme()).cloned();
        for method in &mut self.methods {
            if let Some(module) = method.module_mut() {
                if let Some(found) = words(text).find_map(|word| module.lookup(&mut self.t, word, &whole)) {
                    return Ok(Lookup::Known(found));
                }
            } else if let Some(kind) = method.kind()
                && let Some(url) = of(kind)
            {
                return Ok(Lookup::Unresolved(kind, url));
            }
        }
        // A server has what it was started with; a client brings up what an address needs.
        for kind in KINDS.into_iter().filter(|_| self.flags & INIT_SERVER == 0) {
            if let Some(url) = of(kind) {
                return Ok(Lookup::Unresolved(kind, url));
            }
        }
        // What is said of the first that has a scheme of ours; else there is none.
        let ours = |text: &str| KINDS.iter().any(|k| text.split("://").next() == Some(k.scheme()));
        let wrong = words(text).filter(|text| ours(text)).find_map(|text| Url::parse(text).err());
        Err(wrong.unwrap_or(Code::ENOPROTOOPT))
    }

    /// The address of a text that was resolved, made if it is not known.
    ///
    /// # Errors
    /// Its code.
    pub fn looked_up(&mut self, text: &str, kind: Kind, places: Vec<SocketAddr>) -> Result<AddrKey, Code> {
        let whole = CString::new(text).map_err(|_| Code::EINVAL)?;
        // Another thread may have been first.
        if let Some(known) = self.t.addrs.by_text(&whole) {
            return Ok(known);
        }
        let number = match self.methods.iter().position(|m| m.kind() == Some(kind)) {
            Some(number) => number,
            None => self.activate(kind, None)?,
        };
        Ok(self.t.addrs.at(number, whole, places))
    }

    fn method_of(&self, addr: AddrKey, unknown: Code) -> Result<usize, Code> {
        self.t.addrs.get(addr).map(|a| a.method).ok_or(unknown)
    }

    /// Whether an address lies in a range (A8).
    ///
    /// # Errors
    /// Its code.
    pub fn is_within(&mut self, addr: AddrKey, range: &str, bits: c_int) -> Result<bool, Code> {
        let method = self.method_of(addr, Code::EPROTO)?;
        if let Some(module) = self.methods[method].module_mut() {
            return module.is_within(&mut self.t, addr, range, bits);
        }
        let (scheme, rest) = range.trim().split_once("://").ok_or(Code::EINVAL)?;
        let host = rest.split('/').next().unwrap_or(rest);
        // A port may stand behind it.
        let host = match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or(v6),
            None => host.split(':').next().unwrap_or(host),
        };
        let to: IpAddr = host.parse().map_err(|_| Code::EINVAL)?;
        let most = if to.is_ipv4() { 32 } else { 128 };
        let bits = u32::try_from(bits).ok().filter(|b| *b <= most).ok_or(Code::EINVAL)?;
        if !self.methods.iter().any(|m| m.scheme() == scheme) {
            return Err(Code::EPROTO);
        }
        if self.methods[method].scheme() != scheme {
            return Ok(false);
        }
        let here = self.methods[method].peer_address(&self.t, addr);
        Ok(here.is_some_and(|here| crate::addresses::agrees(here, to, bits)))
    }

    /// The address names nothing any more (A6).
    fn drop_address(&mut self, addr: AddrKey) {
        let Ok(method) = self.method_of(addr, Code::EINVAL) else { return };
        self.methods[method].drop_connection(&mut self.t, addr);
        self.forget(addr, method);
    }

    fn forget(&mut self, addr: AddrKey, method: usize) {
        let entries = self.t.inbox.forget(addr);
        self.methods[method].forget(addr, entries);
        self.t.addrs.remove(addr);
    }

    /// References (A4).
    fn refer(&mut self, addr: AddrKey, by: i32) -> Result<(), Code> {
        let address = self.t.addrs.get_mut(addr).ok_or(Code::EINVAL)?;
        let refs = address.refs.checked_add(by).filter(|refs| *refs >= 0).ok_or(Code::EINVAL)?;
        address.refs = refs;
        self.t.spent.push(addr);
        self.sweep();
        Ok(())
    }

    /// Drops addresses that nothing refers to any more (A5).
    #[inline]
    fn sweep(&mut self) {
        if !self.t.ops.released.is_empty() || !self.t.spent.is_empty() {
            self.sweep_some();
        }
    }

    fn sweep_some(&mut self) {
        while let Some(addr) = self.t.ops.released.pop() {
            if let Some(address) = self.t.addrs.get_mut(addr) {
                address.ops = address.ops.saturating_sub(1);
                if address.gone {
                    self.t.spent.push(addr);
                }
            }
        }
        while let Some(addr) = self.t.spent.pop() {
            if self.t.addrs.is_spent(addr)
                && let Ok(method) = self.method_of(addr, Code::EINVAL)
            {
                self.forget(addr, method);
            }
        }
    }

    // Options.

    /// `BMI_set_info`. `value`: the parameter, if there is one and it is a number.
    ///
    /// # Errors
    /// Its code.
    pub fn set(&mut self, addr: Option<AddrKey>, what: c_int, value: Option<c_int>) -> Result<(), Code> {
        let Some(addr) = addr else {
            match what {
                option::FORCEFUL_CANCEL_MODE => self.forceful = true,
                option::TCP_CHECK_UNEXPECTED => self.check_unexpected = value.ok_or(Code::EINVAL)? != 0,
                option::TCP_BUFFER_SEND_SIZE | option::TCP_BUFFER_RECEIVE_SIZE => {
                    let bytes = usize::try_from(value.ok_or(Code::EINVAL)?).map_err(|_| Code::EINVAL)?;
                    let send = what == option::TCP_BUFFER_SEND_SIZE;
                    self.methods.iter_mut().for_each(|m| m.set_buffer(send, bytes));
                }
                option::DROP_ADDR | option::INC_ADDR_REF | option::DEC_ADDR_REF => return Err(Code::EINVAL),
                _ => {}
            }
            return Ok(());
        };
        let method = self.method_of(addr, Code::EINVAL)?;
        match what {
            option::INC_ADDR_REF => self.refer(addr, 1),
            option::DEC_ADDR_REF => self.refer(addr, -1),
            option::DROP_ADDR => {
                self.drop_address(addr);
                self.sweep();
                Ok(())
            }
            option::TCP_CLOSE_SOCKET => {
                if self.methods[method].kind() == Some(Kind::Tcp) {
                    self.drop_address(addr);
                    self.sweep();
                }
                Ok(())
            }
            _ => self.set(None, what, value),
        }
    }

    /// `BMI_get_info` of what is a number.
    ///
    /// # Errors
    /// Its code.
    pub fn get(&self, addr: Option<AddrKey>, what: c_int) -> Result<c_int, Code> {
        // OrangeFS's own test programs ask for the longest message of an address that they have not
        // looked up yet.
        let addr = addr.filter(|addr| what != option::CHECK_MAXSIZE || self.t.addrs.get(*addr).is_some());
        let method = addr.map(|addr| self.method_of(addr, Code::EINVAL)).transpose()?;
        let of = |number: fn(&Method) -> u64| {
            let all = self.methods.iter().enumerate().filter(|(i, _)| method.is_none_or(|m| m == *i));
            all.map(|(_, m)| number(m)).min()
        };
        let most = match what {
            option::CHECK_MAXSIZE => of(Method::size_max).ok_or(Code::ENETDOWN)?,
            option::GET_UNEXP_SIZE => of(Method::unexpected_max).ok_or(Code::ENETDOWN)?,
            option::DROP_ADDR_QUERY => {
                u64::from(self.t.addrs.get(addr.ok_or(Code::EINVAL)?).is_some_and(|address| address.gone))
            }
            option::TCP_GET_PORT => {
                let all = self.methods.iter().enumerate().filter(|(i, _)| method.is_none_or(|m| m == *i));
                all.map(|(_, m)| u64::from(m.port())).find(|port| *port > 0).unwrap_or(0)
            }
            _ => return Err(Code::ENOSYS),
        };
        Ok(most.min(c_int::MAX as u64) as c_int)
    }

    /// An option that is none of the library's, of a module. None: it is not a module's affair
    /// (13.2).
    ///
    /// # Errors
    /// Its code.
    ///
    /// # Safety
    /// `parameter` is what the option wants.
    pub unsafe fn option_of_module(
        &mut self,
        addr: Option<AddrKey>,
        set: bool,
        what: c_int,
        parameter: *mut c_void,
    ) -> Option<Result<c_int, Code>> {
        if option::is_the_librarys(what, set) {
            return None;
        }
        let Some(key) = addr else {
            if set {
                for module in self.methods.iter_mut().filter_map(Method::module_mut) {
                    // SAFETY: passed on from the caller. (What one does not know another may.)
                    let _ = unsafe { module.option(&mut self.t, None, true, what, parameter) };
                }
            }
            return None;
        };
        let method = self.method_of(key, Code::EINVAL).ok()?;
        let module = self.methods[method].module_mut()?;
        // SAFETY: passed on from the caller.
        Some(unsafe { module.option(&mut self.t, addr, set, what, parameter) })
    }

    // Memory.

    /// Memory for a program; null when there is none.
    ///
    /// # Errors
    /// `BMI_EINVAL` for an address that is none.
    pub fn allocate(&mut self, addr: Option<AddrKey>, size: i64, direction: c_int) -> Result<*mut u8, Code> {
        let len = usize::try_from(size).map_err(|_| Code::EINVAL)?;
        let method = addr.map(|addr| self.method_of(addr, Code::EINVAL)).transpose()?;
        if let Some(method) = method
            && let Some(module) = self.methods[method].module_mut()
        {
            let base = module.allocate(&mut self.t, size, direction);
            if !base.is_null() && self.t.lent.lend_made(base, Made { method, size, direction }) {
                return Ok(base);
            }
        }
        Ok(self.t.lent.allocate(len))
    }

    /// Takes memory or the buffer of an unexpected message back; false: it is none (M7).
    pub fn give_back(&mut self, base: *mut u8, from: Use) -> bool {
        let made = if from == Use::Program { self.t.lent.take_made(base) } else { None };
        let Some(made) = made else { return self.t.lent.give_back(base, from) };
        if let Some(module) = self.methods[made.method].module_mut() {
            module.free(base, made.size, made.direction);
        }
        true
    }

    // Posts.

    /// Begins an operation (P1). Its id, or that it is complete with so many bytes.
    ///
    /// # Errors
    /// Its code.
    pub fn post(&mut self, wanted: &Wanted<'_>) -> Result<(Posted, OpKey), Code> {
        let context = self.t.ops.context(wanted.context).ok_or(Code::EINVAL)?;
        let method = self.method_of(wanted.addr, Code::EPROTO)?;
        let most = if wanted.unexpected.is_some() {
            self.methods[method].unexpected_max()
        } else {
            self.methods[method].size_max()
        };
        if wanted.size > most {
            return Err(Code::EMSGSIZE);
        }
        if !wanted.is_recv && self.methods[method].send_at_once(wanted) {
            self.t.counters.sends[0] += 1;
            self.t.counters.sends[1] += 1;
            self.t.counters.unexpected_sent += u64::from(wanted.unexpected.is_some());
            return Ok((Posted::Done(wanted.size), OpKey::default()));
        }
        let key = self.t.ops.insert(Op {
            context,
            addr: wanted.addr,
            method,
            is_recv: wanted.is_recv,
            user_ptr: wanted.user_ptr,
            size: wanted.size,
            done: None,
            instead: None,
            orphan: false,
            staging: None,
        });
        let &Wanted { addr, tag, unexpected, pieces, size, is_recv, .. } = wanted;
        let posted =
            self.methods[method].post(&mut self.t, &Post { key, addr, tag, unexpected, pieces, size }, is_recv);
        let kind = if is_recv { &mut self.t.counters.receives } else { &mut self.t.counters.sends };
        kind[0] += 1;
        let posted = match posted {
            Ok(Posted::Begun) => {
                if let Some(address) = self.t.addrs.get_mut(addr) {
                    address.ops += 1;
                }
                match self.t.ops.get(key).map(|op| op.done) {
                    // It has ended well already: nothing is left to be tested.
                    Some(Some((0, size))) => {
                        self.t.ops.collect(key);
                        Ok(Posted::Done(size))
                    }
                    _ => {
                        self.t.ops.fresh = is_recv.then_some(key);
                        Ok(Posted::Begun)
                    }
                }
            }
            Ok(done) => {
                self.t.ops.take_back(key);
                Ok(done)
            }
            Err(code) => {
                self.t.ops.take_back(key);
                Err(code)
            }
        }?;
        self.sweep();
        let counters = &mut self.t.counters;
        counters.unexpected_sent += u64::from(unexpected.is_some());
        let kind = if is_recv { &mut counters.receives } else { &mut counters.sends };
        kind[1] += u64::from(matches!(posted, Posted::Done(_)));
        Ok((posted, key))
    }

    /// Gives an operation up (C1 to C5); what its failure is then called.
    ///
    /// # Errors
    /// `BMI_EINVAL` for a context that is not its own.
    pub fn cancel(&mut self, key: OpKey, context: i64, instead: Code) -> Result<(), Code> {
        let context = self.t.ops.context(context).ok_or(Code::EINVAL)?;
        let Some(op) = self.t.ops.get_mut(key) else { return Ok(()) };
        if op.context != context {
            return Err(Code::EINVAL);
        }
        self.give_up(key, instead);
        self.sweep();
        Ok(())
    }

    fn give_up(&mut self, key: OpKey, instead: Code) {
        let Some(op) = self.t.ops.get_mut(key).filter(|op| op.done.is_none()) else { return };
        op.instead = op.instead.or(Some(instead));
        let method = op.method;
        let forceful = self.forceful;
        self.methods[method].cancel(&mut self.t, key, forceful);
    }

    /// Closes a context. What of it is under way is given up; false while some of it is not (W3).
    pub fn close_context(&mut self, context: usize) -> Vec<OpKey> {
        let left = self.t.ops.close_context(context);
        for &key in &left {
            self.give_up(key, Code::ECANCEL);
        }
        self.sweep();
        left
    }

    /// Those of these operations that have not ended; with `drop` their connections are.
    pub fn left_of(&mut self, keys: &[OpKey], drop: bool) -> Vec<OpKey> {
        let left: Vec<OpKey> = keys.iter().copied().filter(|key| self.t.ops.get(*key).is_some()).collect();
        if drop {
            for &key in &left {
                self.drop_for(key);
            }
        }
        left
    }

    /// The connection of an operation that does not end is dropped.
    fn drop_for(&mut self, key: OpKey) {
        let Some((addr, method)) = self.t.ops.get(key).filter(|op| op.done.is_none()).map(|op| (op.addr, op.method))
        else {
            return;
        };
        self.methods[method].drop_connection(&mut self.t, addr);
        // Whatever it still waited for.
        self.t.ops.end(key, Err(Code::ECONNRESET));
    }

    // Progress.

    /// One pass over all methods.
    pub fn progress(&mut self) {
        for method in &mut self.methods {
            method.progress(&mut self.t);
        }
        if self.t.ops.next_limit().is_some() {
            let now = Instant::now();
            while let Some((key, limit)) = self.t.ops.reached(now) {
                match limit {
                    Limit::Cancel => self.give_up(key, Code::ETIMEDOUT),
                    Limit::Drop => self.drop_for(key),
                }
            }
        }
        self.sweep();
    }

    /// The program is handed so many messages or completions: it may post as much before it tests
    /// again.
    pub fn hands_out(&mut self, count: usize) {
        if count > 1 && self.is_alone {
            self.methods.iter_mut().for_each(Method::expect_several);
        }
    }

    /// Unposted payload that is held, bytes.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        self.methods.iter().map(Method::buffered).sum()
    }

    /// Packets of `bmi_weir` that are not sealed with its key, or are damaged.
    #[must_use]
    pub fn packets_refused(&self) -> u64 {
        let of_weir = |method: &Method| if let Method::Weir(weir) = method { weir.packets_refused() } else { 0 };
        self.methods.iter().map(of_weir).sum()
    }

    /// Somebody is about to sleep on the methods' descriptors. False: do not.
    pub fn arm(&mut self) -> bool {
        self.methods.iter_mut().all(Method::arm)
    }

    /// The same, if this thread can sleep on the sockets of `bmi_weir` itself, for `most`.
    pub fn sleep_here(&mut self, most: Duration) -> SleepHere {
        let weir = self.methods.iter().position(|m| matches!(m, Method::Weir(_)));
        let Some(weir) = weir.filter(|_| !self.is_held_up()) else { return SleepHere::Never };
        let mut others = self.methods.iter_mut().enumerate().filter(|(i, _)| *i != weir);
        if !others.all(|(_, method)| method.arm()) {
            return SleepHere::LookAgain;
        }
        if let Method::Weir(m) = &self.methods[weir] { m.sleep_here(most) } else { SleepHere::Never }
    }

    /// A thread that waits here gave the core away for so long.
    pub fn yielded(&self, time: Duration) {
        for method in &self.methods {
            if let Method::Weir(m) = method {
                m.yielded(time);
            }
        }
    }

    /// This descriptor of a module cannot be waited for.
    pub fn has_no_fd(&mut self, fd: RawFd) {
        let modules = self.methods.iter_mut().filter_map(Method::module_mut);
        modules.filter(|m| m.fd() == Some(fd)).for_each(Module::has_no_fd);
    }

    /// A post waits for room, which nobody tells of.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.methods.iter().any(Method::is_held_up)
    }

    /// Shows up to `count` unexpected messages of a class, at which it looks from now on (B2).
    /// Returns how many.
    pub fn take_unexpected(&mut self, class: u8, count: usize, mut each: impl FnMut(usize, &Unexpected)) -> usize {
        self.t.inbox.look_at(class);
        if let Some((at, handed)) = self.handed.take() {
            let is_quick = at.elapsed() < QUICK * handed;
            self.t.inbox.turn_max = if is_quick { TURN_MESSAGES } else { 1 };
        }
        let mut told = 0;
        while told < count
            && self.t.inbox.has(class)
            && let Some(message) = self.next_unexpected(class)
        {
            each(told, &message);
            told += 1;
        }
        if told > 0 {
            self.hands_out(told);
            if told > 1 || self.t.inbox.has(class) {
                self.handed = Some((Instant::now(), told as u32));
            } else {
                // Who is handed one at a time is spared the clock, and is not known to be quick.
                self.t.inbox.turn_max = 1;
            }
        }
        self.t.inbox.wanted = Some(class);
        told
    }

    /// The next unexpected message of a class.
    pub(crate) fn next_unexpected(&mut self, class: u8) -> Option<Unexpected> {
        // One that is not in its buffer yet comes when it is. (Each is fetched once.)
        loop {
            let (addr, entry) = self.t.inbox.pop(class)?;
            let Entry { tag, size, body } = entry;
            let block = match body {
                Body::Here(block) => block,
                Body::Claimed(context) => {
                    if let Ok(method) = self.method_of(addr, Code::EINVAL) {
                        let entry = Entry { tag, size, body };
                        self.methods[method].take(&mut self.t, class, addr, &entry, context);
                    } else {
                        self.t.inbox.arrived(class, addr, context, None);
                    }
                    continue;
                }
                Body::Coming(_) => continue,
            };
            let address = self.t.addrs.get_mut(addr)?;
            address.waiting -= 1;
            if self.flags & AUTO_REF_COUNT != 0 {
                address.refs = address.refs.saturating_add(1);
            } else if address.gone {
                self.t.spent.push(addr);
            }
            self.methods[address.method].handed_out(&mut self.t, addr, size);
            self.t.counters.unexpected_received += 1;
            return Some(Unexpected { addr, buffer: self.t.lent.hand_out(block), size, tag });
        }
    }

    /// Asks who is at an address.
    ///
    /// # Errors
    /// Its code.
    pub fn ping(&mut self, addr: AddrKey) -> Result<(usize, u64), Code> {
        let method = self.method_of(addr, Code::EINVAL)?;
        Ok((method, self.methods[method].ping(&self.t, addr)?))
    }

    /// What was found, if it is known.
    pub fn pinged(&mut self, method: usize, ticket: u64) -> Option<Result<(), Code>> {
        self.methods[method].pinged(&mut self.t, ticket)
    }

    /// Nobody waits for it any more.
    pub fn no_ping(&mut self, method: usize, ticket: u64) {
        self.methods[method].no_ping(ticket);
    }
}
