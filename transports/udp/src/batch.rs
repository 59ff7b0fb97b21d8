//! Datagrams waiting to be sent, sorted into groups that one system call can carry.
//!
//! A group is what goes out as one (super-)packet: datagrams of one size to one destination, the last perhaps shorter. Groups keep the
//! order of pushing within a destination, not between destinations.

use libc::iovec;
use std::net::{IpAddr, SocketAddr};

/// Most pieces the kernel gathers in one message (`UIO_MAXIOV`).
pub const MAX_IOVS: usize = 1024;
/// Groups sent by one `sendmmsg`: enough to spread its cost, few enough to search from the end.
pub const MAX_GROUPS: usize = 64;
/// Room for headers and small payloads: a batch of 1024 small datagrams, or four of the largest when copied whole.
const ARENA_BYTES: usize = 256 << 10;
/// A payload up to this size is copied behind its header: that is cheaper than one more piece, and one piece needs no message header.
const COPY_BYTES: usize = 512;

/// Datagrams that go out together.
pub struct Group {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
    /// Size of all datagrams but the last.
    pub segment: usize,
    /// Bytes of all together.
    pub bytes: usize,
    /// Number of datagrams.
    pub count: usize,
    /// The last one was shorter: no other may follow.
    closed: bool,
    /// The pieces, in order.
    pub iovs: Vec<iovec>,
}

/// What a destination allows a group to hold.
#[derive(Clone, Copy)]
pub struct Limits {
    pub segments: usize,
    pub bytes: usize,
}

/// The groups not yet sent.
pub struct Batch {
    arena: Vec<u8>,
    arena_used: usize,
    /// Reused: the first `used` are live. Their `iovs` keep their room.
    groups: Vec<Group>,
    used: usize,
}

// SAFETY: the pointers in `iovs` are only read, by the thread that holds the transport exclusively; `push`'s contract keeps what they
// point to alive whichever thread that is.
unsafe impl Send for Batch {}

/// Why a datagram was not taken.
pub struct Full;

fn piece(data: &[u8]) -> iovec {
    iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() }
}

