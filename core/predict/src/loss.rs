//! Where the time went: every processor-second has exactly one cause.

use crate::Time;
use crate::machine::Flight;

/// Why a process's time passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// It computed (serial segments).
    Computation,
    /// It waited for a process that computed meanwhile, or had ended while others had not.
    Imbalance,
    /// It waited for a process that was itself waiting or communicating.
    Synchronisation,
    /// It waited for what an empty message takes at best.
    Latency,
    /// It waited for what a message's bytes take at best.
    Bandwidth,
    /// It waited for what a message took longer than at best, other messages being under way, or
    /// one before it on its channel.
    Contention,
    /// It waited for a message that was lost, or behind one, until it was sent again.
    Retransmission,
    /// It waited for a message that queued to leave its sender's node, or to come into its
    /// receiver's.
    Serialisation,
    /// It was kept by sending or receiving itself (local parts).
    Overhead,
}

/// How many causes there are.
pub const CAUSES: usize = 9;

impl Cause {
    /// All of them.
    pub const ALL: [Self; CAUSES] = [
        Self::Computation,
        Self::Imbalance,
        Self::Synchronisation,
        Self::Latency,
        Self::Bandwidth,
        Self::Contention,
        Self::Retransmission,
        Self::Serialisation,
        Self::Overhead,
    ];

    /// The name in tables and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Computation => "computation",
            Self::Imbalance => "imbalance",
            Self::Synchronisation => "synchronisation",
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Contention => "contention",
            Self::Retransmission => "retransmission",
            Self::Serialisation => "serialisation",
            Self::Overhead => "overhead",
        }
    }
}

/// Time by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByCause([Time; CAUSES]);

impl ByCause {
    /// Of one cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Time {
        self.0[cause as usize]
    }

    /// Of all.
    #[must_use]
    pub fn total(&self) -> Time {
        self.0.iter().fold(Time::ZERO, |sum, t| sum + *t)
    }

    /// Of all but computation.
    #[must_use]
    pub fn lost(&self) -> Time {
        self.total() - self.of(Cause::Computation)
    }

    /// Each cause with its time.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, Time)> + '_ {
        Cause::ALL.into_iter().map(|c| (c, self.of(c)))
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        for (sum, t) in self.0.iter_mut().zip(&other.0) {
            *sum += *t;
        }
    }

    pub(crate) fn put(&mut self, cause: Cause, time: Time) {
        self.0[cause as usize] += time;
    }

    /// Adds what came since `before`, so many times.
    pub(crate) fn repeat_since(&mut self, before: &Self, times: u64) {
        for (now, before) in self.0.iter_mut().zip(&before.0) {
            *now += (*now - *before).times(times);
        }
    }
}

/// Where the time of a run went. `total` is the run time times the number of processes, to the last
/// unit, and so is the sum over processes, and that over ops.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Losses {
    /// By process.
    pub by_process: Vec<ByCause>,
    /// By op of the model, whose place is [`weir_annotations::program::Op::place`].
    pub by_op: Vec<ByCause>,
}

impl Losses {
    /// Of all processes.
    #[must_use]
    pub fn total(&self) -> ByCause {
        let mut sum = ByCause::default();
        self.by_process.iter().for_each(|one| sum.add(one));
        sum
    }
}

/// A message's way from send to arrival, as far as somebody may wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Parts {
    pub flight: Flight,
    pub retransmission: Time,
    pub serialisation: Time,
}

impl Parts {
    /// Gives itself to a tour.
    pub fn tour(&self, tour: &mut crate::tour::Tour) {
        let Self { flight: Flight { latency, bandwidth, contention }, retransmission, serialisation } = self;
        [latency, bandwidth, contention, retransmission, serialisation].into_iter().for_each(|part| tour.span(*part));
    }
}

/// What somebody waited for: the other side and the message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Awaited {
    /// When the other side did its part: sent, or posted its receive.
    pub ready: Time,
    /// When the other side's last wait had ended by then.
    pub woken: Time,
    /// How long it had computed since.
    pub busy: Time,
    /// The message's way.
    pub parts: Parts,
}

impl Awaited {
    /// Divides a wait from `from` to `to` by cause.
    ///
    /// From `ready` on it was the message that was waited for. Its parts lie in this order:
    /// latency, bandwidth, contention, retransmission, serialisation; a wait that began when it was
    /// under way is charged with the last of them. Before that it was the other side: imbalance as
    /// far as it computed since its last wait, synchronisation for the rest.
    pub fn divide(&self, from: Time, to: Time, mut put: impl FnMut(Cause, Time)) {
        let all = (to - from).or_zero();
        let mut flight = all.min((to - self.ready).or_zero());
        let before = all - flight;
        let parts = [
            (Cause::Serialisation, self.parts.serialisation),
            (Cause::Retransmission, self.parts.retransmission),
            (Cause::Contention, self.parts.flight.contention),
            (Cause::Bandwidth, self.parts.flight.bandwidth),
            (Cause::Latency, self.parts.flight.latency),
        ];
        for (cause, part) in parts {
            let share = part.or_zero().min(flight);
            put(cause, share);
            flight -= share;
        }
        let computed = before.min(self.busy).min((self.ready - self.woken.max(from)).or_zero());
        put(Cause::Imbalance, computed);
        put(Cause::Synchronisation, before - computed + flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_divided_without_rest_and_the_late_parts_first() {
        let t = |n: i128| Time::from_yoctoseconds(n);
        let flight = Flight { latency: t(10), bandwidth: t(20), contention: t(5) };
        let awaited = Awaited {
            ready: t(100),
            woken: t(40),
            busy: t(50),
            parts: Parts { flight, retransmission: t(0), serialisation: t(3) },
        };
        let divided = |from: i128, to: i128| {
            let mut by = ByCause::default();
            awaited.divide(t(from), t(to), |c, s| by.put(c, s));
            assert_eq!(by.total(), t(to - from));
            by
        };
        let whole = divided(20, 138);
        assert_eq!((whole.of(Cause::Imbalance), whole.of(Cause::Synchronisation)), (t(50), t(30)));
        assert_eq!((whole.of(Cause::Latency), whole.of(Cause::Serialisation)), (t(10), t(3)));
        let late = divided(132, 138);
        assert_eq!((late.of(Cause::Serialisation), late.of(Cause::Contention)), (t(3), t(3)));
        assert_eq!(late.of(Cause::Bandwidth), t(0));
    }
}
