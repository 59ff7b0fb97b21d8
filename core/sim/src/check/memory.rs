//! Memory checker: what a peer may leave with a receiver is bounded by the credit it was given
//! (spec 5), and what a sender keeps is bounded by its queues.

use std::collections::BTreeMap;

use super::Program;

/// Limits of every endpoint in the run.
#[derive(Copy, Clone, Debug, Default)]
pub struct Limits {
    /// `Config::initial_credit_msgs`.
    pub credit_msgs: u64,
    /// `Config::initial_credit_bytes`.
    pub credit_bytes: u64,
    /// `Config::send_queue_msgs` and `Config::control_queue` together.
    pub send_queue_msgs: usize,
    /// `Config::rndvs_max`.
    pub rndvs_max: usize,
    /// `Config::rx_buffer_bytes`: half of it may be in flight towards one receiver.
    pub rx_buffer_bytes: u64,
    /// What the wires between two hosts hold at most; spec 5 bounds what waits in the socket, not
    /// what is under way.
    pub wire_bytes: u64,
    /// What a network passes on from host to host at most, bytes per second.
    pub rate: u64,
    /// The shortest round trip over cables alone.
    pub round_trip_ns: u64,
    /// Largest datagram.
    pub datagram_bytes: u64,
}

/// What receivers hold, by (sender, receiver).
#[derive(Debug, Default)]
pub struct Memory {
    /// The limits.
    pub limits: Limits,
    held: BTreeMap<(Program, Program), (u64, u64)>,
    /// Bytes that are let in ahead of the credit, because they are expected.
    ahead: BTreeMap<(Program, Program), u64>,
    /// The most bytes any receiver ever held of one sender.
    pub peak_bytes: u64,
}

impl Memory {
    /// A message of `bytes` begins to arrive. Because of a bulk connection, or of a long round
    /// trip, the receiver says that it lets in `more` than the initial credit: three times as much,
    /// at most.
    ///
    /// # Errors
    /// The sender goes beyond its credit, or the receiver lets in too much.
    pub fn arrived(&mut self, from: Program, at: Program, bytes: u64, more: u64) -> Result<(), String> {
        if more > 3 * self.limits.credit_bytes {
            return Err(format!("{at} lets in {more} bytes of {from} beside {}", self.limits.credit_bytes));
        }
        let held = self.held.entry((from, at)).or_default();
        held.0 += 1;
        held.1 += bytes;
        self.peak_bytes = self.peak_bytes.max(held.1);
        let bytes = self.limits.credit_bytes + more + self.ahead.get(&(from, at)).copied().unwrap_or(0);
        if held.0 > self.limits.credit_msgs || held.1 > bytes {
            return Err(format!(
                "{at} holds {} messages, {} bytes of {from}; credit allows {} and {bytes}",
                held.0, held.1, self.limits.credit_msgs
            ));
        }
        Ok(())
    }

    /// So many bytes are expected: they may be let in beside the credit.
    pub fn expected(&mut self, from: Program, at: Program, bytes: u64) {
        let most = self.ahead.entry((from, at)).or_default();
        *most = bytes.max(*most);
    }

    /// The receiver lets the sender send so many messages and bytes more.
    ///
    /// # Errors
    /// That is more than came.
    pub fn consumed(&mut self, from: Program, at: Program, msgs: u64, bytes: u64) -> Result<(), String> {
        let Some(held) = self.held.get_mut(&(from, at)) else { return Ok(()) };
        if msgs > held.0 || bytes > held.1 {
            return Err(format!("{at} gives {from} credit for {msgs} messages, {bytes} bytes, and holds {held:?}"));
        }
        *held = (held.0 - msgs, held.1 - bytes);
        Ok(())
    }

    /// The two have parted.
    pub fn parted(&mut self, from: Program, at: Program) {
        self.held.remove(&(from, at));
    }

    /// What an endpoint reports about one peer while it runs.
    ///
    /// # Errors
    /// Says which limit is broken.
    pub fn check_peer(&self, at: Program, queued: usize, stats: &weir_link::PeerStats) -> Result<(), String> {
        if queued > self.limits.send_queue_msgs {
            return Err(format!("{at} has {queued} messages queued; the limit is {}", self.limits.send_queue_msgs));
        }
        if stats.rndvs_in > self.limits.rndvs_max {
            return Err(format!(
                "{at} has {} rendezvous transfers open; the limit is {}",
                stats.rndvs_in, self.limits.rndvs_max
            ));
        }
        let in_flight: u64 = stats.paths.iter().map(|p| p.in_flight_bytes).sum();
        let l = &self.limits;
        // Control messages may exceed the window by 16 packets, keep-alives by a few, and each
        // probe timeout by two more: to a peer that is cut off they go on until the verdict.
        let probes = 2 * stats.paths.iter().map(|p| u64::from(p.probe_timeouts)).sum::<u64>();
        // A sender that never saw the switch's queue empty takes what always stood there for a part
        // of the wire.
        let in_use = stats.paths.iter().filter(|p| p.in_flight_bytes > 0);
        let longest_us = in_use.map(|p| p.min_rtt_us + p.noncongestive_us).fold(0.0, f64::max);
        let queued = (l.rate as f64 * (longest_us - l.round_trip_ns as f64 / 1e3).max(0.0) / 1e6) as u64;
        let allowed = l.rx_buffer_bytes / 2 + l.wire_bytes + queued + (20 + probes) * l.datagram_bytes;
        if in_flight > allowed {
            return Err(format!(
                "{at} has {in_flight} bytes in flight to one peer; the receiver's buffer allows {allowed}"
            ));
        }
        Ok(())
    }

    /// What an endpoint reports about a peer when all work is done.
    ///
    /// # Errors
    /// Something is left over.
    pub fn check_empty(at: Program, peer: Program, stats: &weir_link::PeerStats) -> Result<(), String> {
        let left = stats.messages_open + stats.messages_waiting + stats.rndvs_open + stats.rndvs_in;
        // A keep-alive may be under way at any time, so packets in flight are no debt.
        if left > 0 {
            return Err(format!("{at} has done all its work with {peer} but keeps state: {stats:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_a_bound() {
        let (p, q) = (Program { host: 0, incarnation: 0 }, Program { host: 1, incarnation: 0 });
        let limits = Limits { credit_msgs: 2, credit_bytes: 100, ..Limits::default() };
        let mut m = Memory { limits, ..Memory::default() };
        assert!(m.arrived(p, q, 60, 0).is_ok());
        assert!(m.consumed(p, q, 2, 60).is_err() && m.consumed(p, q, 1, 61).is_err());
        assert!(m.consumed(p, q, 1, 60).is_ok());
        assert!(m.arrived(p, q, 60, 0).is_ok());
        assert!(m.arrived(p, q, 40, 0).is_ok());
        assert!(m.arrived(p, q, 0, 0).is_err());
        m.parted(p, q);
        assert!(m.arrived(p, q, 101, 0).is_err());
        m.parted(p, q);
        assert!(m.arrived(p, q, 150, 50).is_ok());
        assert!(m.arrived(p, q, 1, 50).is_err());
        m.parted(p, q);
        assert!(m.arrived(p, q, 1, 301).is_err(), "three times as much and no more");
    }
}
