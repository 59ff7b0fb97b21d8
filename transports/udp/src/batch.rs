//! Datagrams waiting to be sent, sorted into groups that one system call can carry.
//!
//! A group is what goes out as one (super-)packet: datagrams of one size to one destination, the
//! last perhaps shorter. Groups keep the order of pushing within a destination, not between
//! destinations.

use libc::iovec;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use weir_net::Route;

/// Most pieces the kernel gathers in one message (`UIO_MAXIOV`).
pub const MAX_IOVS: usize = 1024;
/// What is copied by or from the kernel begins at a cache line. Its buffers do; and where the
/// destination lies 1 to 63 bytes behind the source modulo a page, `rep movsb`, by which it copies,
/// takes 2 to 16 times as long (AMD Zen 4, `docs/lab/2026-11-21-bulk.md`).
pub const LINE_BYTES: usize = 64;
/// Groups sent by one `sendmmsg`: enough to spread its cost, few enough to search from the end.
pub const MAX_GROUPS: usize = 64;
/// Room for datagrams: a batch of 1024 small ones, or four of the largest.
const ARENA_BYTES: usize = 256 << 10;

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
    /// The pieces, in order: where they begin in the arena, and their lengths.
    pieces: Vec<(usize, usize)>,
    /// The same for the kernel, filled in by [`Batch::groups`].
    pub iovs: Vec<iovec>,
}

/// What a destination allows a group to hold.
#[derive(Clone, Copy)]
pub struct Limits {
    pub segments: usize,
    pub bytes: usize,
    /// Two that have no more together stay apart.
    pub apart: usize,
}

/// The groups not yet sent.
pub struct Batch {
    /// Datagrams lie here one behind the other: 44 of them are sent faster in one piece, our
    /// copying included, than as 44 headers and 44 payloads (5.7 and 6.8 us,
    /// `docs/lab/2026-11-21-bulk.md`), and the payloads are in the cache anyway, since their
    /// checksum was computed just now.
    arena: Vec<u8>,
    /// Where the arena begins: at a cache line ([`LINE_BYTES`]).
    arena_start: usize,
    arena_used: usize,
    /// Reused: the first `used` are live. Their `iovs` keep their room.
    groups: Vec<Group>,
    used: usize,
}

// SAFETY: the pointers in `iovs` lead into the arena beside them, which never grows, and are made
// anew before each use.
unsafe impl Send for Batch {}

/// Why a datagram was not taken.
pub struct Full;