impl Batch {
    pub fn new() -> Batch {
        Batch { arena: vec![0; ARENA_BYTES], arena_used: 0, groups: Vec::with_capacity(MAX_GROUPS), used: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The live groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups[..self.used]
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used = 0;
        self.arena_used = 0;
    }

    /// Takes a datagram of `len` bytes: copies `head`, refers to `payload`.
    #[inline]
    pub fn push(
        &mut self,
        (remote, local): (SocketAddr, Option<IpAddr>),
        len: usize,
        head: &[u8],
        payload: &[std::io::IoSlice<'_>],
        limits: Limits,
    ) -> Result<(), Full> {
        let gathered = len - head.len() > COPY_BYTES && payload.len() < MAX_IOVS;
        let copied = if gathered { head.len() } else { len };
        if self.arena.len() - self.arena_used < copied {
            return Err(Full);
        }
        let pieces = 1 + if gathered { payload.len() } else { 0 };
        let index = self.group_for(remote, local, len, pieces, limits)?;
        let start = self.arena_used;
        self.arena[start..start + head.len()].copy_from_slice(head);
        self.arena_used += head.len();
        if !gathered {
            for p in payload {
                self.arena[self.arena_used..self.arena_used + p.len()].copy_from_slice(p);
                self.arena_used += p.len();
            }
        }
        let group = &mut self.groups[index];
        group.add(piece(&self.arena[start..self.arena_used]));
        if gathered {
            for p in payload.iter().filter(|p| !p.is_empty()) {
                group.iovs.push(piece(p));
            }
        }
        group.bytes += len;
        group.count += 1;
        group.closed = len < group.segment;
        Ok(())
    }

    /// The group that may take a datagram of `len` bytes in so many pieces; makes one if none may.
    #[inline]
    fn group_for(
        &mut self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        len: usize,
        pieces: usize,
        limits: Limits,
    ) -> Result<usize, Full> {
        // Only the newest group of a destination: a datagram must not overtake.
        if let Some(i) = self.groups().iter().rposition(|g| g.remote == remote && g.local == local) {
            let g = &self.groups[i];
            if !g.closed && len <= g.segment && len > 0 {
                if g.count < limits.segments && g.bytes + len <= limits.bytes && g.iovs.len() + pieces <= MAX_IOVS {
                    return Ok(i);
                }
                // A full super-packet does not wait: the receiver can work on it while the next one is gathered.
                if limits.segments > 1 {
                    return Err(Full);
                }
            }
        }
        if self.used == MAX_GROUPS {
            return Err(Full);
        }
        if self.used == self.groups.len() {
            let iovs = Vec::with_capacity(4);
            self.groups.push(Group { remote, local, segment: len, bytes: 0, count: 0, closed: false, iovs });
        } else {
            let g = &mut self.groups[self.used];
            (g.remote, g.local, g.segment, g.bytes, g.count, g.closed) = (remote, local, len, 0, 0, false);
            g.iovs.clear();
        }
        self.used += 1;
        Ok(self.used - 1)
    }
}

impl Group {
    /// Appends a piece; headers that follow each other in the arena become one.
    #[inline]
    fn add(&mut self, p: iovec) {
        match self.iovs.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == p.iov_base.cast() => {
                last.iov_len += p.iov_len
            }
            _ => self.iovs.push(p),
        }
    }

    /// Copies bytes `[from, from + len)` to the end of `out`.
    pub fn copy_range(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        let (mut skip, mut left) = (from, len);
        for iov in &self.iovs {
            let here = iov.iov_len.saturating_sub(skip).min(left);
            if here > 0 {
                // SAFETY: the pieces are live until the group is dropped from the batch (contract of `push`), and `skip + here` lies
                // within this one.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(iov.iov_base.cast::<u8>().add(skip), here) });
            }
            skip = skip.saturating_sub(iov.iov_len);
            left -= here;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;

    const LIMITS: Limits = Limits { segments: 4, bytes: 1000 };

    fn to(port: u16) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::from(([127, 0, 0, 1], port)), None)
    }

    fn shape(b: &Batch) -> Vec<(u16, usize, usize, usize)> {
        b.groups().iter().map(|g| (g.remote.port(), g.segment, g.count, g.bytes)).collect()
    }

    #[test]
    fn equal_sizes_to_one_destination_join_and_a_shorter_one_closes() {
        let mut b = Batch::new();
        for len in [10, 10, 7, 10, 12, 12] {
            assert!(b.push(to(1), len, &vec![1; len], &[], LIMITS).is_ok());
        }
        assert_eq!(shape(&b), [(1, 10, 3, 27), (1, 10, 1, 10), (1, 12, 2, 24)]);
    }

    #[test]
    fn destinations_may_alternate() {
        let mut b = Batch::new();
        for port in [1, 2, 1, 2, 1] {
            assert!(b.push(to(port), 5, &[port as u8; 5], &[], LIMITS).is_ok());
        }
        assert_eq!(shape(&b), [(1, 5, 3, 15), (2, 5, 2, 10)]);
        let mut bytes = Vec::new();
        b.groups()[1].copy_range(3, 6, &mut bytes);
        assert_eq!(bytes, [2; 6]);
    }

    #[test]
    fn a_full_group_asks_for_a_flush() {
        let mut b = Batch::new();
        for _ in 0..4 {
            assert!(b.push(to(1), 5, &[0; 5], &[], LIMITS).is_ok());
        }
        assert!(b.push(to(1), 5, &[0; 5], &[], LIMITS).is_err());
        b.clear();
        assert!(b.push(to(1), 5, &[0; 5], &[], LIMITS).is_ok());
        assert_eq!(shape(&b), [(1, 5, 1, 5)]);
    }

    #[test]
    fn pieces_are_gathered_in_order_and_headers_alone_merge() {
        let mut b = Batch::new();
        let body = [9u8; 620];
        let p = [IoSlice::new(&body[..5]), IoSlice::new(&[]), IoSlice::new(&body[5..])];
        assert!(b.push(to(1), 623, &[1, 2, 3], &p, LIMITS).is_ok());
        assert!(b.push(to(2), 3, &[4, 5, 6], &[], LIMITS).is_ok());
        assert!(b.push(to(2), 3, &[7, 8, 9], &[], LIMITS).is_ok());
        assert_eq!(b.groups()[0].iovs.len(), 3);
        assert_eq!(b.groups()[1].iovs.len(), 1);
        let mut bytes = Vec::new();
        b.groups()[0].copy_range(0, 623, &mut bytes);
        assert_eq!(bytes[..3], [1, 2, 3]);
        assert_eq!(bytes[3..], body);
        bytes.clear();
        b.groups()[1].copy_range(3, 3, &mut bytes);
        assert_eq!(bytes, [7, 8, 9]);
    }

    #[test]
    fn small_payloads_are_copied_behind_their_headers() {
        let mut b = Batch::new();
        for i in 0..3u8 {
            let body = [i; 8];
            assert!(b.push(to(1), 10, &[0xaa, i], &[IoSlice::new(&body)], LIMITS).is_ok());
        }
        assert_eq!(b.groups()[0].iovs.len(), 1);
        let mut bytes = Vec::new();
        b.groups()[0].copy_range(20, 10, &mut bytes);
        assert_eq!(bytes, [0xaa, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn a_payload_in_too_many_pieces_is_copied() {
        let mut b = Batch::new();
        let bytes: Vec<u8> = (0..1500u32).map(|i| i as u8).collect();
        let p: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
        let limits = Limits { segments: 4, bytes: 65507 };
        assert!(b.push(to(1), 1501, &[255], &p, limits).is_ok());
        assert_eq!(b.groups()[0].iovs.len(), 1);
        let mut got = Vec::new();
        b.groups()[0].copy_range(1, 1500, &mut got);
        assert_eq!(got, bytes);
    }
}
