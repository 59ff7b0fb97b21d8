//! Receiving: one call for one small datagram, as few as possible for many.

use crate::addr::{self, Control, RawAddr, Received};
use crate::batch::LINE_BYTES;
use crate::connected::Candidate;
use crate::counters::UdpCounters;
use crate::sys;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;
use weir_net::RxInfo;

/// Datagrams one `recvmmsg` may bring. Bursts of 16 sent and read by batched calls cost a third
/// less than one by one.
const BATCH: usize = 16;
/// The largest datagram or super-packet.
const BUFFER_BYTES: usize = 1 << 16;
/// Buffers lie a bit more than 64 KiB apart: at equal page offsets they would fight for the same
/// cache sets.
const STRIDE: usize = BUFFER_BYTES + 1536 + 64;
/// A message from this size on is read alone, into the first buffer, which is then still warm; the
/// call's cost hardly counts beside the copy.
const BULK_BYTES: usize = 8192;

/// Least and most reads in a row that must find something before `recvmmsg` is tried. For one
/// datagram it costs more than `recvmsg` (7 % of a small datagram's send and receive), so that each
/// time it brings just one the next try is put off twice as long.
const PATIENCE: (u8, u8) = (2, 8);

/// While something has arrived lately only one of two sockets is read each time, but both each so
/// many times when it had nothing, and when it had something.
const OTHER_EVERY: u32 = 4;
const OTHER_EVERY_BUSY: u32 = 16;
/// After so many reads without success nothing is known of where the next will arrive: both are
/// read each time.
const UNKNOWN_AFTER: u32 = 64;

/// One of the sockets that are read.
struct End {
    fd: RawFd,
    /// Successive reads that found something.
    streak: u8,
    /// At so long a streak it is a stream, worth reading until empty.
    patience: u8,
    /// The last message was a big one.
    bulk: bool,
}

impl End {
    fn new(fd: RawFd) -> End {
        End { fd, streak: 0, patience: PATIENCE.0, bulk: false }
    }
}

/// Which socket something came from.
const FIRST: usize = 0;
const CONNECTED: usize = 1;

/// The receiving half.
pub struct Rx {
    /// The socket that serves everybody, and the connected one, where there is one that is in use.
    ends: [End; 2],
    both: bool,
    /// The address of ours that the connected one has, where this socket serves several.
    connected_local: Option<IpAddr>,
    /// Where something arrived last: read there first.
    likely: usize,
    /// Reads of all, and those without success since the last with.
    reads: u32,
    empty_reads: u32,
    /// Who could be connected.
    pub candidate: Candidate,
    space: Vec<u8>,
    /// Where the buffers begin in it: at a cache line.
    start: usize,
    addrs: Vec<RawAddr>,
    controls: Vec<Control>,
    iovs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    /// An asynchronous error (ICMP) was reported by a call: the error queue should be read.
    pub errors_pending: bool,
}

// SAFETY: the pointers in `iovs` and `headers` lead into the vectors beside them, which never grow
// (so their contents never move) and are only used through it.
unsafe impl Send for Rx {}

impl Rx {
    pub fn new(fd: RawFd) -> Rx {
        let mut rx = Rx {
            ends: [End::new(fd), End::new(-1)],
            both: false,
            connected_local: None,
            likely: FIRST,
            reads: 0,
            empty_reads: 0,
            candidate: Candidate::NOBODY,
            space: vec![0; STRIDE * BATCH + LINE_BYTES],
            start: 0,
            addrs: vec![RawAddr::EMPTY; BATCH],
            controls: vec![Control::EMPTY; BATCH],
            iovs: Vec::new(),
            headers: Vec::new(),
            errors_pending: false,
        };
        rx.start = rx.space.as_ptr().align_offset(LINE_BYTES);
        rx.iovs = rx.space[rx.start..]
            .chunks_exact_mut(STRIDE)
            .map(|c| libc::iovec { iov_base: c.as_mut_ptr().cast(), iov_len: BUFFER_BYTES })
            .collect();
        rx.headers = (0..BATCH).map(|_| libc::mmsghdr { msg_hdr: sys::empty_message(), msg_len: 0 }).collect();
        for (i, h) in rx.headers.iter_mut().enumerate() {
            h.msg_hdr.msg_name = rx.addrs[i].as_mut_ptr().cast();
            h.msg_hdr.msg_iov = &raw mut rx.iovs[i];
            h.msg_hdr.msg_iovlen = 1;
            h.msg_hdr.msg_control = rx.controls[i].bytes.as_mut_ptr().cast();
            Self::rearm(h);
        }
        rx
    }