impl Batch {
    pub fn new() -> Batch {
        let arena = vec![0; ARENA_BYTES + LINE_BYTES];
        let arena_start = arena.as_ptr().align_offset(LINE_BYTES);
        Batch { arena, arena_start, arena_used: 0, groups: Vec::with_capacity(MAX_GROUPS), used: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The live groups, ready to be sent.
    pub fn groups(&mut self) -> &[Group] {
        let arena = &self.arena;
        for g in &mut self.groups[..self.used] {
            g.iovs.clear();
            let iov = |&(at, len): &(usize, usize)| iovec {
                iov_base: arena[at..at + len].as_ptr().cast_mut().cast(),
                iov_len: len,
            };
            g.iovs.extend(g.pieces.iter().map(iov));
        }
        &self.groups[..self.used]
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used = 0;
        self.arena_used = 0;
    }

    /// Takes a datagram of `len` bytes, copied: `head`, then `payload`.
    #[inline]
    pub fn push<P: Deref<Target = [u8]>>(
        &mut self,
        (remote, local): Route,
        len: usize,
        head: &[u8],
        payload: &[P],
        limits: Limits,
    ) -> Result<(), Full> {
        let used = self.used;
        let index = self.group_for(remote, local, len, limits)?;
        if self.used > used {
            self.arena_used = self.arena_used.next_multiple_of(LINE_BYTES);
        }
        let start = self.arena_start + self.arena_used;
        let room = self.arena.len() - LINE_BYTES;
        if room.saturating_sub(self.arena_used) < len {
            self.used = used;
            return Err(Full);
        }
        let mut rest = &mut self.arena[start..start + len];
        for part in std::iter::once(head).chain(payload.iter().map(|p| &**p)) {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        self.arena_used += len;
        let group = &mut self.groups[index];
        group.add(start, len);
        group.bytes += len;
        group.count += 1;
        group.closed = len < group.segment;
        Ok(())
    }

    /// The group that may take a datagram of `len` bytes; makes one if none may.
    #[inline]
    fn group_for(
        &mut self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        len: usize,
        limits: Limits,
    ) -> Result<usize, Full> {
        // Only the newest group of a destination: a datagram must not overtake.
        if let Some(i) = self.groups[..self.used].iter().rposition(|g| g.remote == remote && g.local == local) {
            let g = &self.groups[i];
            let apart = g.count == 1 && g.bytes + len <= limits.apart;
            if !g.closed && len <= g.segment && len > 0 && !apart {
                if g.count < limits.segments && g.bytes + len <= limits.bytes && g.pieces.len() < MAX_IOVS {
                    return Ok(i);
                }
                // A full super-packet does not wait: the receiver can work on it while the next one
                // is filled.
                if limits.segments > 1 {
                    return Err(Full);
                }
            }
        }
        if self.used == MAX_GROUPS {
            return Err(Full);
        }
        if self.used == self.groups.len() {
            let (pieces, iovs) = (Vec::with_capacity(4), Vec::with_capacity(4));
            self.groups.push(Group { remote, local, segment: len, bytes: 0, count: 0, closed: false, pieces, iovs });
        } else {
            let g = &mut self.groups[self.used];
            (g.remote, g.local, g.segment, g.bytes, g.count, g.closed) = (remote, local, len, 0, 0, false);
            g.pieces.clear();
        }
        self.used += 1;
        Ok(self.used - 1)
    }
}

impl Group {
    /// The size of its datagrams, if it is to be sent as a super-packet.
    pub fn together(&self) -> Option<usize> {
        (self.count > 1).then_some(self.segment)
    }

    /// Appends a piece; those that follow each other in the arena become one.
    #[inline]
    fn add(&mut self, start: usize, len: usize) {
        match self.pieces.last_mut() {
            Some((at, before)) if *at + *before == start => *before += len,
            _ => self.pieces.push((start, len)),
        }
    }

    /// Copies bytes `[from, from + len)` to the end of `out`.
    pub fn copy_range(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        let (mut skip, mut left) = (from, len);
        for iov in &self.iovs {
            let here = iov.iov_len.saturating_sub(skip).min(left);
            if here > 0 {
                // SAFETY: the pieces lie in the arena of the batch, from which this group is lent,
                // and `skip + here` lies within this one.
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

    const LIMITS: Limits = Limits { segments: 4, bytes: 1000, apart: 0 };

    fn to(port: u16) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::from(([127, 0, 0, 1], port)), None)
    }

    fn push(
        b: &mut Batch,
        to: Route,
        len: usize,
        head: &[u8],
        payload: &[IoSlice<'_>],
        limits: Limits,
    ) -> Result<(), Full> {
        b.push(to, len, head, payload, limits)
    }

    fn shape(b: &mut Batch) -> Vec<(u16, usize, usize, usize)> {
        b.groups().iter().map(|g| (g.remote.port(), g.segment, g.count, g.bytes)).collect()
    }

    #[test]
    fn equal_sizes_to_one_destination_join_and_a_shorter_one_closes() {
        let mut b = Batch::new();
        for len in [10, 10, 7, 10, 12, 12] {
            assert!(push(&mut b, to(1), len, &vec![1; len], &[], LIMITS).is_ok());
        }
        assert_eq!(shape(&mut b), [(1, 10, 3, 27), (1, 10, 1, 10), (1, 12, 2, 24)]);
    }

    #[test]
    fn destinations_may_alternate() {
        let mut b = Batch::new();
        for (i, port) in [1, 2, 1, 2, 1].into_iter().enumerate() {
            assert!(push(&mut b, to(port), 5, &[i as u8; 5], &[], LIMITS).is_ok());
        }
        assert_eq!(shape(&mut b), [(1, 5, 3, 15), (2, 5, 2, 10)]);
        let mut bytes = Vec::new();
        b.groups()[1].copy_range(3, 6, &mut bytes);
        assert_eq!(bytes, [1, 1, 3, 3, 3, 3]);
        bytes.clear();
        b.groups()[0].copy_range(0, 15, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4]);
    }

    #[test]
    fn a_full_group_asks_for_a_flush() {
        let mut b = Batch::new();
        for _ in 0..4 {
            assert!(push(&mut b, to(1), 5, &[0; 5], &[], LIMITS).is_ok());
        }
        assert!(push(&mut b, to(1), 5, &[0; 5], &[], LIMITS).is_err());
        b.clear();
        assert!(push(&mut b, to(1), 5, &[0; 5], &[], LIMITS).is_ok());
        assert_eq!(shape(&mut b), [(1, 5, 1, 5)]);
    }

    #[test]
    fn what_follows_each_other_becomes_one_piece_and_begins_at_a_cache_line() {
        let mut b = Batch::new();
        let body = [9u8; 620];
        let p = [IoSlice::new(&body[..5]), IoSlice::new(&[]), IoSlice::new(&body[5..])];
        assert!(push(&mut b, to(1), 623, &[1, 2, 3], &p, LIMITS).is_ok());
        assert!(push(&mut b, to(2), 3, &[4, 5, 6], &[], LIMITS).is_ok());
        assert!(push(&mut b, to(2), 3, &[7, 8, 9], &[], LIMITS).is_ok());
        for group in b.groups() {
            assert_eq!(group.iovs.len(), 1);
            assert_eq!(group.iovs[0].iov_base as usize % LINE_BYTES, 0);
        }
        let mut bytes = Vec::new();
        b.groups()[0].copy_range(0, 623, &mut bytes);
        assert_eq!(bytes[..3], [1, 2, 3]);
        assert_eq!(bytes[3..], body);
        bytes.clear();
        b.groups()[1].copy_range(3, 3, &mut bytes);
        assert_eq!(bytes, [7, 8, 9]);
    }

    #[test]
    fn a_full_arena_asks_for_a_flush_and_keeps_what_it_has() {
        let mut b = Batch::new();
        let limits = Limits { segments: 64, bytes: 65507, apart: 0 };
        let put = |b: &mut Batch, i: u8| {
            let body = vec![i; 60_000];
            push(b, to(u16::from(i)), 60_000, &[], &[IoSlice::new(&body)], limits).is_ok()
        };
        let taken = (0..9).take_while(|&i| put(&mut b, i)).count();
        assert_eq!((taken, b.groups().len()), (4, 4));
        for i in 0..4u8 {
            let mut bytes = Vec::new();
            b.groups()[usize::from(i)].copy_range(0, 60_000, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == i));
        }
    }

    #[test]
    fn a_payload_in_many_pieces_is_one() {
        let mut b = Batch::new();
        let bytes: Vec<u8> = (0..1500u32).map(|i| i as u8).collect();
        let p: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
        let limits = Limits { segments: 4, bytes: 65507, apart: 0 };
        assert!(push(&mut b, to(1), 1501, &[255], &p, limits).is_ok());
        let mut got = Vec::new();
        b.groups()[0].copy_range(1, 1500, &mut got);
        assert_eq!(got, bytes);
    }
}
