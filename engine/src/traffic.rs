//! What this process's endpoints have carried, those that are closed included: so that who measures
//! can say what took its messages, instead of what was asked for.

use crate::core::Core;
use crate::{Lock, Shared};

/// Sums over the endpoints of this process. All but `endpoints` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// Endpoints that are open.
    pub endpoints: u64,
    /// Messages sent, remote operations begun.
    pub messages: u64,
    /// Their payload, bytes (`payload_bytes` of the counters).
    pub payload_bytes: u64,
    /// Bytes that went through shared memory: put into rings here, and read from the memory of
    /// peers.
    pub shm_bytes: u64,
    /// Bytes of datagrams sent, with heads, acknowledgements and repairs.
    pub udp_bytes: u64,
    /// Payload that peers have read from bulk TCP connections, bytes.
    pub tcp_bytes: u64,
}

impl Traffic {
    /// As numbers, in an order that is kept for ever: more may follow in later versions.
    #[must_use]
    pub fn numbers(&self) -> [u64; 6] {
        let Self { endpoints, messages, payload_bytes, shm_bytes, udp_bytes, tcp_bytes } = *self;
        [endpoints, messages, payload_bytes, shm_bytes, udp_bytes, tcp_bytes]
    }

    /// From such numbers; what is missing is 0.
    #[must_use]
    pub fn of_numbers(numbers: &[u64]) -> Self {
        let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
        Self {
            endpoints: at(0),
            messages: at(1),
            payload_bytes: at(2),
            shm_bytes: at(3),
            udp_bytes: at(4),
            tcp_bytes: at(5),
        }
    }

    /// What was carried since `before`; as many endpoints as now.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let (now, then) = (self.numbers(), before.numbers());
        let mut between = Self::of_numbers(&std::array::from_fn::<u64, 6, _>(|i| now[i].saturating_sub(then[i])));
        between.endpoints = self.endpoints;
        between
    }

    fn add(&mut self, other: &Self) {
        let (own, others) = (self.numbers(), other.numbers());
        *self = Self::of_numbers(&std::array::from_fn::<u64, 6, _>(|i| own[i].saturating_add(others[i])));
    }

    fn of(core: &Core) -> Self {
        let messages = core.st.messages.counters();
        let protocol = core.st.proto().counters();
        let shm = core.shm.as_ref().map_or(0, |shm| shm.counters().tx_bytes + shm.counters().pulled_bytes);
        Self {
            endpoints: 1,
            messages: messages.eager_sends
                + messages.rendezvous_sends
                + messages.writes
                + messages.reads
                + messages.atomics,
            payload_bytes: messages.payload_bytes,
            shm_bytes: shm,
            udp_bytes: protocol.bytes_sent,
            tcp_bytes: protocol.bulk.bytes_sent,
        }
    }
}

/// What endpoints that are closed carried. Locked before an endpoint where both are: else one that
/// closes were counted twice, or not at all.
pub(crate) static CLOSED: Lock<Traffic> =
    Lock::new(Traffic { endpoints: 0, messages: 0, payload_bytes: 0, shm_bytes: 0, udp_bytes: 0, tcp_bytes: 0 });

/// What the endpoints of this process have carried so far. One that a panic has broken is not
/// counted.
#[must_use]
pub fn traffic() -> Traffic {
    let closed = CLOSED.lock();
    let mut sum = *closed;
    for shared in crate::live::all() {
        if let Ok(core) = shared.enter()
            && !core.finished
        {
            sum.add(&Traffic::of(&core));
        }
    }
    sum
}

/// Ends an endpoint by `end`, and keeps what it carried.
pub(crate) fn keep<T>(shared: &Shared, end: impl FnOnce(&mut Core) -> T) -> Option<T> {
    let mut closed = CLOSED.lock();
    let mut core = shared.enter().ok()?;
    let was = Traffic { endpoints: 0, ..Traffic::of(&core) };
    closed.add(&was);
    Some(end(&mut core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_places_and_later_ones_are_ignored() {
        let one = Traffic { endpoints: 1, messages: 2, payload_bytes: 3, shm_bytes: 4, udp_bytes: 5, tcp_bytes: 6 };
        assert_eq!(one.numbers(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(Traffic::of_numbers(&[1, 2, 3, 4, 5, 6, 7, 8]), one);
        assert_eq!(Traffic::of_numbers(&[1, 2]), Traffic { endpoints: 1, messages: 2, ..Traffic::default() });
        let later = Traffic { endpoints: 2, messages: 9, ..one };
        assert_eq!(later.since(&one), Traffic { endpoints: 2, messages: 7, ..Traffic::default() });
    }
}