    /// Sleeps until something can be read; `false`: the time is over, or the socket is unusable.
    pub fn wait(&self, timeout: Duration) -> bool {
        sys::wait([self.ends[FIRST].fd, -1], None, Some(timeout)).unwrap_or(false)
    }

    /// Sets the lengths that the kernel overwrites.
    #[inline]
    fn rearm(h: &mut libc::mmsghdr) {
        h.msg_hdr.msg_namelen = RawAddr::ROOM;
        h.msg_hdr.msg_controllen = size_of_val(&Control::EMPTY.bytes) as _;
    }

    /// Reads the connected socket too from now on.
    pub fn add_connected(&mut self, fd: RawFd, local: Option<IpAddr>) {
        if !self.both {
            self.ends[CONNECTED] = End::new(fd);
            self.connected_local = local;
            self.both = true;
        }
    }

    /// Reads until empty, at most `max_calls` times each socket; a lone datagram after silence is
    /// one call. Returns the datagrams delivered.
    ///
    /// Of two sockets the one is read where something arrived last, the other now and then and when
    /// both have been silent for a while.
    #[inline]
    pub fn receive(
        &mut self,
        max_calls: usize,
        counters: &mut UdpCounters,
        mut deliver: impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, i32> {
        let likely = self.likely;
        let mut total = self.receive_at(likely, max_calls, counters, &mut deliver)?;
        if self.both {
            self.reads = self.reads.wrapping_add(1);
            let every = if total == 0 { OTHER_EVERY } else { OTHER_EVERY_BUSY };
            if self.reads.is_multiple_of(every) || (total == 0 && self.empty_reads >= UNKNOWN_AFTER) {
                let other = self.receive_at(1 - likely, max_calls, counters, &mut deliver)?;
                if total == 0 && other > 0 {
                    self.likely = 1 - likely;
                }
                total += other;
            }
            self.empty_reads = if total == 0 { self.empty_reads.saturating_add(1) } else { 0 };
        }
        Ok(total)
    }

    #[inline]
    fn receive_at(
        &mut self,
        at: usize,
        max_calls: usize,
        counters: &mut UdpCounters,
        deliver: &mut impl FnMut(&RxInfo, &mut [u8]),
    ) -> Result<usize, i32> {
        let mut total = 0;
        for _ in 0..max_calls {
            let end = &self.ends[at];
            let streaming = end.streak >= end.patience;
            let many = streaming && !end.bulk;
            let got = match self.call(end.fd, many) {
                Ok(n) => n,
                Err(libc::EAGAIN) => {
                    counters.rx_empty_calls += 1;
                    self.ends[at].streak = 0;
                    return Ok(total);
                }
                Err(libc::EINTR) => continue,
                Err(e) if is_asynchronous(e) => {
                    self.errors_pending = true;
                    return Ok(total);
                }
                Err(e) => return Err(e),
            };
            counters.rx_calls += 1;
            let (mut goes_on, mut bulk) = (false, false);
            for i in 0..got {
                bulk |= self.headers[i].msg_len as usize >= BULK_BYTES;
                let (datagrams, more) = self.message(at, i, counters, deliver);
                total += datagrams;
                goes_on |= more;
            }
            let end = &mut self.ends[at];
            end.bulk = bulk;
            end.streak = if goes_on { end.patience } else { (end.streak + 1).min(end.patience) };
            if many && got == 1 {
                end.patience = (end.patience * 2).min(PATIENCE.1);
                end.streak = 0;
            } else if many {
                end.patience = PATIENCE.0;
            }
            if (many && got < BATCH) || end.streak < end.patience {
                break;
            }
        }
        Ok(total)
    }

    /// One system call; returns the number of messages.
    #[inline]
    fn call(&mut self, fd: RawFd, many: bool) -> Result<usize, i32> {
        if many {
            // SAFETY: `new` made the headers point to live, distinct buffers of the lengths given;
            // they never move.
            return unsafe { sys::receive_messages(fd, &mut self.headers) };
        }
        let first = &mut self.headers[0];
        // SAFETY: as above.
        let len = unsafe { sys::receive_message(fd, &mut first.msg_hdr, 0) }?;
        first.msg_len = len as u32;
        Ok(1)
    }

    /// Delivers message `i`, which came to socket `at`, cut into its datagrams; returns their
    /// number, and whether more is to be expected behind it: behind a super-packet whose last
    /// datagram is as long as the others. One that is shorter ends what its sender had in line.
    #[inline]
    fn message(
        &mut self,
        at: usize,
        i: usize,
        counters: &mut UdpCounters,
        deliver: &mut impl FnMut(&RxInfo, &mut [u8]),
    ) -> (usize, bool) {
        let h = &mut self.headers[i];
        let len = (h.msg_len as usize).min(BUFFER_BYTES);
        let truncated = h.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        let control_len: usize = h.msg_hdr.msg_controllen as _;
        self.addrs[i].len = h.msg_hdr.msg_namelen;
        Self::rearm(h);
        let remote = self.addrs[i].decode();
        let Some(remote) = remote.filter(|_| !truncated) else {
            counters.rx_malformed += 1;
            return (0, false);
        };
        let about = if control_len == 0 { Received::default() } else { self.about(i, control_len) };
        let local = if at == CONNECTED {
            self.candidate.interrupted();
            self.connected_local
        } else {
            self.candidate.heard(remote, about.local);
            about.local
        };
        let mut info = RxInfo { remote, local, ecn: about.ecn, fresh: i == 0 };
        let data = &mut self.space[self.start + i * STRIDE..][..len];
        counters.rx_bytes += len as u64;
        match about.segment {
            Some(segment) if segment < len => {
                let mut n = 0;
                for datagram in data.chunks_mut(segment) {
                    deliver(&info, datagram);
                    info.fresh = false;
                    n += 1;
                }
                counters.rx_super_packets += 1;
                counters.rx_datagrams += n as u64;
                (n, len.is_multiple_of(segment))
            }
            _ => {
                deliver(&info, data);
                counters.rx_datagrams += 1;
                (1, false)
            }
        }
    }

    fn about(&self, i: usize, control_len: usize) -> Received {
        let bytes = &self.controls[i].bytes;
        addr::parse_control(&bytes[..control_len.min(bytes.len())])
    }
}

/// Errors that report the fate of an earlier datagram (ICMP), not of this call.
pub fn is_asynchronous(e: i32) -> bool {
    matches!(
        e,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EOPNOTSUPP
            | libc::EMSGSIZE
            | libc::EACCES
            | libc::EPERM
            | libc::ENOBUFS
    )
}

/// Reads the error queue until empty (at most 64 entries; the rest comes with the next call); tells
/// `hint` which destination was unreachable.
pub fn drain_errors(fd: RawFd, mut hint: impl FnMut(SocketAddr, i32)) -> u64 {
    let mut count = 0;
    for _ in 0..64 {
        let mut addr = RawAddr::EMPTY;
        let mut control = Control::EMPTY;
        let mut h = sys::empty_message();
        h.msg_name = addr.as_mut_ptr().cast();
        h.msg_namelen = RawAddr::ROOM;
        h.msg_control = control.bytes.as_mut_ptr().cast();
        h.msg_controllen = size_of_val(&control.bytes) as _;
        // SAFETY: the header leads to `addr` and `control` on this stack frame, and to no pieces.
        if unsafe { sys::receive_message(fd, &mut h, libc::MSG_ERRQUEUE) }.is_err() {
            break;
        }
        count += 1;
        addr.len = h.msg_namelen;
        let used: usize = h.msg_controllen as _;
        let used = used.min(control.bytes.len());
        if let (Some(to), Some(error)) = (addr.decode(), extended_error(&control.bytes[..used])) {
            hint(to, error);
        }
    }
    count
}

/// `ee_errno`, the first member of struct sock_extended_err (ip(7), IP_RECVERR).
fn extended_error(control: &[u8]) -> Option<i32> {
    addr::messages(control).find_map(|(level, kind, data)| {
        let wanted =
            matches!((level, kind), (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR));
        let number = data.get(..4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
        number.filter(|_| wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Delivers a message of these bytes with this ancillary data; returns its datagrams.
    fn cut(rx: &mut Rx, i: usize, message: &[u8], told_len: u32, control: &[u8], told_control: usize) -> Vec<Vec<u8>> {
        rx.space[rx.start + i * STRIDE..][..message.len()].copy_from_slice(message);
        rx.addrs[i] = RawAddr::encode(SocketAddr::from(([10, 0, 0, 1], 7000)), false);
        rx.controls[i].bytes[..control.len()].copy_from_slice(control);
        let h = &mut rx.headers[i];
        h.msg_len = told_len;
        h.msg_hdr.msg_flags = 0;
        h.msg_hdr.msg_namelen = rx.addrs[i].len;
        h.msg_hdr.msg_controllen = told_control as _;
        let (mut out, mut counters) = (Vec::new(), UdpCounters::default());
        let (count, _) =
            rx.message(FIRST, i, &mut counters, &mut |_: &RxInfo, datagram: &mut [u8]| out.push(datagram.to_vec()));
        assert_eq!((count, counters.rx_datagrams), (out.len(), out.len() as u64));
        out
    }

    /// Ancillary data that tells a segment size, as the kernel writes it.
    fn segments_of(size: i32) -> Vec<u8> {
        let mut control = vec![0; size_of::<usize>()];
        let len = control.len() + 12;
        control.copy_from_slice(&len.to_ne_bytes());
        for word in [libc::SOL_UDP, libc::UDP_GRO, size] {
            control.extend(word.to_ne_bytes());
        }
        control
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_super_packet_is_cut_into_its_datagrams_whatever_size_it_tells(
            message in proptest::collection::vec(any::<u8>(), 1..3000), size in prop_oneof![any::<i32>(), -2..3200i32], i in 0..BATCH,
        ) {
            let mut rx = Rx::new(-1);
            let control = segments_of(size);
            let out = cut(&mut rx, i, &message, message.len() as u32, &control, control.len());
            prop_assert_eq!(out.concat(), &message[..], "nothing is lost, doubled or mixed");
            let each = usize::try_from(size).ok().filter(|&n| n > 0).unwrap_or(message.len());
            let (last, others) = out.split_last().expect("something came");
            prop_assert!(others.iter().all(|d| d.len() == each) && (1..=each).contains(&last.len()));
        }

        #[test]
        fn any_ancillary_data_and_lengths_do_no_harm(
            control in proptest::collection::vec(any::<u8>(), 0..=128), told_control in prop_oneof![any::<usize>(), 0..200usize],
            told_len in prop_oneof![any::<u32>(), 0..3000u32], i in 0..BATCH,
        ) {
            let mut rx = Rx::new(-1);
            let out = cut(&mut rx, i, &[7; 100], told_len, &control, told_control);
            prop_assert_eq!(out.concat().len(), BUFFER_BYTES.min(told_len as usize));
        }
    }
}
