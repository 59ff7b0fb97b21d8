//! What counts in verdicts about others: hints that they are gone (spec 9); and what does not: what
//! the endpoint itself was late by (spec 3.4), and what has arrived and was not read (spec 9).

use crate::{DownReason, Time};

/// A timer that is looked at so much later says that the endpoint was kept from running: above what
/// schedulers and waits in whole milliseconds do.
const LATE_NS: u64 = 10_000_000;

/// What an endpoint was late by, all in all.
#[derive(Default)]
pub(crate) struct Lateness {
    /// Nanoseconds. Only grows.
    pub(crate) total_ns: u64,
    /// When timers were looked at last.
    looked: Time,
}

impl Lateness {
    /// Timers are looked at, the first of which was due then.
    pub(crate) fn look(&mut self, now: Time, due: Option<Time>) {
        let late = due.map_or(0, |due| now.since_ns(due.max(self.looked)));
        if late > LATE_NS {
            self.total_ns += late;
        }
        self.looked = self.looked.max(now);
    }
}

/// Whether all that has arrived was read: before that nobody can be judged by silence.
#[derive(Default)]
pub(crate) struct Unread {
    /// The driver leaves datagrams where they are for a while, and says when it has read all. (Else
    /// nothing ever waits.)
    in_parts: bool,
    /// Somebody is about to be judged.
    is_wanted: bool,
    /// All that had arrived by then was read.
    read_until: Time,
}

impl Unread {
    pub(crate) fn comes_in_parts(&mut self) {
        self.in_parts = true;
    }

    /// Whether all that had arrived by `since` was read; if not, it is wanted.
    pub(crate) fn may_judge(&mut self, since: Time) -> bool {
        let may = !self.in_parts || self.read_until >= since;
        self.is_wanted |= !may;
        may
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(crate) fn read(&mut self, until: Time) {
        (self.is_wanted, self.read_until) = (false, until);
    }
}

/// Hints that the peer is gone, while it has not spoken (spec 9).
pub(crate) struct Doubt {
    pub(crate) reason: DownReason,
    /// Hints, at most one for each question.
    pub(crate) hints: u8,
    pub(crate) pings: u8,
    /// When to ask again, or to judge.
    pub(crate) at: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    // spec: P-9.14
    #[test]
    fn nobody_is_judged_before_all_that_had_arrived_was_read() {
        let s = |n: u64| Time(n * 1000 * MS);
        let mut unread = Unread::default();
        assert!(unread.may_judge(s(9)) && !unread.is_wanted(), "this driver leaves nothing");
        unread.comes_in_parts();
        assert!(!unread.may_judge(s(10)) && unread.is_wanted());
        unread.read(s(9));
        assert!(!unread.may_judge(s(10)) && unread.is_wanted(), "what arrived between is not read");
        unread.read(s(11));
        assert!(unread.may_judge(s(10)) && !unread.is_wanted());
    }

    // spec: P-3.22
    #[test]
    fn only_what_a_timer_waited_for_in_vain_is_late() {
        let mut l = Lateness::default();
        l.look(Time(100 * MS), None);
        l.look(Time(200 * MS), Some(Time(195 * MS)));
        assert_eq!(l.total_ns, 0, "that may be a scheduler's");
        l.look(Time(900 * MS), Some(Time(300 * MS)));
        assert_eq!(l.total_ns, 600 * MS);
        // No time counts twice.
        l.look(Time(950 * MS), Some(Time(300 * MS)));
        assert_eq!(l.total_ns, 650 * MS);
    }
}
