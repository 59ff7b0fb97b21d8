//! The methods: one interface, whatever carries the messages (spec/bmi.md 9, 11).

use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::inbox::Entry;
use crate::library::Wanted;
use crate::module::Module;
use crate::ops::OpKey;
use crate::settings::Settings;
use crate::tables::{Post, Posted, Tables};
use crate::tcp::{self, Tcp};
use crate::weir::{self, Weir};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Instant;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `bmi_weir`.
    Weir,
    /// `bmi_tcp`.
    Tcp,
    /// `bmi_sctp`: `bmi_weir` by the SCTP carrier.
    Sctp,
}

/// All, the best first.
pub const KINDS: [Kind; 3] = [Kind::Weir, Kind::Tcp, Kind::Sctp];

impl Kind {
    /// Of a URL; behind `bmi_` the method's name.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Kind::Weir => "weir",
            Kind::Tcp => "tcp",
            Kind::Sctp => "sctp",
        }
    }

    /// The method of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| name.strip_prefix("bmi_") == Some(kind.scheme()))
    }

    /// The names of all, for people.
    #[must_use]
    pub fn all() -> String {
        KINDS.map(|kind| format!("bmi_{}", kind.scheme())).join(", ")
    }
}

/// A method that is active.
pub enum Method {
    /// `bmi_weir` or `bmi_sctp`.
    Weir(Box<Weir>),
    /// `bmi_tcp`.
    Tcp(Box<Tcp>),
    /// One from outside.
    Module(Box<Module>),
}

/// Calls the method of the same name on whichever it is.
macro_rules! either {
    ($self:ident, $method:ident => $call:expr) => {
        match $self {
            Method::Weir($method) => $call,
            Method::Tcp($method) => $call,
            Method::Module($method) => $call,
        }
    };
}

impl Method {
    /// Opens one. `listen`: where a server listens, and whether at nothing else.
    ///
    /// # Errors
    /// Its code; a line says what is wrong.
    pub fn open(
        kind: Kind,
        settings: &Settings,
        number: usize,
        listen: Option<(&[SocketAddr], bool)>,
    ) -> Result<Method, Code> {
        Ok(match kind {
            Kind::Weir => Method::Weir(Box::new(Weir::open(settings, number, listen)?)),
            Kind::Sctp => Method::Weir(Box::new(Weir::open_by_sctp(settings, number, listen)?)),
            Kind::Tcp => Method::Tcp(Box::new(Tcp::open(settings, number, listen)?)),
        })
    }

