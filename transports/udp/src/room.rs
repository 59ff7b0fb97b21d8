//! How much may wait unsent in a socket.
//!
//! What a socket takes and its interface has not sent waits in the interface's queue, where no protocol can change its order, where it delays what is sent next to anybody, and where there may be
//! less room than in the socket: what does not fit is lost on the own host. So a socket is to hold what its interface sends in a short time and no more. Links that never hold
//! sending back (loopback, veth, a card faster than its processor) cost nothing: all that is done here is done when a socket was found full.
//!
//! The idea is that of the small queues of Linux's TCP (`tcp_small_queue_check`: a millisecond of the flow's rate), for all that goes by one socket.

/// A socket may hold what leaves in this time. The kernel doubles what it is asked for, so it is twice as much of large datagrams, and of small ones less.
const TIME_NS: u64 = 1_000_000;
/// ... but this at least, two bursts of segmentation offload: at 100 Mbit/s five milliseconds, doubled ten. With less a process that gets its core late leaves the link idle.
const LEAST: usize = 64 << 10;
/// Before anything is known: a fifth of a millisecond at 10 Gbit/s, and less than an interface's queue of 1000 packets holds.
pub const FIRST: usize = 256 << 10;
/// So much must have left before its rate is believed: bursts of 64 KiB are counted when they have left altogether.
const SAMPLE: u64 = 256 << 10;

/// The size of a socket's send buffer, and what it follows.
#[derive(Debug)]
pub struct Room {
    bytes: usize,
    most: usize,
    /// When it was full, and what it had taken by then in all; it has not run dry since.
    full_at: Option<(u64, u64)>,
}

impl Room {
    /// One that grows up to `most` bytes.
    pub fn new(most: usize) -> Room {
        Room { bytes: most.min(FIRST), most, full_at: None }
    }

    /// It is full now, having taken `taken` bytes in all. Returns the size that it should have if that is another.
    pub fn is_full(&mut self, now_ns: u64, taken: u64) -> Option<usize> {
        let Some((at, before)) = self.full_at else {
            self.full_at = Some((now_ns, taken));
            return None;
        };
        let (time_ns, left) = (now_ns.saturating_sub(at), taken.saturating_sub(before));
        if left < SAMPLE || time_ns == 0 {
            return None;
        }
        self.full_at = Some((now_ns, taken));
        let leaves = (u128::from(left) * u128::from(TIME_NS) / u128::from(time_ns)).min(self.most as u128) as usize;
        // Half at a time: one look may have been late.
        self.change(leaves.max(self.bytes / 2))
    }

    /// It was full, and all of it has left before anybody looked again: more would have left. Returns the size that it should have if that is another.
    pub fn has_run_dry(&mut self) -> Option<usize> {
        self.full_at = None;
        self.change(self.bytes * 2)
    }

    fn change(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(LEAST).min(self.most);
        // A change by less than an eighth is worth no system call.
        let is_other = bytes.abs_diff(self.bytes) > self.bytes / 8;
        if is_other {
            self.bytes = bytes;
        }
        is_other.then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills it again and again for a while at a link of so many bytes a second; returns its size after that.
    fn after(room: &mut Room, rate: u64, ms: u64) -> usize {
        for tick in 0..ms {
            room.is_full(tick * 1_000_000, rate / 1000 * tick);
        }
        room.bytes
    }

    // spec: P-6.24
    #[test]
    fn it_follows_the_rate_of_its_link() {
        let mut room = Room::new(8 << 20);
        assert_eq!(room.bytes, FIRST);
        assert_eq!(after(&mut room, 12_500_000, 300), LEAST, "100 Mbit/s: it would be 12.5 kB");
        let mut room = Room::new(8 << 20);
        let gigabit = after(&mut room, 125_000_000, 300);
        assert!((110_000..140_000).contains(&gigabit), "{gigabit}");
        let mut room = Room::new(8 << 20);
        let fast = after(&mut room, 12_500_000_000, 5);
        assert_eq!(fast, 8 << 20, "100 Gbit/s: as much as is allowed");
    }

    #[test]
    fn one_that_runs_dry_grows_to_what_is_allowed() {
        let mut room = Room::new(1 << 20);
        let sizes: Vec<usize> = std::iter::from_fn(|| room.has_run_dry()).collect();
        assert_eq!(sizes, [512 << 10, 1 << 20]);
        let mut room = Room::new(10_000);
        assert_eq!((room.bytes, room.has_run_dry()), (10_000, None), "a user who wants less gets less");
        assert_eq!(room.is_full(0, 0).or_else(|| room.is_full(1_000_000_000, 1 << 20)), None);
    }

    #[test]
    fn a_single_late_look_halves_it_at_most() {
        let mut room = Room::new(8 << 20);
        assert_eq!(room.is_full(0, 0), None);
        assert_eq!(room.is_full(10_000_000_000, SAMPLE), Some(FIRST / 2));
    }
}
