//! The socket as the engine sees it.

use crate::config::UdpConfig;
use crate::counters::UdpCounters;
use crate::interfaces;
use crate::open::{self, Opened};
use crate::rx::{self, Rx};
use crate::sys;
use crate::tx::Tx;
use socket2::Socket;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// What is known of a received datagram besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxInfo {
    /// Who sent it.
    pub remote: SocketAddr,
    /// The address it was sent to; `None` when the socket serves only one.
    pub local: Option<IpAddr>,
    /// ECN bits (RFC 3168); 0 unless [`UdpConfig::ecn`] is set.
    pub ecn: u8,
}

/// One UDP socket, non-blocking, serving all peers.
pub struct UdpTransport {
    socket: Socket,
    local: Vec<SocketAddr>,
    rcvbuf_bytes: u64,
    max_datagram: u16,
    rx: Rx,
    tx: Tx,
    counters: UdpCounters,
}

impl UdpTransport {
    /// Opens a socket.
    ///
    /// # Errors
    /// No such address or interface, port taken, no permission: each in one line that names the value.
    pub fn bind(cfg: &UdpConfig) -> io::Result<UdpTransport> {
        let Opened {
            socket,
            local,
            v6,
            multi,
            rcvbuf_bytes,
            max_datagram,
        } = open::open(cfg)?;
        let fd = socket.as_raw_fd();
        let mut segments = 1;
        if cfg.offload {
            segments = 64;
            let _ = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        Ok(UdpTransport {
            rx: Rx::new(fd),
            tx: Tx::new(fd, v6, multi, segments, cfg.parked_limit_bytes),
            socket,
            local,
            rcvbuf_bytes,
            max_datagram,
            counters: UdpCounters::default(),
        })
    }

    /// The addresses it serves, best first.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local
    }

    /// Largest UDP payload the first hop towards `remote` carries: a candidate for path MTU discovery. Looks up the route: some 10 us.
    #[must_use]
    pub fn mtu_hint(&self, remote: SocketAddr) -> u16 {
        interfaces::mtu_hint(remote)
    }

    /// Largest UDP payload that any served interface carries.
    #[must_use]
    pub fn max_datagram(&self) -> u16 {
        self.max_datagram
    }

    /// Receive buffer the kernel gave, bytes of payload. Small datagrams use several times their size of it.
    #[must_use]
    pub fn rx_buffer_bytes(&self) -> u64 {
        self.rcvbuf_bytes
    }

    /// The descriptor, for poll(2).
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Reads what has arrived, in at most `max_batches` system calls, and calls `f` for each datagram (super-packets are cut). Returns their number;
    /// 0 means that nothing was there. After silence only one datagram is read: more may be waiting.
    ///
    /// # Errors
    /// Only such as mean that the socket itself is unusable.
    #[inline]
    pub fn recv(
        &mut self,
        max_batches: usize,
        f: impl FnMut(RxInfo, &mut [u8]),
    ) -> io::Result<usize> {
        let n = self
            .rx
            .receive(max_batches, &mut self.counters, f)
            .map_err(io::Error::from_raw_os_error)?;
        if self.rx.errors_pending {
            self.rx.errors_pending = false;
            self.drain_errors();
        }
        Ok(n)
    }

    /// Queues one datagram of `head` (copied) and `payload` (referred to). `local` is the source address, for sockets that serve several.
    /// Sends by itself when the batch is full. One that is too long is counted and dropped, as the network would.
    ///
    /// # Safety
    /// The payload must stay valid and unchanged until the next [`UdpTransport::flush`] returns.
    #[inline]
    pub unsafe fn push(
        &mut self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        head: &[u8],
        payload: &[IoSlice<'_>],
    ) {
        // SAFETY: promised by the caller.
        unsafe {
            self.tx
                .push((remote, local), head, payload, &mut self.counters)
        };
    }

    /// Sends what is queued. What the socket has no room for is copied and kept ([`UdpTransport::blocked`]), so that no reference to a payload
    /// is left. Datagrams the kernel refuses are counted as lost.
    ///
    /// # Errors
    /// None at present; the result is there for transports that can break.
    #[inline]
    pub fn flush(&mut self) -> io::Result<()> {
        self.tx.flush(&mut self.counters);
        if self.tx.take_errors_pending() {
            self.drain_errors();
        }
        Ok(())
    }

    /// Is something waiting for room in the socket? Then `flush` again after `wait`, and push little more: the waiting room is bounded.
    #[must_use]
    #[inline]
    pub fn blocked(&self) -> bool {
        self.tx.blocked()
    }

    /// Sleeps until something can be read (or, when blocked, sent) or the time is over; `None` waits for ever.
    /// Returns whether there is something to do; an interrupting signal counts as such.
    ///
    /// # Errors
    /// What ppoll(2) reports.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        sys::wait(self.fd(), self.blocked(), timeout)
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> &UdpCounters {
        &self.counters
    }

    /// Datagrams the kernel dropped because the receive buffer was full, where it can tell.
    #[must_use]
    pub fn receive_drops(&self) -> Option<u32> {
        sys::receive_drops(self.fd())
    }

    /// Datagrams a super-packet may hold; 1: segmentation offload is off.
    #[must_use]
    pub fn offload_segments(&self) -> usize {
        self.tx.segments()
    }

    #[cold]
    fn drain_errors(&mut self) {
        self.counters.icmp_errors += rx::drain_errors(self.socket.as_raw_fd(), |_, _| {});
    }
}
