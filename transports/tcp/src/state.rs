//! What the kernel knows of a connection.

use crate::Connection;
use std::io;
use std::os::fd::AsRawFd;

/// Places in Linux's `struct tcp_info` (include/uapi/linux/tcp.h), which only ever grows at its
/// end.
const RETRANSMITS_AT: usize = 2;
const TOTAL_RETRANS_AT: usize = 100;
const DSACK_DUPS_AT: usize = 216;
const INFO_LEN: usize = 256;
#[cfg(test)]
const SND_MSS_AT: usize = 16;
#[cfg(test)]
const RTT_US_AT: usize = 68;
#[cfg(test)]
const SND_CWND_AT: usize = 80;
#[cfg(test)]
const PACING_RATE_AT: usize = 104;

impl Connection {
    /// Segments that the network lost, as far as is known: those sent again, but for those that the
    /// peer says it had (DSACK, RFC 2883; a receiver that was slow to acknowledge looks like a loss
    /// until then). What TCP's timer wanted to send again since it last heard something counts too,
    /// until it hears something: where the kernel has no way to the peer, it sends nothing, and
    /// counts nothing as sent again. (Not the back-off, which also tells of a receiver that has no
    /// room.) 0 where the kernel does not tell.
    ///
    /// # Errors
    /// The system's; none while the connection is open.
    pub fn lost_segments(&self) -> io::Result<u32> {
        let info = self.info()?;
        let in_vain = u32::from(info[RETRANSMITS_AT]);
        Ok(word(&info, TOTAL_RETRANS_AT).saturating_sub(word(&info, DSACK_DUPS_AT)).saturating_add(in_vain))
    }

    /// Linux's `struct tcp_info`, what the kernel does not fill being 0.
    fn info(&self) -> io::Result<[u8; INFO_LEN]> {
        let mut info = [0u8; INFO_LEN];
        let mut len = INFO_LEN as libc::socklen_t;
        let to = info.as_mut_ptr().cast();
        // SAFETY: the descriptor is open; at most `len` bytes of `info` are written (an older
        // kernel fills less).
        let r =
            unsafe { libc::getsockopt(self.socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut len) };
        if r < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(info)
    }

    /// How many windows in a round trip the connection may send, as the kernel reckoned when it
    /// last heard something. In a new connection that is what its first congestion control set:
    /// cubic and reno as `net.ipv4.tcp_pacing_ss_ratio` says (2, or for a destination known to be
    /// slow `tcp_pacing_ca_ratio`, 1.2), BBR 2/ln 2 less 1 %.
    #[cfg(test)]
    pub(crate) fn pacing_gain(&self) -> io::Result<f64> {
        let info = self.info()?;
        let of = |at| f64::from(word(&info, at));
        let (window_bytes, rtt_s) = (of(SND_CWND_AT) * of(SND_MSS_AT), of(RTT_US_AT) / 1e6);
        let rate_bytes_per_s = info[PACING_RATE_AT..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        Ok(rate_bytes_per_s as f64 * rtt_s / window_bytes)
    }
}

fn word(info: &[u8; INFO_LEN], at: usize) -> u32 {
    info[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b))
}
