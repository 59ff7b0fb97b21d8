//! Lanes of the engine without socket: their connections are TCP's, over loopback, and what each call to the system does is as the fuzzer says ([`rig`]).

use super::Bare;
use crate::config::{EngineConfig, LaneUse};
use crate::lanes::Lanes;
use std::net::{SocketAddr, TcpListener};
use weir_proto::{Level, Time};

pub use crate::lanes::rigged::{Call, lose, open, rig};

/// A port may be taken by somebody else just when it has been found.
const TRIES: usize = 100;

impl Bare {
    /// As [`Bare::new`], with lanes; its address is one of loopback's.
    ///
    /// # Panics
    /// If there is no port.
    #[must_use]
    pub fn with_lanes(
        cfg: EngineConfig,
        key: [u8; 32],
        id: u64,
        seed: [u8; 32],
        tune: impl FnOnce(&mut weir_proto::Config),
    ) -> (Bare, SocketAddr) {
        let cfg = EngineConfig { level: Level::Integrity, lanes: LaneUse::Always, ..cfg };
        let free = || TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
        let open = |_| free().and_then(|addr| Ok((Lanes::open(&[addr])?, addr))).ok();
        let (lanes, addr) = (0..TRIES).find_map(open).expect("a port of loopback");
        let mut bare = Bare::new(cfg, key, id, addr, seed, |proto| {
            proto.lanes = true;
            tune(proto);
        });
        bare.lanes = Some(lanes);
        (bare, addr)
    }

    /// Connects, accepts and reads.
    ///
    /// # Panics
    /// If more is kept of a connection than a head.
    pub fn read_lanes(&mut self, now: Time, busy: bool) {
        let Some(lanes) = &mut self.lanes else { return };
        lanes.progress(&mut self.st, now, busy);
        let (_, staged) = lanes.kept();
        assert!(staged < weir_proto::UNIT_HEAD_LEN + weir_wire::MAX_ENVELOPE_LEN, "{staged} bytes are kept");
    }

    /// Writes what is to go by lanes.
    pub fn write_lanes(&mut self, now: Time) {
        if let Some(lanes) = &mut self.lanes {
            lanes.transmit(&mut self.st, now);
        }
    }

    /// When the connections are to be looked at.
    #[must_use]
    pub fn lanes_timeout(&self, now: Time) -> Option<Time> {
        self.lanes.as_ref().and_then(|l| l.next_timeout(now))
    }

    /// How many connections it has.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.lanes.as_ref().map_or(0, |l| l.kept().0)
    }

    /// Units that were read to their end.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.st.proto().counters().lane_units_received
    }

    /// Rules that the peer broke, and heads that were not what it sent.
    #[must_use]
    pub fn misunderstandings(&self) -> u64 {
        let c = self.st.proto().counters();
        c.violations + c.lane_heads_damaged
    }

    /// Takes no more lanes, and ends those it has.
    pub fn close_lanes(&mut self) {
        if let Some(lanes) = &mut self.lanes {
            lanes.close();
        }
    }
}
