//! What the kernel knows of a connection.

use crate::Connection;
use std::io;
use std::os::fd::AsRawFd;

/// A part of Linux's `TCP_INFO`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TcpState {
    /// Segments sent again since the connection began.
    pub retransmitted_segments: u32,
    /// Segments under way that the peer has not acknowledged. 0 with bytes waiting: the peer's window is shut.
    pub unacknowledged_segments: u32,
    /// Time since the peer last acknowledged something, milliseconds.
    pub silent_ms: u32,
}

impl Connection {
    /// Bytes written that the peer's TCP has not acknowledged (`SIOCOUTQ`).
    ///
    /// # Errors
    /// The system's; none while the connection is open.
    pub fn unacknowledged_bytes(&self) -> io::Result<u64> {
        let mut n: libc::c_int = 0;
        // SAFETY: the descriptor is open; TIOCOUTQ (which SIOCOUTQ is) writes one int.
        let r = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut n) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs().into()) }
    }

    /// The connection's state.
    ///
    /// # Errors
    /// The system's; none while the connection is open.
    pub fn state(&self) -> io::Result<TcpState> {
        // SAFETY: all-zero is a value of this plain C struct.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
        let to = (&raw mut info).cast();
        // SAFETY: the descriptor is open; at most `len` bytes of `info` are written (an older kernel fills less).
        let r = unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len)
        };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(TcpState {
            retransmitted_segments: info.tcpi_total_retrans,
            unacknowledged_segments: info.tcpi_unacked,
            silent_ms: info.tcpi_last_ack_recv,
        })
    }
}
