//! The device below a link: what moves datagrams between this endpoint and others.

use core::ffi::c_int;
use core::net::{IpAddr, SocketAddr};
use core::ops::Deref;

use crate::TimeNs;

/// What is known of a received datagram besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxInfo {
    /// Who sent it.
    pub remote: SocketAddr,
    /// The address it was sent to; `None` when the device serves only one.
    pub local: Option<IpAddr>,
    /// ECN bits (RFC 3168); 0 where they are not known.
    pub ecn: u8,
    /// First of what one look at the device brought: it may have arrived after any clock reading
    /// made before that.
    pub fresh: bool,
}

/// How many descriptors a device may have to be woken by: two sockets of one port, and what lies
/// beside them.
pub const WAKE_SOURCES: usize = 3;

/// Where to, and from which of our addresses (`None`: the device's choice).
pub type Route = (SocketAddr, Option<IpAddr>);

/// A device that moves datagrams: sockets, rings that are shared with a network card, a simulated
/// network; and what wraps another ([`crate::Faulty`], and capture in `transports/capture`). It
/// loses what it cannot carry, as networks do, and never blocks.
///
/// Time is an argument: a device that keeps none ignores it. Calls are generic, so that a chain of
/// wrappers costs no virtual call.
pub trait Datagrams {
    /// Why the device itself cannot be used.
    type Error;

    /// Reads what has arrived, with at most `batches` looks, and calls `deliver` for each datagram.
    /// Returns their number; 0 means that nothing was there.
    ///
    /// # Errors
    /// Only such as mean that the device itself is unusable, for now or for good.
    fn recv(
        &mut self,
        now_ns: TimeNs,
        batches: usize,
        deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, Self::Error>;

    /// Queues a copy of one datagram, `head` and then `payload`; sends by itself when the batch is
    /// full.
    fn push<P: Deref<Target = [u8]>>(&mut self, now_ns: TimeNs, route: Route, head: &[u8], payload: &[P]);

    /// Sends one datagram after what is queued: as `push` and `flush` together, which a device may
    /// do at less cost where nothing is queued.
    #[inline]
    fn send_now(&mut self, now_ns: TimeNs, route: Route, datagram: &[u8]) {
        self.push::<&[u8]>(now_ns, route, datagram, &[]);
        self.flush(now_ns);
    }

    /// Sends what is queued. What the device has no room for is kept ([`Datagrams::blocked_at`]).
    fn flush(&mut self, now_ns: TimeNs);

    /// The descriptor whose room is waited for, if something waits for room: then flush again once
    /// it has some, and push little more.
    fn blocked_at(&self) -> Option<c_int>;

    /// At most so many bytes of what was handed over are to wait in this host, before more is
    /// taken; `None`: as many as the device has place for. A device that cannot tell does nothing.
    fn set_backlog(&mut self, _bytes: Option<u64>) {}

    /// When to look at the device although nothing wakes a sleeper.
    fn next_due_ns(&self) -> Option<TimeNs> {
        None
    }

    /// The same of what was handed over and is held back: until then it has not left.
    fn next_leaving_ns(&self) -> Option<TimeNs> {
        None
    }

    /// Descriptors that are readable when something has arrived; -1 is none. They stay the same.
    fn wake_sources(&self) -> [c_int; WAKE_SOURCES];

    /// Somebody is about to sleep on the [`Datagrams::wake_sources`]. False: something is there to
    /// be received first.
    fn prepare_sleep(&mut self) -> bool {
        true
    }

    /// A datagram from this peer, to this address of ours, came another way: for a device that
    /// treats who writes most better than others.
    #[inline]
    fn heard(&mut self, _remote: SocketAddr, _local: Option<IpAddr>) {}

    /// The addresses it serves, best first.
    fn local_addrs(&self) -> &[SocketAddr];

    /// Largest datagram that any of its interfaces carries.
    fn max_datagram(&self) -> u16;

    /// Bytes of payload that may wait here to be received.
    fn rx_buffer_bytes(&self) -> u64;

    /// Tells the destinations at which no program was found since the last question. Hints only:
    /// who tells may lie.
    fn take_refused(&mut self, tell: impl FnMut(SocketAddr));
}