    /// Which of the library's it is; none of them if it is from outside.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Method::Weir(m) => Some(m.kind()),
            Method::Tcp(_) => Some(Kind::Tcp),
            Method::Module(_) => None,
        }
    }

    /// Its name without `bmi_`, which is the scheme of URLs of the library's methods.
    #[must_use]
    pub fn scheme(&self) -> &str {
        match self {
            Method::Weir(m) => m.kind().scheme(),
            Method::Tcp(_) => Kind::Tcp.scheme(),
            Method::Module(m) => m.name().trim_start_matches("bmi_"),
        }
    }

    /// It, if it is from outside.
    #[must_use]
    pub fn module(&self) -> Option<&Module> {
        match self {
            Method::Module(m) => Some(m),
            Method::Weir(_) | Method::Tcp(_) => None,
        }
    }

    /// The same, to be called.
    pub fn module_mut(&mut self) -> Option<&mut Module> {
        match self {
            Method::Module(m) => Some(m),
            Method::Weir(_) | Method::Tcp(_) => None,
        }
    }

    /// Longest message, bytes.
    #[must_use]
    pub fn size_max(&self) -> u64 {
        match self {
            Method::Weir(_) => weir::SIZE_MAX,
            Method::Tcp(_) => tcp::codec::SIZE_MAX,
            Method::Module(m) => m.size_max(),
        }
    }

    /// Longest unexpected message, bytes.
    #[must_use]
    pub fn unexpected_max(&self) -> u64 {
        match self {
            Method::Weir(_) => weir::UNEXPECTED_MAX,
            Method::Tcp(_) => tcp::codec::EAGER_MAX,
            Method::Module(m) => m.unexpected_max(),
        }
    }

    /// The port it listens at; 0: none.
    #[must_use]
    pub fn port(&self) -> u16 {
        either!(self, m => m.port())
    }

    /// Sends what needs no operation, for it is complete with that. False: nothing was done, and it
    /// is to be posted.
    pub fn send_at_once(&mut self, wanted: &Wanted<'_>) -> bool {
        if let Method::Weir(m) = self { m.send_at_once(wanted) } else { false }
    }

    /// Begins a send or a receive.
    ///
    /// # Errors
    /// The code of the refusal.
    pub fn post(&mut self, t: &mut Tables, post: &Post<'_>, is_recv: bool) -> Result<Posted, Code> {
        either!(self, m => m.post(t, post, is_recv))
    }

    /// Gives an operation up; its end is told as ever. `forceful`: its connection goes with it, if
    /// it has begun.
    pub fn cancel(&mut self, t: &mut Tables, key: OpKey, forceful: bool) {
        match self {
            Method::Weir(m) => m.cancel(t, key),
            Method::Tcp(m) => m.cancel(t, key, forceful),
            Method::Module(m) => m.cancel(t, key),
        }
    }

    /// One pass.
    pub fn progress(&mut self, t: &mut Tables) {
        either!(self, m => m.progress(t));
    }

    /// Several posts are likely to follow, and then a test.
    pub fn expect_several(&mut self) {
        match self {
            Method::Weir(m) => m.expect_several(),
            Method::Tcp(m) => m.expect_several(),
            Method::Module(_) => {}
        }
    }

    /// Puts a message that is elsewhere into a buffer.
    pub fn take(&mut self, t: &mut Tables, class: u8, from: AddrKey, entry: &Entry, context: usize) {
        if let Method::Weir(m) = self {
            m.take(t, class, from, entry, context);
        }
    }

    /// The program has an unexpected message.
    pub fn handed_out(&mut self, t: &mut Tables, from: AddrKey, size: usize) {
        if let Method::Tcp(m) = self {
            m.handed_out(t, from, size);
        }
    }

    /// Ends what there is with an address. It may be used again, if it was looked up.
    pub fn drop_connection(&mut self, t: &mut Tables, addr: AddrKey) {
        either!(self, m => m.drop_connection(t, addr));
    }

    /// The address names nothing any more; nor do messages of its that were not handed out.
    pub fn forget(&mut self, addr: AddrKey, entries: Vec<Entry>) {
        match self {
            Method::Weir(m) => {
                m.discard_all(entries);
                m.forget(addr);
            }
            Method::Tcp(m) => m.forget(addr, &entries),
            Method::Module(m) => m.forget(addr),
        }
    }

    /// Where its peer is.
    #[must_use]
    pub fn peer_address(&self, t: &Tables, addr: AddrKey) -> Option<IpAddr> {
        match self {
            Method::Weir(m) => m.peer_address(addr),
            Method::Tcp(_) | Method::Module(_) => None,
        }
        .or_else(|| t.addrs.get(addr)?.places.first().map(SocketAddr::ip))
    }

    /// Socket buffers from now on.
    pub fn set_buffer(&mut self, send: bool, bytes: usize) {
        if let Method::Tcp(m) = self {
            m.set_buffer(send, bytes);
        }
    }

    /// Asks who is at an address.
    ///
    /// # Errors
    /// Its code.
    pub fn ping(&mut self, t: &Tables, addr: AddrKey) -> Result<u64, Code> {
        match self {
            Method::Weir(m) => m.ping(t, addr),
            Method::Tcp(m) => m.ping(t, addr),
            Method::Module(_) => Err(Code::EOPNOTSUPP),
        }
    }

    /// What was found, if it is known.
    pub fn pinged(&mut self, t: &mut Tables, ticket: u64) -> Option<Result<(), Code>> {
        match self {
            Method::Weir(m) => m.pinged(t, ticket),
            Method::Tcp(m) => m.pinged(t, ticket),
            Method::Module(_) => None,
        }
    }

    /// Nobody waits for it any more.
    pub fn no_ping(&mut self, ticket: u64) {
        match self {
            Method::Weir(m) => m.no_ping(ticket),
            Method::Tcp(m) => m.no_ping(ticket),
            Method::Module(_) => {}
        }
    }

    /// Readable when there is something, once armed. A module may have none.
    #[must_use]
    pub fn fd(&self) -> Option<RawFd> {
        match self {
            Method::Weir(m) => Some(m.fd()),
            Method::Tcp(m) => Some(m.fd()),
            Method::Module(m) => m.fd(),
        }
    }

    /// False: do not sleep.
    pub fn arm(&mut self) -> bool {
        match self {
            Method::Weir(m) => m.arm(),
            Method::Tcp(m) => m.arm(),
            // Its descriptor is readable as long as there is something.
            Method::Module(_) => true,
        }
    }

    /// Unposted payload that is held, bytes.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        match self {
            Method::Weir(_) | Method::Module(_) => 0,
            Method::Tcp(m) => m.buffered(),
        }
    }

    /// Something may happen of which nobody tells, as room for a post that waits: look again soon.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        match self {
            Method::Weir(m) => m.is_held_up(),
            Method::Tcp(_) => false,
            Method::Module(m) => m.fd().is_none(),
        }
    }

    /// When to look although nothing wakes a sleeper; `waits`: operations are under way.
    #[must_use]
    pub fn next_timeout(&self, waits: bool) -> Option<Instant> {
        match self {
            Method::Weir(m) => m.next_timeout(waits),
            Method::Tcp(m) => m.next_timeout(),
            Method::Module(m) => m.next_timeout(),
        }
    }

    /// Lets what was sent arrive, for a while, and is over.
    pub fn close(&mut self) {
        either!(self, m => m.close());
    }
}
