//! The methods: one interface, whatever carries the messages (spec/bmi.md 9, 11).

use crate::addresses::AddrKey;
use crate::codes::Code;
use crate::inbox::Entry;
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
}

/// All, the best first.
pub const KINDS: [Kind; 2] = [Kind::Weir, Kind::Tcp];

impl Kind {
    /// Of a URL; behind `bmi_` the method's name.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Kind::Weir => "weir",
            Kind::Tcp => "tcp",
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
    /// `bmi_weir`.
    Weir(Box<Weir>),
    /// `bmi_tcp`.
    Tcp(Box<Tcp>),
}

/// Calls the method of the same name on whichever it is.
macro_rules! either {
    ($self:ident, $method:ident => $call:expr) => {
        match $self {
            Method::Weir($method) => $call,
            Method::Tcp($method) => $call,
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
            Kind::Tcp => Method::Tcp(Box::new(Tcp::open(settings, number, listen)?)),
        })
    }

    /// Which it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Method::Weir(_) => Kind::Weir,
            Method::Tcp(_) => Kind::Tcp,
        }
    }

    /// Longest message, bytes.
    #[must_use]
    pub fn size_max(&self) -> u64 {
        match self {
            Method::Weir(_) => weir::SIZE_MAX,
            Method::Tcp(_) => tcp::codec::SIZE_MAX,
        }
    }

    /// Longest unexpected message, bytes.
    #[must_use]
    pub fn unexpected_max(&self) -> u64 {
        match self {
            Method::Weir(_) => weir::UNEXPECTED_MAX,
            Method::Tcp(_) => tcp::codec::EAGER_MAX,
        }
    }

    /// The port it listens at; 0: none.
    #[must_use]
    pub fn port(&self) -> u16 {
        either!(self, m => m.port())
    }

    /// Begins a send or a receive.
    ///
    /// # Errors
    /// The code of the refusal.
    pub fn post(&mut self, t: &mut Tables, post: &Post<'_>, is_recv: bool) -> Result<Posted, Code> {
        either!(self, m => m.post(t, post, is_recv))
    }

    /// Gives an operation up; its end is told as ever. `forceful`: its connection goes with it, if it has begun.
    pub fn cancel(&mut self, t: &mut Tables, key: OpKey, forceful: bool) {
        match self {
            Method::Weir(m) => m.cancel(t, key),
            Method::Tcp(m) => m.cancel(t, key, forceful),
        }
    }

    /// One pass.
    pub fn progress(&mut self, t: &mut Tables) {
        either!(self, m => m.progress(t));
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
        }
    }

    /// Where its peer is.
    #[must_use]
    pub fn peer_address(&self, t: &Tables, addr: AddrKey) -> Option<IpAddr> {
        match self {
            Method::Weir(m) => m.peer_address(addr),
            Method::Tcp(_) => None,
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
        either!(self, m => m.ping(t, addr))
    }

    /// What was found, if it is known.
    pub fn pinged(&mut self, t: &mut Tables, ticket: u64) -> Option<Result<(), Code>> {
        either!(self, m => m.pinged(t, ticket))
    }

    /// Nobody waits for it any more.
    pub fn no_ping(&mut self, ticket: u64) {
        either!(self, m => m.no_ping(ticket));
    }

    /// Readable when there is something, once armed.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        either!(self, m => m.fd())
    }

    /// False: do not sleep.
    pub fn arm(&mut self) -> bool {
        either!(self, m => m.arm())
    }

    /// Unposted payload that is held, bytes.
    #[must_use]
    pub fn buffered(&self) -> u64 {
        match self {
            Method::Weir(_) => 0,
            Method::Tcp(m) => m.buffered(),
        }
    }

    /// A post waits for room, which nobody tells of: look again soon.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        matches!(self, Method::Weir(m) if m.is_held_up())
    }

    /// When to look although nothing wakes a sleeper; `waits`: operations are under way.
    #[must_use]
    pub fn next_timeout(&self, waits: bool) -> Option<Instant> {
        match self {
            Method::Weir(m) => m.next_timeout(waits),
            Method::Tcp(m) => m.next_timeout(),
        }
    }

    /// Lets what was sent arrive, for a while, and is over.
    pub fn close(&mut self) {
        either!(self, m => m.close());
    }
}
