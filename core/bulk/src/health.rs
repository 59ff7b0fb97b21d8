//! When a bulk connection is given up, and what takes too long on the way to one (spec/bulk.md 2
//! and 5). A driver asks; what it does then is its affair.

use weir_session::Time;

/// A connection that is not made within this time is given up (spec/bulk.md 5).
pub const BULK_CONNECT_NS: u64 = 1_000_000_000;
/// So is one whose greeting, or the answer to it, has not come after this time (spec/bulk.md 2).
pub const BULK_GREETING_NS: u64 = 2_000_000_000;

/// How often a bulk connection in use is asked whether the network loses something of it.
const LOOK_NS: u64 = 10_000_000;
/// So long after the last look, with something under way all the while, this process was away
/// (stopped, or busy), and what it missed may still be unread.
const AWAY_NS: u64 = 10 * LOOK_NS;
/// What a look that finds losses adds to their count, which each 10 ms without lowers by one, and
/// where the bulk connection is given up: three such looks in five do it.
const LOSS: u32 = 4;
const LOSSES_MAX: u32 = 10;
/// A peer that tells nothing for so long has lost the bulk connection, whatever TCP says. (One that
/// gives it up says so, by whatever path there is; this is for those that cannot.)
const UNTOLD_NS: u64 = 2_000_000_000;
/// A peer that tells nothing for so long is asked by packets whether the path of its bulk
/// connection still carries anything, and again after each of these times. TCP says nothing where
/// the kernel has no way for what it would send again, and little where it waits for its timer; a
/// path that is left within 20 ms of being asked leaves 200 ms for all of it.
const ASK_NS: u64 = 40_000_000;
const ASK_AGAIN_NS: u64 = 20_000_000;

/// What is known of a bulk connection's well-being.
#[derive(Copy, Clone, Debug)]
pub struct BulkHealth {
    /// The peer has not acknowledged all that was written.
    waits: bool,
    looked_at: Time,
    /// The process was away since the peer was last seen to read.
    excused: bool,
    /// How far the peer had read then, and since when no further.
    read: u64,
    read_at: Time,
    /// When its path was last asked about.
    asked_at: Time,
    /// Segments lost then, and how often something had been lost of late.
    lost: u32,
    losses: u32,
}

impl BulkHealth {
    /// Of a bulk connection that is up since `now`.
    #[must_use]
    pub fn new(now: Time) -> BulkHealth {
        BulkHealth {
            waits: false,
            looked_at: now,
            excused: false,
            read: 0,
            read_at: now,
            asked_at: now,
            lost: 0,
            losses: 0,
        }
    }

    /// When to call [`BulkHealth::suffers`] although nothing else happens. `None`: while nothing is
    /// under way.
    #[must_use]
    pub fn next_look(&self) -> Option<Time> {
        self.waits.then(|| self.looked_at.plus_ns(LOOK_NS))
    }

    /// Whether the bulk connection is to be given up: the network loses something of it again and
    /// again, or so that the peer gets nothing meanwhile, or the peer has told nothing for 2 s, or
    /// 2 s after this process was away. What TCP mends within a round trip does no harm. To be
    /// asked whenever something may have been written or told.
    ///
    /// `read`: what [`crate::BulkConnection::waits`] says now. `lost`: how many segments the
    /// network lost since the connection was made, as far as is known (0 where nothing is known);
    /// asked every 10 ms at most, and only while something is under way.
    ///
    /// # Errors
    /// Those of `lost`.
    #[inline]
    pub fn suffers<E>(
        &mut self,
        now: Time,
        read: Option<u64>,
        lost: impl FnOnce() -> Result<u32, E>,
    ) -> Result<bool, E> {
        let begins = read.is_some() && !self.waits;
        if begins {
            (self.read_at, self.excused) = (now, false);
        }
        self.waits = read.is_some();
        match read {
            Some(read) if now.since_ns(self.looked_at) >= LOOK_NS => Ok(self.look(now, read, lost()?, begins)),
            _ => Ok(false),
        }
    }

    /// Whether to ask now, by packets, if the path of the bulk connection still carries packets:
    /// the peer has told nothing for a while. To be called after [`BulkHealth::suffers`]; whoever
    /// finds the path failed gives the bulk connection up.
    #[inline]
    pub fn is_to_ask(&mut self, now: Time) -> bool {
        let is_due = self.waits
            && now.since_ns(self.read_at) >= ASK_NS
            && now.since_ns(self.asked_at) >= ASK_AGAIN_NS
            && now.since_ns(self.looked_at) < LOOK_NS;
        if is_due {
            self.asked_at = now;
        }
        is_due
    }

