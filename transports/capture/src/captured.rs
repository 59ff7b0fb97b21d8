//! A device, and a file of what passes it.

use crate::capture::{Capture, Direction, Ended};
use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::path::Path;
use weir_net::{Datagrams, Route, RxInfo, TimeNs, WAKE_SOURCES};

/// A device of which everything sent and received may be written to a file; while nothing is, it
/// costs a look whether it is.
///
/// The file tells what the device was given and gave: of a device behind [`weir_net::Faulty`] what
/// the bad network let through on the way out, and what came before it on the way in.
pub struct Captured<D> {
    device: D,
    capture: Option<Box<Capture>>,
}

impl<D: Datagrams> Captured<D> {
    /// The device, of which nothing is written.
    pub fn new(device: D) -> Captured<D> {
        Captured { device, capture: None }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Writes everything sent and received from now on to a pcapng file. When that fails later
    /// (disk full), capture ends, and `ended` is told why. `false`: another endpoint writes that
    /// file, and nothing is captured here.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn capture_to(&mut self, path: impl AsRef<Path>, ended: Ended) -> io::Result<bool> {
        let Some(capture) = Capture::create(path.as_ref(), ended)? else { return Ok(false) };
        self.capture = Some(Box::new(capture));
        Ok(true)
    }

    /// Is a capture being written?
    #[must_use]
    pub fn is_capturing(&self) -> bool {
        self.capture.as_ref().is_some_and(|c| c.is_running())
    }

    #[cold]
    fn recv_captured(
        &mut self,
        now_ns: TimeNs,
        batches: usize,
        mut deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, D::Error> {
        let Some(capture) = &mut self.capture else { return Ok(0) };
        let own = self.device.local_addrs().to_vec();
        self.device.recv(now_ns, batches, |info, datagram| {
            let to = own_addr(&own, info.local, info.remote);
            capture.datagram(Direction::In, info.remote, to, &[IoSlice::new(datagram)]);
            deliver(info, datagram);
        })
    }

    #[cold]
    fn capture_push<P: Deref<Target = [u8]>>(&mut self, (remote, local): Route, head: &[u8], payload: &[P]) {
        let Some(capture) = &mut self.capture else { return };
        let mut parts = vec![IoSlice::new(head)];
        parts.extend(payload.iter().map(|p| IoSlice::new(p)));
        capture.datagram(Direction::Out, own_addr(self.device.local_addrs(), local, remote), remote, &parts);
    }
}

impl<D: Datagrams> Datagrams for Captured<D> {
    type Error = D::Error;

    #[inline]
    fn recv(
        &mut self,
        now_ns: TimeNs,
        batches: usize,
        deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, D::Error> {
        if self.capture.is_some() {
            return self.recv_captured(now_ns, batches, deliver);
        }
        self.device.recv(now_ns, batches, deliver)
    }

    #[inline]
    fn push<P: Deref<Target = [u8]>>(&mut self, now_ns: TimeNs, route: Route, head: &[u8], payload: &[P]) {
        if self.capture.is_some() {
            self.capture_push(route, head, payload);
        }
        self.device.push(now_ns, route, head, payload);
    }

    #[inline]
    fn send_now(&mut self, now_ns: TimeNs, route: Route, datagram: &[u8]) {
        if self.capture.is_some() {
            self.capture_push::<&[u8]>(route, datagram, &[]);
        }
        self.device.send_now(now_ns, route, datagram);
    }

    #[inline]
    fn flush(&mut self, now_ns: TimeNs) {
        self.device.flush(now_ns);
    }

    #[inline]
    fn blocked_at(&self) -> Option<c_int> {
        self.device.blocked_at()
    }

    fn next_due_ns(&self) -> Option<TimeNs> {
        self.device.next_due_ns()
    }

    fn next_leaving_ns(&self) -> Option<TimeNs> {
        self.device.next_leaving_ns()
    }

    fn wake_sources(&self) -> [c_int; WAKE_SOURCES] {
        self.device.wake_sources()
    }

    fn set_backlog(&mut self, bytes: Option<u64>) {
        self.device.set_backlog(bytes);
    }

    fn prepare_sleep(&mut self) -> bool {
        self.device.prepare_sleep()
    }

    fn local_addrs(&self) -> &[SocketAddr] {
        self.device.local_addrs()
    }

    fn max_datagram(&self) -> u16 {
        self.device.max_datagram()
    }

    fn rx_buffer_bytes(&self) -> u64 {
        self.device.rx_buffer_bytes()
    }

    #[inline]
    fn take_refused(&mut self, tell: impl FnMut(SocketAddr)) {
        self.device.take_refused(tell);
    }
}

/// The address of ours that a datagram bears in a capture.
fn own_addr(own: &[SocketAddr], told: Option<IpAddr>, remote: SocketAddr) -> SocketAddr {
    let same_family = own.iter().find(|a| a.is_ipv4() == remote.is_ipv4());
    let first = same_family.or(own.first()).copied().unwrap_or(remote);
    told.map_or(first, |ip| SocketAddr::new(ip, first.port()))
}
