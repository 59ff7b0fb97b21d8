//! What the kernel knows of a connection.

use crate::Connection;
use std::io;
use std::os::fd::AsRawFd;

/// Places in Linux's `struct tcp_info` (include/uapi/linux/tcp.h), which only ever grows at its end.
const TOTAL_RETRANS_AT: usize = 100;
const DSACK_DUPS_AT: usize = 216;
const INFO_LEN: usize = 256;

impl Connection {
    /// Segments that the network lost, as far as is known: those sent again, but for those that the peer says it had (DSACK, RFC 2883;
    /// a receiver that was slow to acknowledge looks like a loss until then). 0 where the kernel does not tell.
    ///
    /// # Errors
    /// The system's; none while the connection is open.
    pub fn lost_segments(&self) -> io::Result<u32> {
        let mut info = [0u8; INFO_LEN];
        let mut len = INFO_LEN as libc::socklen_t;
        let to = info.as_mut_ptr().cast();
        // SAFETY: the descriptor is open; at most `len` bytes of `info` are written (an older kernel fills less).
        let r =
            unsafe { libc::getsockopt(self.socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        let word = |at: usize| info[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b));
        Ok(word(TOTAL_RETRANS_AT).saturating_sub(word(DSACK_DUPS_AT)))
    }
}