    fn look(&mut self, now: Time, read: u64, lost: u32, begins: bool) -> bool {
        let passed_ns = now.since_ns(core::mem::replace(&mut self.looked_at, now));
        let moved = read != core::mem::replace(&mut self.read, read);
        let loses = lost > core::mem::replace(&mut self.lost, lost);
        let faded = u32::try_from(passed_ns / LOOK_NS).unwrap_or(u32::MAX);
        if moved {
            (self.read_at, self.excused) = (now, false);
        }
        // Once: who never looks more often judges as well.
        if passed_ns > AWAY_NS && !begins && !core::mem::replace(&mut self.excused, true) {
            self.losses = self.losses.saturating_sub(faded);
            self.read_at = now;
            return false;
        }
        self.losses =
            if loses { self.losses.saturating_sub(faded - 1) + LOSS } else { self.losses.saturating_sub(faded) };
        let stuck = self.losses > 0 && !moved;
        let untold = now.since_ns(self.read_at) > UNTOLD_NS;
        stuck || untold || self.losses >= LOSSES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::convert::Infallible;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const START: Time = Time(77 * MS);

    fn ask(h: &mut BulkHealth, now: Time, read: Option<u64>, lost: u32) -> bool {
        h.suffers(now, read, || Ok::<_, Infallible>(lost)).unwrap_or_else(|e| match e {})
    }

    /// One look every 10 ms: what the peer has read, and the losses so far. At which look the bulk
    /// connection is given up.
    fn given_up_at(looks: impl IntoIterator<Item = (u64, u32)>) -> Option<usize> {
        let mut h = BulkHealth::new(START);
        let mut now = START;
        looks.into_iter().position(|(read, lost)| {
            now = now.plus_ns(LOOK_NS);
            ask(&mut h, now, Some(read), lost)
        })
    }

    // spec: L-5.12
    #[test]
    fn losses_that_the_peer_reads_past_are_tolerated_until_they_come_again_and_again() {
        // 4, 8 less 1, and the third is too many.
        let every = |n: u32| (0..100).map(move |i| (u64::from(i) + 1, i / n + 1));
        assert_eq!(given_up_at(every(1)), Some(2));
        assert_eq!(given_up_at(every(2)), Some(4));
        // One in each 50 ms lowers the count as often as it raises it.
        assert_eq!(given_up_at(every(5)), None);
        assert_eq!(given_up_at((0..100).map(|i| (i + 1, 7))), None, "once");
    }

    // spec: L-5.12
    #[test]
    fn a_loss_with_nothing_told_since_is_too_much() {
        assert_eq!(given_up_at([(5, 0), (5, 0), (5, 1)]), Some(2));
        // The peer went on when it came, and stops while it is remembered; or after.
        assert_eq!(given_up_at([(5, 0), (6, 1), (6, 1)]), Some(2));
        assert_eq!(given_up_at([(5, 0), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (10, 1)]), None);
    }

    // spec: L-5.13
    #[test]
    fn a_peer_that_tells_nothing_has_two_seconds() {
        let looks = 2 * UNTOLD_NS / LOOK_NS;
        assert_eq!(given_up_at((0..looks).map(|_| (5, 0))), Some((UNTOLD_NS / LOOK_NS) as usize + 1));
        assert_eq!(given_up_at((0..looks).map(|i| (i / 199, 0))), None, "now and then is enough");
    }

    // spec: L-5.16
    #[test]
    fn a_peer_that_tells_nothing_is_asked_about_after_40_ms_and_each_20() {
        let asked = |waits: &dyn Fn(u64) -> Option<u64>| -> Vec<u64> {
            let mut h = BulkHealth::new(START);
            let mut asks = |ms: &u64| {
                let now = START.plus_ns(ms * MS);
                assert!(!ask(&mut h, now, waits(*ms), 0));
                h.is_to_ask(now)
            };
            (1..=100).filter(|ms| asks(ms)).collect()
        };
        assert_eq!(asked(&|_| Some(0)), [41, 61, 81]);
        assert!(asked(&|ms| Some(6 + ms / 30)).is_empty(), "it tells now and then");
        assert!(asked(&|ms| (ms % 30 > 0).then_some(7)).is_empty(), "nothing is under way now and then");
    }

    #[test]
    fn time_in_which_nothing_is_under_way_does_not_count() {
        let mut h = BulkHealth::new(START);
        assert_eq!(h.next_look(), None);
        let later = START.plus_ns(60 * UNTOLD_NS);
        assert!(!ask(&mut h, later, Some(0), 0));
        assert_eq!(h.next_look(), Some(later.plus_ns(LOOK_NS)));
        assert!(!ask(&mut h, later.plus_ns(UNTOLD_NS), None, 0));
        assert_eq!(h.next_look(), None);
        let again = later.plus_ns(3 * UNTOLD_NS);
        assert!(!ask(&mut h, again, Some(9), 0));
        let looks = (1..1000).find(|i| ask(&mut h, again.plus_ns(i * LOOK_NS), Some(9), 0));
        assert_eq!(looks, Some(UNTOLD_NS / LOOK_NS + 1));
    }

    // spec: L-5.14
    #[test]
    fn a_process_that_was_stopped_looks_again_before_it_judges() {
        for lost in [0, 9] {
            let mut h = BulkHealth::new(START);
            let mut now = START.plus_ns(LOOK_NS);
            assert!(!ask(&mut h, now, Some(5), 0));
            // What the peer told meanwhile lies unread, and is read only after this.
            now = now.plus_ns(3 * UNTOLD_NS);
            assert!(!ask(&mut h, now, Some(5), lost));
            // Perhaps the peer was stopped as well, and goes on a little later.
            let more = |i| now.plus_ns(i * LOOK_NS);
            assert!((1..50).all(|i| !ask(&mut h, more(i), Some(5), lost)));
            assert!(!ask(&mut h, more(50), Some(6), lost));
            assert_eq!((51..1000).find(|i| ask(&mut h, more(*i), Some(6), lost)), Some(51 + UNTOLD_NS / LOOK_NS));
        }
    }

    #[test]
    fn who_looks_seldom_judges_all_the_same() {
        let mut h = BulkHealth::new(START);
        let slow = (1..1000).find(|i| ask(&mut h, START.plus_ns(i * 2 * AWAY_NS), Some(5), 0));
        let soonest = UNTOLD_NS / (2 * AWAY_NS);
        assert!(slow.is_some_and(|looks| (soonest..=2 * soonest + 3).contains(&looks)), "{slow:?}");
    }

    #[test]
    fn losses_of_long_ago_are_forgotten_though_nobody_looked() {
        let mut h = BulkHealth::new(START);
        let later = START.plus_ns(2 * LOOK_NS);
        assert!(!ask(&mut h, START.plus_ns(LOOK_NS), Some(5), 0) && !ask(&mut h, later, Some(6), 1));
        assert!(!ask(&mut h, later, None, 1));
        let again = later.plus_ns(60 * UNTOLD_NS);
        for look in 0..5 {
            assert!(!ask(&mut h, again.plus_ns(look * LOOK_NS), Some(7), 1), "look {look}");
        }
    }

    #[test]
    fn the_system_is_asked_each_ten_milliseconds_and_its_error_is_handed_on() {
        let mut h = BulkHealth::new(START);
        let mut asked = Vec::new();
        for i in 1..100 {
            let now = START.plus_ns(i * MS);
            // Nothing is under way from 45 to 59 ms.
            let read = (!(45..60).contains(&i)).then_some(i);
            let r: Result<bool, ()> = h.suffers(now, read, || {
                asked.push(i);
                Ok(0)
            });
            assert_eq!(r, Ok(false));
        }
        assert_eq!(asked, [10, 20, 30, 40, 60, 70, 80, 90]);
        assert_eq!(h.suffers(START.plus_ns(100 * MS), Some(100), || Err("closed")), Err("closed"));
    }

    /// Milliseconds to the next question, at most.
    const STEP_MAX_MS: u64 = 300;

    /// Milliseconds since the last question; how much further the peer has read (`None`: all,
    /// nothing is under way); segments lost.
    fn steps() -> impl Strategy<Value = Vec<(u64, Option<u64>, u32)>> {
        let moves = prop_oneof![1 => Just(None), 1 => (1u64..4).prop_map(Some), 18 => Just(Some(0))];
        prop::collection::vec((1..=STEP_MAX_MS, moves, 0u32..2), 1..100)
    }

    proptest! {
        #[test]
        fn without_losses_two_silent_seconds_end_a_bulk_connection_and_nothing_else_does(steps in steps()) {
            let mut h = BulkHealth::new(START);
            let (mut now, mut read, mut silent_since, mut before) = (START, 0, START, None);
            for (ms, moves, _) in steps {
                now = now.plus_ns(ms * MS);
                read += moves.unwrap_or(0);
                let waits = moves.map(|_| read);
                if waits.is_none() || waits != before {
                    silent_since = now;
                }
                before = waits;
                let silent_ns = now.since_ns(silent_since);
                if ask(&mut h, now, waits, 0) {
                    prop_assert!(silent_ns > UNTOLD_NS, "given up after {} ns", silent_ns);
                    break;
                }
                // What was told is noticed at the next look, and so is that nothing was; and once
                // it has two more.
                let late_ns = UNTOLD_NS + 3 * (STEP_MAX_MS * MS + LOOK_NS);
                prop_assert!(silent_ns <= UNTOLD_NS + late_ns, "kept for {} ns", silent_ns);
            }
        }

        #[test]
        fn losses_never_keep_a_bulk_connection_that_would_be_given_up_without_them(steps in steps()) {
            let (mut with, mut without) = (BulkHealth::new(START), BulkHealth::new(START));
            let (mut now, mut read, mut lost) = (START, 0, 0);
            for (ms, moves, loses) in steps {
                now = now.plus_ns(ms * MS);
                (read, lost) = (read + moves.unwrap_or(0), lost + loses);
                let waits = moves.map(|_| read);
                let ends = [ask(&mut with, now, waits, lost), ask(&mut without, now, waits, 0)];
                prop_assert!(ends != [false, true]);
                if ends[0] {
                    break;
                }
            }
        }
    }
}
