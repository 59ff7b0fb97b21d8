//! What was sent and not yet settled: one ring of packets, one of the frames they carried (spec 4).

use alloc::collections::VecDeque;

use smallvec::SmallVec;

use weir_session::{Fragment, RangeSet};

use crate::Time;

/// The packet counts against the window of its path and is repaired when lost.
pub(crate) const IN_FLIGHT: u8 = 1;
/// Declared lost; a late acknowledgement shows the loss was spurious.
pub(crate) const LOST: u8 = 2;
/// Its frames were queued again by a probe timeout or a loss: not twice.
pub(crate) const REQUEUED: u8 = 4;
/// First of its round trip: nothing of its own making was in front of it.
pub(crate) const RTT_PROBE: u8 = 8;

/// Rings longer than this forget lost packets at once.
const RING_MAX: usize = 1 << 17;

/// One packet.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    /// First frame, index in the frame ring (wrapping).
    frame0: u32,
    /// Number of the packet on its path, counting packets in flight only.
    pub(crate) seq: u32,
    pub(crate) size: u16,
    pub(crate) path: u8,
    pub(crate) frames: u8,
    pub(crate) flags: u8,
}

/// A frame as it has to be remembered: enough to acknowledge or repeat it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// What the session is told the fate of.
    Session(Fragment),
    Bulk,
    MtuProbe {
        size: u16,
    },
    /// PING, PARITY, challenges: nothing to repeat.
    Once,
    Recovered {
        message: bool,
        key: u64,
        offset: u64,
        len: u16,
    },
}

// There is one for each frame in flight.
const _: () = assert!(size_of::<SentFrame>() <= 32);

/// Sent packets of one association.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    ring: VecDeque<Sent>,
    frames: VecDeque<SentFrame>,
    /// Packet number of the ring's front; frame index of the frame ring's front.
    base: u64,
    frame_base: u32,
    /// Acknowledged packets at or above `base`; packets nobody waits for count as acknowledged from
    /// the start.
    acked: RangeSet,
    /// Largest packet number ever acknowledged plus one.
    largest_acked_end: u64,
    /// Packets in flight, all paths.
    pub(crate) in_flight_packets: u32,
}

impl Recovery {
    /// Number of the next packet.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    /// A new packet; `frames` were added with [`Self::push_frame`] since the last one.
    pub(crate) fn push(&mut self, at: Time, size: u16, path: u8, seq: u32, frames: u8, flags: u8) {
        let pn = self.next();
        if frames == 0 {
            // Nobody waits for it.
            self.acked.insert(pn, pn + 1, |_, _| {});
        }
        if flags & IN_FLIGHT != 0 {
            self.in_flight_packets += 1;
        }
        let frame0 = self.frame_base.wrapping_add(self.frames.len() as u32).wrapping_sub(u32::from(frames));
        self.ring.push_back(Sent { at, frame0, seq, size, path, frames, flags });
    }

    /// More is remembered than `packets`, or twice as many frames: the oldest waits for its
    /// acknowledgement, and what the window does not count (acknowledgements, grants) piles up
    /// behind it.
    pub(crate) fn is_full(&self, packets: usize) -> bool {
        self.ring.len() > packets || self.frames.len() > 2 * packets
    }

    pub(crate) fn push_frame(&mut self, f: SentFrame) {
        self.frames.push_back(f);
    }

    pub(crate) fn get(&self, pn: u64) -> Option<&Sent> {
        self.ring.get(usize::try_from(pn.checked_sub(self.base)?).ok()?)
    }

    /// Frame `i` of a packet.
    pub(crate) fn frame(&self, s: &Sent, i: u8) -> Option<SentFrame> {
        self.frames.get(s.frame0.wrapping_sub(self.frame_base) as usize + usize::from(i)).copied()
    }

    /// Takes the packet out of flight and sets `flags`; returns it as it was before.
    pub(crate) fn settle(&mut self, pn: u64, flags: u8) -> Option<Sent> {
        let i = usize::try_from(pn.checked_sub(self.base)?).ok()?;
        let s = self.ring.get_mut(i)?;
        let old = *s;
        if old.flags & IN_FLIGHT != 0 {
            self.in_flight_packets -= 1;
        }
        s.flags = (s.flags & !IN_FLIGHT) | flags;
        Some(old)
    }

    pub(crate) fn mark(&mut self, pn: u64, flags: u8) {
        if let Some(i) = pn.checked_sub(self.base)
            && let Some(s) = self.ring.get_mut(i as usize)
        {
            s.flags |= flags;
        }
    }

    /// Records acknowledged packets `[lo, hi)`; appends the newly acknowledged ones to `fresh`.
    /// False: never sent.
    pub(crate) fn acknowledge(&mut self, lo: u64, hi: u64, fresh: &mut SmallVec<[(u64, u64); 8]>) -> bool {
        if hi > self.next() || lo >= hi {
            return false;
        }
        self.largest_acked_end = self.largest_acked_end.max(hi);
        self.acked.insert(lo.max(self.base), hi, |a, b| fresh.push((a, b)));
        true
    }

    /// Whether `[lo, hi)` is all that was sent before `hi`, of which nothing was acknowledged yet:
    /// then each of it is news, and nothing was overtaken.
    #[inline]
    pub(crate) fn is_in_order(&self, lo: u64, hi: u64) -> bool {
        self.acked.is_empty() && lo <= self.base && self.base < hi && hi <= self.next()
    }

    /// Number of the oldest packet, and the path it went by.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<(u64, u8)> {
        self.ring.front().map(|s| (self.base, s.path))
    }

    /// Takes the oldest packet out: it is acknowledged. Its frames are to be taken next: each is
    /// looked at by [`Self::oldest_frame`], and forgotten.
    #[inline]
    pub(crate) fn take_oldest(&mut self) -> Option<Sent> {
        let s = self.ring.pop_front()?;
        self.in_flight_packets -= u32::from(s.flags & IN_FLIGHT != 0);
        self.base += 1;
        self.frame_base = self.frame_base.wrapping_add(u32::from(s.frames));
        Some(s)
    }

    #[inline]
    pub(crate) fn oldest_frame(&self) -> Option<&SentFrame> {
        self.frames.front()
    }

    #[inline]
    pub(crate) fn forget_frame(&mut self) {
        self.frames.pop_front();
    }

    /// All before `hi` were taken ([`Self::take_oldest`]). False: the next may have to be forgotten
    /// too.
    #[inline]
    pub(crate) fn took_all(&mut self, hi: u64) -> bool {
        self.largest_acked_end = self.largest_acked_end.max(hi);
        match self.ring.front() {
            Some(s) => s.flags & IN_FLIGHT != 0,
            None => {
                self.shrink();
                true
            }
        }
    }

    /// Calls `f` with each packet below the largest acknowledged that is still in flight, oldest
    /// first.
    pub(crate) fn overtaken(&self, mut f: impl FnMut(u64, &Sent)) {
        self.acked.gaps(self.base, self.largest_acked_end, |a, b| {
            for pn in a..b {
                if let Some(s) = self.get(pn)
                    && s.flags & IN_FLIGHT != 0
                {
                    f(pn, s);
                }
            }
            true
        });
    }

    /// Calls `f` with each packet in flight, oldest first, until it returns false.
    pub(crate) fn in_flight(&self, mut f: impl FnMut(u64, &Sent) -> bool) {
        self.acked.gaps(self.base, self.next(), |a, b| {
            for pn in a..b {
                if let Some(s) = self.get(pn)
                    && s.flags & IN_FLIGHT != 0
                    && !f(pn, s)
                {
                    return false;
                }
            }
            true
        });
    }

    /// Forgets the settled packets at the front: acknowledged ones, and others once they are older
    /// than `keep_ns`.
    pub(crate) fn trim(&mut self, now: Time, keep_ns: u64) {
        let acked = match self.acked.iter().next() {
            Some((lo, hi)) if lo <= self.base => hi,
            _ => self.base,
        };
        let mut n = (acked - self.base) as usize;
        while let Some(s) = self.ring.get(n) {
            let pn = self.base + n as u64;
            let done = self.acked.contains(pn)
                || (s.flags & IN_FLIGHT == 0 && (now.since_ns(s.at) > keep_ns || self.ring.len() > RING_MAX));
            if !done {
                break;
            }
            n += 1;
        }
        if n == 0 {
            return;
        }
        let frames: usize = self.ring.drain(..n).map(|s| usize::from(s.frames)).sum();
        self.frames.drain(..frames);
        self.frame_base = self.frame_base.wrapping_add(frames as u32);
        self.base += n as u64;
        self.acked.remove_below(self.base);
        if self.ring.is_empty() {
            self.shrink();
        }
    }

    /// Nothing is remembered: memory that much once took is given back.
    #[inline]
    fn shrink(&mut self) {
        if self.ring.capacity() > 64 {
            self.ring.shrink_to(16);
            self.frames.shrink_to(16);
        }
    }

    /// As if `pn` packets had been sent.
    #[cfg(test)]
    pub(crate) fn start_at(&mut self, pn: u64) {
        self.clear();
        self.base = pn;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.base = self.next();
        self.ring = VecDeque::new();
        self.frames = VecDeque::new();
        self.frame_base = 0;
        self.acked = RangeSet::new();
        self.in_flight_packets = 0;
    }
}
